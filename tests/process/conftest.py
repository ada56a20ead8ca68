"""Fixtures of the tests that run real workers."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.helpers import WorkerProcess
from tests.process import tasks
from tests.process.support import Journal, children_of


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """An empty journal, its gate closed."""
    return Journal(tmp_path)


@pytest.fixture
def start(
    start_worker: Callable[..., WorkerProcess],
) -> Iterator[Callable[..., WorkerProcess]]:
    """Start a worker that knows tests.process.tasks: `start(*flags, pgjobs=None, modules=())`.

    *pgjobs* are more keys of PGJOBS, *modules* more names for its TASK_MODULES; everything
    else as `start_worker` takes it. At the end the children of supervisors are killed, too.
    """
    workers: list[WorkerProcess] = []

    def start_one(
        *flags: str,
        pgjobs: Mapping[str, Any] | None = None,
        modules: tuple[str, ...] = (),
        settings: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> WorkerProcess:
        keys = {"TASK_MODULES": [tasks.__name__, *modules], **(pgjobs or {})}
        settings = {"PGJOBS": keys, **(settings or {})}
        workers.append(start_worker(*flags, settings=settings, **options))
        return workers[-1]

    yield start_one
    for worker in workers:
        children = children_of(worker) if worker.is_running else []
        worker.kill()
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fail if a module that spoils its process was imported into this one."""
    spoiling = {
        f"tests.process.{name}"
        for name in ("hoarding", "impatient", "receivers", "slow_start", "told", "watchful")
    }
    imported = spoiling & sys.modules.keys()
    assert not imported, f"name these as text, for workers to import: {imported}"
