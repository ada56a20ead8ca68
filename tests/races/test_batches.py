"""Who adds to a batch, seals it, cancels or finishes a job of it, at the same time as others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.db import connection, transaction

from django_pgjobs import BatchSealed, DuplicateJob, DuplicateWorkflow, cancel, workflow
from django_pgjobs.models import Batch, Job
from django_pgjobs.queries import batches
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.claiming.outcome_statements import writings
from django_pgjobs.worker.running.outcome import Kind, Outcome
from tests import tasks
from tests.factories import count_jobs, get_job, make_running_job
from tests.helpers import connect
from tests.races.support import DjangoThread, open_transaction, wait_until_role_is_blocked
from tests.worker.support import make_attempt_of
from tests.worker.test_batches import changes, open_batch, settle

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.race]

InThread = Callable[..., DjangoThread]
OpenOwn = Callable[[], OwnConnection]


def run(batch: Batch) -> Any:
    """Return a job of a batch that runs; it is counted."""
    running = make_running_job(batch_id=batch.pk)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgjobs_batch SET jobs = jobs + 1 WHERE id = %s", [batch.pk])
    return running


def turn(own: OwnConnection, *running: Any, settles: bool = True) -> list[Any]:
    """Finish jobs in one turn, as the pump does, in the transaction that is open or its own."""
    batch = [
        (make_attempt_of(job.id, claim=job.claim, batch_id=job.batch_id), Outcome(Kind.DONE))
        for job in running
    ]
    sends = [writing.send for writing in writings(batch)]
    if settles:
        ids = [job.batch_id for job in running]
        sends.append(partial(batches.send_settlement, ids=ids))
    return own.round_trip(sends)[-1]


def is_complete(batch: Batch) -> bool:
    batch.refresh_from_db()
    return batch.completed_at is not None


def test_the_last_two_finish_at_the_same_time(open_own: OpenOwn) -> None:
    """W2, W4: the one that commits last counts, or the next look does; the callback comes once."""
    flow = open_batch()
    flow.on_complete(tasks.add.s(1))
    jobs = [run(flow), run(flow)]
    flow.seal()
    first, second = open_own(), open_own()
    with open_transaction(first) as end_first, open_transaction(second) as end_second:
        assert not [row for row in turn(first, jobs[0]) if row[1]]
        # The other has the batch: nobody waits.
        assert [row[:2] for row in turn(second, jobs[1])] == [(flow.pk, True)]
        end_first("COMMIT")
        assert not is_complete(flow)
        settle(second, flow.pk)
        end_second("COMMIT")
    assert is_complete(flow)
    assert Job.objects.filter(task_path="tests.tasks.add", batch_id=None).count() == 1
    assert flow.completions == 1


def test_what_the_last_one_could_not_count_the_next_look_does(open_own: OpenOwn) -> None:
    flow = open_batch()
    jobs = [run(flow), run(flow)]
    flow.seal()
    first, second = open_own(), open_own()
    with open_transaction(first) as end_first, open_transaction(second) as end_second:
        turn(first, jobs[0])
        turn(second, jobs[1])
        end_second("COMMIT")
        end_first("COMMIT")
    assert not is_complete(flow)
    [rows] = first.round_trip([batches.send_changed])
    assert rows == [(flow.pk,)]
    settle(first, *rows[0])
    assert is_complete(flow)


def test_two_batches_crosswise(open_own: OpenOwn) -> None:
    """W6: two turns that finish jobs of the same two batches, in different orders."""
    flows = [open_batch(), open_batch()]
    jobs = [[run(flow) for flow in flows], [run(flow) for flow in flows]]
    for flow in flows:
        flow.seal()
    first, second = open_own(), open_own()
    with open_transaction(first) as end_first, open_transaction(second) as end_second:
        turn(first, jobs[0][0])
        turn(second, jobs[1][1])
        turn(first, jobs[0][1])
        turn(second, jobs[1][0])
        end_first("COMMIT")
        end_second("COMMIT")
    settle(first, *(flow.pk for flow in flows))
    assert all(is_complete(flow) for flow in flows)


def test_a_seal_that_comes_while_a_batch_is_counted_waits_for_who_adds(
    own: OwnConnection, in_thread: InThread
) -> None:
    """W7: the wish is noted behind the look that says which batches are to be sealed."""
    flow = open_batch(1)
    added, goes_on = threading.Event(), threading.Event()

    def add() -> None:
        with transaction.atomic():
            Batch.objects.get(pk=flow.pk).add(tasks.add.s(2, 2))
            added.set()
            assert goes_on.wait(10)

    adder = in_thread(add)
    assert added.wait(10)
    with open_transaction(own) as end:
        counting = own.open()
        taken = counting.execute(
            "SELECT locked, unsealed FROM public.pgjobs_take_batches_v1(%s, '{}')", [[flow.pk]]
        ).fetchone()
        assert taken == ([flow.pk], [flow.pk])
        flow.seal()
        counting.execute("SELECT public.pgjobs_fold_changes_v1(%s, %s)", taken)
        end("COMMIT")
    flow.refresh_from_db()
    assert (flow.jobs, flow.sealed_at) == (1, None)
    goes_on.set()
    adder.result()
    settle(own, flow.pk)
    flow.refresh_from_db()
    assert flow.jobs == 2 and flow.sealed_at


def test_nothing_is_sealed_while_somebody_adds(in_thread: InThread) -> None:
    """W7."""
    flow = open_batch(1)
    other = Batch.objects.get(pk=flow.pk)
    added, sealed = threading.Event(), threading.Event()

    def add() -> None:
        with transaction.atomic():
            other.add(tasks.add.s(2, 2))
            added.set()
            assert sealed.wait(10)

    adder = in_thread(add)
    assert added.wait(10)
    flow.seal()
    assert flow.sealed_at is None
    assert changes() > 0
    [*_, uncounted] = flow.explain().reasons
    assert uncounted.code == "uncounted"
    assert f"in session {adder.backend_pid} (" in uncounted.text
    # It is said, though: nobody who comes later adds.
    with pytest.raises(BatchSealed):
        flow.add(tasks.add.s(3, 3))
    sealed.set()
    adder.result()
    with connection.cursor() as cursor:
        batches.settle(cursor, [flow.pk])
    flow.refresh_from_db()
    assert flow.sealed_at is not None
    assert flow.jobs == 2


def test_who_adds_beside_a_seal_that_is_not_committed_is_not_held_up(in_thread: InThread) -> None:
    """Nor two who seal one batch and add to the other."""
    flow = open_batch(1)
    with transaction.atomic():
        flow.seal()
        adder = in_thread(lambda: Batch.objects.get(pk=flow.pk).add(tasks.add.s(2, 2)))
        assert len(adder.result()) == 1
    with pytest.raises(BatchSealed):
        flow.add(tasks.add.s(3, 3))
    with connection.cursor() as cursor:
        batches.settle(cursor, [flow.pk])
    flow.refresh_from_db()
    assert flow.sealed_at and flow.jobs == 2


def test_nothing_is_sealed_while_plain_sql_adds(own: OwnConnection) -> None:
    """W7."""
    flow = open_batch(1)
    with connect(autocommit=False) as other:
        other.execute(
            "INSERT INTO pgjobs_job (task_path, args, batch_id) VALUES (%s, '[1, 1]', %s)",
            [tasks.add.module_path, flow.pk],
        )
        flow.seal()
        assert flow.sealed_at is None
        other.commit()
    settle(own, flow.pk)
    flow.refresh_from_db()
    assert flow.sealed_at and flow.jobs == 2


def test_who_adds_while_a_seal_is_counted_is_refused_at_once(
    own: OwnConnection, in_thread: InThread
) -> None:
    flow = open_batch(1)
    with transaction.atomic():
        flow.seal()
    with open_transaction(own):
        own.round_trip([partial(batches.send_settlement, ids=[flow.pk])])
        adder = in_thread(lambda: Batch.objects.get(pk=flow.pk).add(tasks.add.s(2, 2)))
        with pytest.raises(BatchSealed):
            adder.result()
    assert count_jobs(batch_id=flow.pk) == 1


def test_two_that_add_and_then_seal_do_not_stop_each_other(in_thread: InThread) -> None:
    """Correction 7: each has the lock that the other's seal would want."""
    flow = open_batch()
    barrier = threading.Barrier(2)

    def add_and_seal() -> None:
        mine = Batch.objects.get(pk=flow.pk)
        with transaction.atomic():
            mine.add(tasks.add.s(1, 1))
            barrier.wait(10)
            mine.seal()
            barrier.wait(10)

    threads = [in_thread(add_and_seal), in_thread(add_and_seal)]
    for thread in threads:
        thread.result()
    with connection.cursor() as cursor:
        batches.settle(cursor, [flow.pk])
    flow.refresh_from_db()
    assert flow.sealed_at and flow.jobs == 2


