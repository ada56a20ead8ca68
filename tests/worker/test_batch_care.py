"""Batches that do not end by themselves, and old ones; and how often the pump counts."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any
from unittest import mock

import psycopg
import pytest
from django.db import connection, transaction
from psycopg.errors import QueryCanceled

from django_pgjobs import requeue, workflow
from django_pgjobs.models import Batch, Job
from django_pgjobs.queries import batch_care, jobs
from django_pgjobs.queries.batch_care import TreeRetention
from django_pgjobs.queries.batches import Settled
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.signals import workflow_expiring
from django_pgjobs.testing import run_jobs
from django_pgjobs.worker.claiming.settling import Settling
from django_pgjobs.worker.process.batch_care import BatchCare
from django_pgjobs.worker.running.outcome import Kind
from django_pgjobs.worker.turns.turn import Turn
from tests import tasks
from tests.factories import count_jobs, make_batch
from tests.helpers import some_always
from tests.worker.support import ThreadedWorker, make_attempt_of
from tests.worker.test_batches import changes, execute, finish, open_batch, settle

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., ThreadedWorker]


# Care


FOR_EVER = TreeRetention(None, None, 0.0)


def care(own: OwnConnection, kept: TreeRetention = FOR_EVER) -> BatchCare:
    return BatchCare(own, kept, Counter(), is_stopped=lambda: False)


def test_what_somebody_deleted_is_not_waited_for(
    own: OwnConnection, caplog: pytest.LogCaptureFixture
) -> None:
    gone, changed, healthy = open_batch(3), open_batch(2), open_batch(1)
    for flow in (gone, changed, healthy):
        flow.seal()
    execute("DELETE FROM pgjobs_job WHERE batch_id = %s", gone.pk)
    execute("UPDATE pgjobs_job SET status = 'successful' WHERE batch_id = %s", changed.pk)
    care(own).recount()
    assert f"batch={gone.pk} had other numbers than there are jobs" in caplog.text
    assert f"batch={healthy.pk} " not in caplog.text
    for flow in (gone, changed, healthy):
        flow.refresh_from_db()
    assert (gone.jobs, gone.tree_completed_at is not None) == (0, True)
    assert (changed.jobs, changed.successful, changed.completed_at is not None) == (2, 2, True)
    assert (healthy.jobs, healthy.completed_at) == (1, None)
    care(own).recount()
    assert changes() == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    some_always(
        [
            "open_predecessors = 9 WHERE follows IS NOT NULL",
            "open_predecessors = -9 WHERE follows IS NOT NULL",
            "failed_predecessors = 2, open_predecessors = 5 WHERE follows IS NOT NULL",
            "open_parts = open_parts + 2 WHERE parent_id IS NULL",
            "open_children = 7, failed_children = 3 WHERE parent_id IS NULL",
            "open_children = 0, open_parts = 0 WHERE parent_id IS NULL",
            "jobs = 9 WHERE parent_id IS NULL",
            "successful = -9",
        ]
    ),
)
def test_numbers_that_somebody_changed_are_corrected(
    own: OwnConnection, drain: Start, change: str
) -> None:
    """All of a tree, and what follows runs once."""
    with workflow("changed") as flow:
        part = flow.batch("part")
        part.add(tasks.add.s(1, 1))
        part.seal()
        each = flow.each(tasks.add.s(1))
        each.gather(tasks.echo.s())
        flow.on_success(tasks.add.s(1))
        flow.add(tasks.add.s(1, 1))
    settle(own, *(batch.pk for batch in Batch.objects.all()))
    execute(f"UPDATE pgjobs_batch SET {change}")
    for _ in range(3):
        care(own).recount()
        drain()
    assert not Batch.objects.filter(tree_completed_at=None).exists()
    assert not Batch.objects.filter(completions__gt=1).exists()
    assert count_jobs(status="successful") == 5
    assert changes() == 0


def test_a_healthy_tree_is_left_alone(own: OwnConnection, caplog: pytest.LogCaptureFixture) -> None:
    with workflow("healthy", seal=False) as flow:
        flow.each(tasks.add.s(1)).gather(tasks.echo.s())
        flow.batch("part").batch("part of it")
        flow.add(tasks.add.s(1, 1))
    care(own).recount()
    flow.seal()
    care(own).recount()
    finish(own, flow)
    care(own).recount()
    assert "counted again" not in caplog.text


def test_a_broken_batch_is_tried_again(
    own: OwnConnection, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="django_pgjobs")
    mended, broken = open_batch(), open_batch()
    for flow in (mended, broken):
        flow.on_complete(tasks.add.s(1))
    execute("UPDATE pgjobs_batch SET broken = 'it was odd'")
    text = '[{"event": "complete", "queue_name": "", "task_path": "x"}]'
    execute("UPDATE pgjobs_batch SET callbacks = %s WHERE id = %s", text, broken.pk)
    execute("INSERT INTO pgjobs_batch_change (batch_id, seals) SELECT id, TRUE FROM pgjobs_batch")
    care(own).recount()
    assert f"batch={mended.pk} is counted again" in caplog.text
    assert f"batch={broken.pk} is counted again" not in caplog.text
    mended.refresh_from_db()
    broken.refresh_from_db()
    assert mended.tree_completed_at and not mended.broken
    assert broken.broken == "it was odd"


# Old trees


@pytest.fixture
def told() -> Iterator[list[int]]:
    """The roots that a receiver of workflow_expiring was told of; it raises for an odd name."""
    heard: list[int] = []

    def hear(batch: Batch, **_: Any) -> None:
        heard.append(batch.pk)
        if batch.name == "odd":
            raise ZeroDivisionError
        if batch.name == "exits":
            raise SystemExit
        if batch.name == "leaves a transaction open":
            transaction.atomic().__enter__()
            Batch.objects.select_for_update().get(pk=batch.pk)

    workflow_expiring.connect(hear)
    yield heard
    workflow_expiring.disconnect(hear)


def open_old(name: str = "old", *, hours: int = 1, fails: bool = False) -> Batch:
    """Return a workflow that has been complete for so long."""
    with workflow(name) as flow:
        last = flow.then(tasks.add.s(1, 1), after_failure="run")
        flow.add(tasks.fail_once.s() if fails else tasks.add.s(1, 1))
    run_jobs()
    past = f"now() - interval '{hours} h'"
    execute(f"UPDATE pgjobs_batch SET tree_completed_at = {past} WHERE id = %s", flow.pk)
    ids = [flow.pk, last.pk]
    execute(f"UPDATE pgjobs_job SET finished_at = {past} WHERE batch_id = ANY (%s)", ids)
    return flow


def names() -> set[str]:
    return set(Batch.objects.filter(parent=None).values_list("name", flat=True))


@pytest.mark.slow
def test_a_tree_goes_as_a_whole_when_its_time_is_over(own: OwnConnection) -> None:
    """S2.9: as long after its end as a job is kept that ended like it."""
    open_old("old"), open_old("young", hours=0), open_old("failed", fails=True)
    hour = 3600.0

    def prune(*kept: float | None) -> set[str]:
        looking = care(own, TreeRetention(*kept, 0.0))
        looking.tell()
        looking.prune()
        return names()

    assert prune(None, None) == {"old", "young", "failed"}
    assert prune(2 * hour, 2 * hour) == {"old", "young", "failed"}
    assert prune(0.5 * hour, 2 * hour) == {"young", "failed"}
    assert prune(None, 0.5 * hour) == {"young"}
    assert (count_jobs(), Batch.objects.count()) == (2, 2)


def test_owners_are_told_before_results_go(own: OwnConnection, told: list[int]) -> None:
    """S2.9: so many seconds before, once."""
    flow = open_old()
    early = care(own, TreeRetention(5400.0, None, 3600.0))
    early.prune()
    early.tell()
    early.tell()
    early.prune()
    assert told == [flow.pk]
    assert names() == {"old"}
    execute("UPDATE pgjobs_batch SET told_at = now() - interval '2 h'")
    execute("UPDATE pgjobs_batch SET tree_completed_at = now() - interval '3 h'")
    early.tell()
    early.prune()
    assert told == [flow.pk]
    assert names() == set()


def test_nothing_goes_of_which_the_owner_could_not_be_told(
    own: OwnConnection, told: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    odd, plain = open_old("odd"), open_old()
    looking = care(own, TreeRetention(0.0, 0.0, 0.0))
    for _ in range(2):
        looking.tell()
        looking.prune()
    assert told == [odd.pk, plain.pk, odd.pk]
    assert names() == {"odd"}
    assert f"batch={odd.pk} is not deleted: its owner could not be told" in caplog.text


def test_the_pruner_goes_on_after_a_receiver_that_exits(
    own: OwnConnection, told: list[int]
) -> None:
    exits, leaves, plain = open_old("exits"), open_old("leaves a transaction open"), open_old()
    looking = care(own, TreeRetention(0.0, 0.0, 0.0))
    looking.tell()
    assert told == [exits.pk, leaves.pk, plain.pk]
    looking.prune()
    assert names() == {"exits"}


def test_a_tree_that_was_open_again_is_told_of_again(own: OwnConnection, told: list[int]) -> None:
    flow = open_old()
    looking = care(own, TreeRetention(0.0, 0.0, 7200.0))
    looking.tell()
    requeue(Job.objects.filter(batch_id=flow.pk).earliest("pk").pk)
    run_jobs()
    looking.tell()
    assert told == [flow.pk] * 2


def test_jobs_of_a_tree_are_not_pruned_one_by_one(own: OwnConnection) -> None:
    open_old()
    execute(
        "INSERT INTO pgjobs_job (task_path, status, batch_id, finished_at)"
        " VALUES ('a.b', 'successful', 999999999, now())"
    )
    with own.cursor() as cursor:
        pruned = jobs.prune_jobs(cursor, jobs.OldJobs("successful", -1.0), max_jobs=10)
    # That of a batch that is gone.
    assert pruned == 1
    assert count_jobs() == 2


# The pace of the pump


def settling() -> tuple[Settling, list[str]]:
    queues: list[str] = []
    return Settling("test:1", queues.extend), queues


def planned(duty: Settling, *ended: Any) -> list[int]:
    """Return the batches that a turn would settle."""
    turn = Turn(1)
    duty.plan(turn, ended, mock.Mock())
    return [int(text) for part in turn.parts for text in _ids_sent(part)]


def _ids_sent(part: Any) -> list[str]:
    [send] = part.sends
    return [str(batch_id) for batch_id in send.keywords["ids"]]


def answer(duty: Settling, ids: list[int], *rows: Settled) -> None:
    duty._note(ids, list(rows))


def test_a_batch_with_many_jobs_is_not_counted_in_each_turn() -> None:
    duty, queues = settling()
    ended = make_attempt_of(1, batch_id=7)
    assert planned(duty, ended) == [7]
    assert duty.is_under_way
    answer(
        duty,
        [7],
        Settled(7, False, False, 1_000_000, None),
        Settled(None, False, False, None, "mail"),
    )
    assert queues == ["mail"]
    assert not duty.is_under_way
    assert planned(duty, ended) == []
    assert duty.is_under_way
    assert 0 < duty.due_at - time.monotonic() <= 0.25


def test_one_that_somebody_holds_is_tried_again_and_then_left() -> None:
    duty, _ = settling()
    duty.ask([7])
    assert duty.due_at == 0.0
    assert planned(duty) == [7]
    for _ in range(7):
        answer(duty, [7], Settled(7, True, False, None, None))
        assert duty.is_under_way
    answer(duty, [7], Settled(7, True, False, None, None))
    assert not duty.is_under_way


def test_a_batch_is_known_until_the_queues_are_told_in_which_it_made_jobs() -> None:
    """A drain that sees neither of them would end."""
    duty = Settling("test:1", lambda queues: seen.append(duty.is_under_way))
    seen: list[bool] = []
    duty.ask([7])
    answer(duty, planned(duty), Settled(7, False, False, 0, "mail"))
    assert seen == [True]
    assert not duty.is_under_way


class OnTheWay:
    """A connection that notes whether the count is known to be under way, and then fails."""

    def __init__(self, duty: Settling, error: type[psycopg.Error]) -> None:
        self.duty, self.error = duty, error
        self.was_under_way: list[bool] = []

    def round_trip(self, sends: Any) -> Any:
        self.was_under_way.append(self.duty.is_under_way)
        raise self.error("no answer")


@pytest.mark.parametrize(
    ("error", "is_over"),
    [(psycopg.OperationalError, True), (QueryCanceled, False)],
    ids=["lost", "locked"],
)
def test_a_batch_that_is_counted_alone_is_not_forgotten_without_an_answer(
    error: type[psycopg.Error], is_over: bool
) -> None:
    """Else a drain might end before what follows, which waits for the next look."""
    duty, _ = settling()
    duty.ask([7, 8])
    connection: Any = OnTheWay(duty, error)
    turn = Turn(1)
    duty.plan(turn, [], connection)
    with pytest.raises(psycopg.OperationalError) if is_over else nullcontext():
        turn.parts[0].on_refused(psycopg.errors.CheckViolation("refused"))
    assert all(connection.was_under_way)
    assert duty.is_under_way
    assert duty.due_at < math.inf
    if is_over:
        assert planned(duty) == [7, 8]


def test_what_failed_before_does_not_cancel_a_batch_again(own: OwnConnection) -> None:
    """Somebody took the cancel back and is about to requeue it."""
    with workflow("test", seal=False, on_failed_job="cancel workflow") as flow:
        flow.add_many(tasks.add, [(1, 1)] * 2)
    Batch.objects.update(failed=1)
    finish(own, flow)
    settle(own, flow.pk)
    flow.refresh_from_db()
    assert (flow.successful, flow.cancel_requested_at) == (1, None)
    finish(own, flow, Kind.FAIL)
    settle(own, flow.pk)
    flow.refresh_from_db()
    assert flow.cancel_requested_at is not None


def test_a_batch_without_parent_is_counted_and_deleted_whatever_root_it_names(
    own: OwnConnection,
) -> None:
    """Plain SQL may have written it."""
    odd = make_batch(root_id=make_batch(), jobs=1, successful=1)
    execute("INSERT INTO pgjobs_batch_change (batch_id, jobs) VALUES (%s, 0)", odd)
    settle(own, odd)
    assert Batch.objects.get(pk=odd).tree_completed_at
    with transaction.atomic(), connection.cursor() as cursor:
        assert batch_care.begin_deletion(cursor, [odd]) == [odd]
