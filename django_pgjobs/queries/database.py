"""Which of the project's databases has the jobs."""

from __future__ import annotations

from django.apps import apps
from django.db import router


def job_database() -> str:
    """Return the alias of the database that the table of jobs lives in."""
    return router.db_for_write(apps.get_model("pgjobs", "Job"))
