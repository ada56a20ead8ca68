"""What has ended leaves nothing to the garbage collector.

It would stop all threads to find it: a tenth of a second for 10,000 jobs.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator

import pytest

from django_pgjobs import Task
from django_pgjobs.queries.claims import ClaimedRow
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.running.outcome import Outcome
from django_pgjobs.worker.turns.turn import Turn
from tests import tasks
from tests.factories import count_jobs, make_jobs
from tests.worker.support import ThreadedWorker

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., ThreadedWorker]


@pytest.fixture
def left(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], set[type]]]:
    """Return which kinds of objects are new, in use or as garbage."""
    # What it has read holds the exceptions of jobs.
    caplog.set_level(logging.CRITICAL, logger="django_pgjobs")
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    # Those of a worker of another test, which was left as if its process had ended.
    before = set(map(id, looked_at()))
    try:
        yield lambda: {type(each) for each in looked_at() if id(each) not in before}
    finally:
        if was_enabled:
            gc.enable()


def looked_at() -> list[object]:
    kinds = {Attempt, ClaimedRow, Outcome, Turn}
    return [each for each in gc.get_objects() if type(each) in kinds]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "status"),
    [(tasks.add, "successful"), (tasks.add_async, "successful"), (tasks.fail, "failed")],
    ids=["thread", "event loop", "failure"],
)
def test_jobs_that_ended(
    drain: Start, left: Callable[[], set[type]], task: Task, status: str
) -> None:
    args = [] if task is tasks.fail else [1, 2]
    make_jobs(100, task.module_path, args=args)
    # The upkeep may still be in its last turn: nobody waits for it.
    drain().end_threads()
    assert not left()
    assert count_jobs(status=status) == 100
