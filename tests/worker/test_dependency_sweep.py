"""The sweep: dependencies that nobody has resolved, because rows were changed past the worker."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from django_pgjobs.queries import dependencies
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.claiming.outcome_statements import writings
from django_pgjobs.worker.process import pruner as pruner_module
from django_pgjobs.worker.process.pruner import Pruner
from django_pgjobs.worker.running.outcome import Kind, Outcome
from tests.factories import make_job, make_running_job
from tests.helpers import wait_until
from tests.test_dependencies import CANCELLED, FREE, HELD, WAITING, edges, enqueue_after, state
from tests.worker.support import make_attempt_of, make_options
from tests.worker.test_dependencies import end, execute

pytestmark = pytest.mark.django_db(transaction=True)


def sweep(own: OwnConnection, *, max_dependencies: int = 100) -> int:
    """Sweep all pages; return their number."""
    position: dependencies.Position | None = dependencies.BEGIN
    pages = -1
    with own.cursor() as cursor:
        while position is not None:
            position = dependencies.sweep_dependencies(
                cursor, position, max_dependencies=max_dependencies
            )
            pages += 1
    return pages


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("DELETE FROM pgjobs_job WHERE id = %s", FREE),
        ("UPDATE pgjobs_job SET status = 'successful' WHERE id = %s", FREE),
        ("UPDATE pgjobs_job SET status = 'failed' WHERE id = %s", CANCELLED),
        ("UPDATE pgjobs_job SET note = 'x' WHERE id = %s", WAITING),
    ],
)
def test_the_sweep_resolves_what_plain_sql_has_done(
    own: OwnConnection, statement: str, expected: tuple[Any, ...]
) -> None:
    """A predecessor that is gone blocks nobody."""
    predecessor = make_job()
    job_id = enqueue_after(predecessor)
    execute(statement, predecessor)
    assert state(job_id) == WAITING
    sweep(own)
    assert state(job_id) == expected


def test_the_sweep_goes_page_by_page(own: OwnConnection) -> None:
    predecessors = [make_job() for _ in range(5)]
    waiting = [enqueue_after(job_id) for job_id in predecessors for _ in range(2)]
    execute("UPDATE pgjobs_job SET status = 'successful' WHERE id = ANY (%s)", predecessors[1:])
    assert sweep(own, max_dependencies=3) >= 3
    assert [state(job_id) for job_id in waiting] == [WAITING] * 2 + [FREE] * 8


def test_the_sweep_leaves_a_held_job_to_a_person_even_when_its_predecessor_is_pruned(
    own: OwnConnection,
) -> None:
    failed = make_job(status="failed")
    job_id = enqueue_after(failed, after_failure="hold")
    written = xmin(job_id)
    sweep(own)
    assert (state(job_id), xmin(job_id)) == (HELD, written)
    execute("DELETE FROM pgjobs_job WHERE id = %s", failed)
    sweep(own)
    assert state(job_id) == HELD


def xmin(job_id: int) -> str:
    """Return the transaction that wrote the row last."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT xmin::text FROM pgjobs_job WHERE id = %s", [job_id])
        return str(cursor.fetchone()[0])


def test_the_leader_sweeps(own: OwnConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruner_module, "PAGE", 1)
    crashes: list[str] = []
    waiting = [enqueue_after(make_job(status="failed"), after_failure="hold") for _ in range(2)]
    execute("UPDATE pgjobs_job SET status = 'successful' WHERE status = 'failed'")
    made = Pruner(make_options(), own, is_leader=lambda: True, on_crash=crashes.append)
    made.start()
    made.wake()
    wait_until(lambda: [state(job_id) for job_id in waiting] == [FREE, FREE])
    made.stop()
    assert made.join(15)
    assert not crashes


def test_a_dependency_of_a_job_that_was_deleted_goes_with_the_predecessor(
    own: OwnConnection,
) -> None:
    running = make_running_job()
    job_id = enqueue_after(running.id)
    execute("DELETE FROM pgjobs_job WHERE id = %s", job_id)
    end(own, running)
    assert edges() == []


def test_an_outcome_that_is_sent_alone_leaves_dependencies_to_the_sweep(own: OwnConnection) -> None:
    """The server refused something of the turn: nothing else is to travel with it."""
    running = make_running_job()
    job_id = enqueue_after(running.id)
    batch = [(make_attempt_of(running.id, claim=running.claim), Outcome(Kind.DONE))]
    alone = [each.send for each in writings(batch)]
    assert len(alone) == 1
    own.round_trip(alone)
    assert state(job_id) == WAITING
    sweep(own)
    assert state(job_id) == FREE
