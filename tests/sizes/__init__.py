"""Every number of the pages and metrics against plain SQL, at hundreds of jobs and at millions."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    *(
        f"{__name__}.{name}"
        for name in (
            "of_controls",
            "of_jobs",
            "of_metrics",
            "of_overview",
            "of_statistics",
            "of_system",
            "of_workers",
        )
    )
)