def test_a_cancel_and_then_a_seal_beside_a_turn(own: OwnConnection, in_thread: InThread) -> None:
    """W6: the turn waits for the job's row, and the seal for nothing that the turn has."""
    flow = open_batch()
    job = run(flow)
    cancelled, goes_on = threading.Event(), threading.Event()

    def cancel_and_seal() -> None:
        with transaction.atomic():
            cancel(job.id)
            cancelled.set()
            assert goes_on.wait(10)
            Batch.objects.get(pk=flow.pk).seal()

    user = in_thread(cancel_and_seal)
    assert cancelled.wait(10)
    worker = in_thread(lambda: turn(own, job))
    wait_until_role_is_blocked("test")
    goes_on.set()
    user.result()
    worker.result()
    settle(own, flow.pk)
    assert is_complete(flow)
    assert get_job(job.id).status == "successful"


def test_a_turn_does_not_wait_for_an_open_seal(own: OwnConnection) -> None:
    """W5."""
    flow = open_batch()
    job = run(flow)
    with transaction.atomic():
        flow.seal()
        assert [row[:2] for row in turn(own, job)] == [(flow.pk, False)]
    assert get_job(job.id).status == "successful"
    settle(own, flow.pk)
    assert is_complete(flow)


def test_a_turn_does_not_wait_for_who_adds(own: OwnConnection) -> None:
    """W5."""
    flow = open_batch()
    job = run(flow)
    with transaction.atomic():
        flow.add(tasks.add.s(1, 1))
        assert [row[:2] for row in turn(own, job)] == [(flow.pk, False)]
    settle(own, flow.pk)
    assert not is_complete(flow)
    assert flow.successful == 1


