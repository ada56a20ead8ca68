"""Who asks what waits for some jobs, or what they wait for, reads no other dependencies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from django.db import connection, transaction

from django_pgjobs.queries import bulk, dependencies, explain, job_page, jobs
from django_pgjobs.queries.jobs import OldJobs
from django_pgjobs.status import FINISHED
from tests.factories import make_jobs
from tests.planner import blocks_read, forget, plan_like_a_worker

pytestmark = pytest.mark.django_db

# They fill an index of some eighty blocks.
OTHERS = 20_000
TABLE = "pgjobs_dependency"
# Each waits for the one behind it, which is there: the commit of a test looks at that.
FILL = """
INSERT INTO pgjobs_dependency (predecessor_id, job_id, after_failure)
SELECT id, id - 1, 'cancel' FROM pgjobs_job_live
"""


def prune(cursor: Any, ids: Sequence[int]) -> None:
    assert jobs.prune_jobs(cursor, OldJobs("failed", 3600.0), max_jobs=len(ids)) == len(ids)


def delete(cursor: Any, ids: Sequence[int]) -> None:
    assert len(bulk.delete_jobs(cursor, list(ids), statuses=FINISHED)) == len(ids)


def list_dependants(cursor: Any, ids: Sequence[int]) -> None:
    assert dependencies.list_dependants(cursor, ids, max_jobs=10) == []


def resolve(cursor: Any, ids: Sequence[int]) -> None:
    dependencies.resolve_dependencies(cursor, ids)


def resolve_the_rest(cursor: Any, ids: Sequence[int]) -> None:
    dependencies.send_resolution(cursor, [], [(job_id, 0) for job_id in ids])


def list_predecessors(cursor: Any, ids: Sequence[int]) -> None:
    assert explain.list_predecessors(cursor, ids[0], max_jobs=10) == []


def describe(cursor: Any, ids: Sequence[int]) -> None:
    job_page.describe_job(
        cursor, ids[0], task_path="", unique_key=None, concurrency_key=None, worker_id=None
    )


CALLS: tuple[Callable[[Any, Sequence[int]], None], ...] = (
    prune, delete, list_dependants, resolve, resolve_the_rest, list_predecessors, describe,
)  # fmt: skip


# Of few rows in many blocks Django's connections read the table, whatever the statement says.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("by_worker", "known"),
    [(True, "empty"), (True, "few"), (True, "all"), (False, "empty"), (False, "all")],
)
def test_the_dependencies_of_others_are_not_read(by_worker: bool, known: str) -> None:
    with connection.cursor() as cursor:
        # Files of their own, without what tests before this one have left.
        cursor.execute(f"TRUNCATE pgjobs_job, {TABLE}")
        make_jobs(OTHERS)
        cursor.execute(FILL)
        ids = make_jobs(10, status="failed", finished_at="2020-01-01")
        cursor.execute(f"ANALYZE pgjobs_job_live, pgjobs_job_finished, {TABLE}")
        if known != "all":
            forget(cursor, known, [TABLE, "pgjobs_job_live"])
        if by_worker:
            plan_like_a_worker(cursor)
        read = {call.__name__: blocks_of(cursor, call, ids) for call in CALLS}
    assert {name: blocks for name, blocks in read.items() if blocks > 50} == {}


def blocks_of(cursor: Any, call: Callable[[Any, Sequence[int]], None], ids: Sequence[int]) -> int:
    """Return how many blocks of dependencies a call reads; what it changes is taken back."""
    before = blocks_read(cursor, TABLE)
    with transaction.atomic():
        call(cursor, ids)
        transaction.set_rollback(True)
    return blocks_read(cursor, TABLE) - before
