"""Fixtures of the tests that run real workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import WorkerProcess
from tests.process import tasks
from tests.process.support import Journal


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """An empty journal, its gate closed."""
    return Journal(tmp_path)


@pytest.fixture
def start(start_worker: Callable[..., WorkerProcess]) -> Callable[..., WorkerProcess]:
    """Start a worker that knows tests.process.tasks: `start(*flags, pgjobs=None, modules=())`.

    *pgjobs* are more keys of PGJOBS, *modules* more names for its TASK_MODULES; everything
    else as `start_worker` takes it.
    """

    def start_one(
        *flags: str,
        pgjobs: Mapping[str, Any] | None = None,
        modules: tuple[str, ...] = (),
        settings: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> WorkerProcess:
        keys = {"TASK_MODULES": [tasks.__name__, *modules], **(pgjobs or {})}
        return start_worker(*flags, settings={"PGJOBS": keys, **(settings or {})}, **options)

    return start_one
