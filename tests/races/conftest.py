"""Fixtures of the races: the worker's, and threads with a Django connection of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.helpers import WAIT_SECONDS
from tests.races.support import DjangoThread
from tests.worker.conftest import (
    _nobody_reads_the_log_of_django_tasks,
    gate,
    open_own,
    own,
    start_thread,
    worker,
)

__all__ = [
    "_nobody_reads_the_log_of_django_tasks",
    "gate",
    "open_own",
    "own",
    "start_thread",
    "worker",
]


@pytest.fixture
def in_thread(transactional_db: None) -> Iterator[Callable[..., DjangoThread]]:
    """Run a function in a thread, on a Django connection of its own: `in_thread(function)`."""
    threads: list[DjangoThread] = []

    def start(function: Callable[[], object]) -> DjangoThread:
        threads.append(DjangoThread(function))
        return threads[-1]

    yield start
    for thread in threads:
        thread.join(WAIT_SECONDS)