def test_a_job_that_adds_is_not_finished_before(own: OwnConnection, in_thread: InThread) -> None:
    """The batch is sealed; its own running job adds, in a transaction that is open."""
    flow = open_batch()
    job = run(flow)
    flow.seal()
    mine = Batch.objects.get(pk=flow.pk)
    mine.asking = batches.Asking(job.id, job.claim)
    with transaction.atomic():
        mine.add(tasks.add.s(1, 1))
        worker = in_thread(lambda: turn(own, job))
        wait_until_role_is_blocked("test")
    worker.result()
    assert not is_complete(flow)
    assert (flow.jobs, flow.successful) == (2, 1)
    with pytest.raises(BatchSealed):
        mine.add(tasks.add.s(1, 1))


def test_a_batch_is_broken_only_for_itself(own: OwnConnection) -> None:
    flow = open_batch()
    own.round_trip([partial(batches.send_broken, batch_id=flow.pk, reason="odd")])
    assert settle(own, flow.pk) == []


def test_two_workflows_with_one_key_at_the_same_time(in_thread: InThread) -> None:
    """The second waits for the first, and is refused."""
    with workflow("race", dedupe_key="key") as first:
        second = in_thread(open_twin)
        second.wait_until_executed("pgjobs_batch")
    with pytest.raises(DuplicateWorkflow) as caught:
        second.result()
    assert caught.value.batch_id == first.pk


def open_twin() -> None:
    """Open a workflow with the key of the test above."""
    with workflow("race", dedupe_key="key"):
        pass


def test_two_that_add_a_job_with_one_key_at_the_same_time(in_thread: InThread) -> None:
    """S2.22: the second waits for the first, and gets its job, or is refused."""
    flow = open_batch()

    def add(on_conflict: Any) -> list[str]:
        mine = Batch.objects.get(pk=flow.pk)
        calls = tasks.add.s(1, 1), tasks.add.s(2, 1)
        return mine.add(*calls, dedupe_key="{a}", on_conflict=on_conflict)

    with transaction.atomic():
        [first] = flow.add(tasks.add.s(2, 2), dedupe_key="{a}")
        meeting = in_thread(lambda: add("return"))
        meeting.wait_until_executed("pgjobs_batch_key")
    assert meeting.result()[1] == first
    with pytest.raises(DuplicateJob):
        add("raise")
    flow.seal()
    assert flow.counts().jobs == count_jobs(batch_id=flow.pk) == 2


def test_who_opens_below_waits_for_nobody_who_seals_the_root(in_thread: InThread) -> None:
    """A running job that opens parts is not to wait for a request that seals the workflow."""
    flow = open_batch()
    part = flow.batch("part")
    with transaction.atomic():
        flow.seal()
        inner = in_thread(lambda: Batch.objects.get(pk=part.pk).batch("inner"))
        assert inner.result().parent_id == part.pk
