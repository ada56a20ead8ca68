"""The pruner: what is older than its retention goes, a page at a time; nothing else does."""

from __future__ import annotations

import math
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from django_pgjobs.models import Batch, Job, Occurrence, Worker
from django_pgjobs.queries import jobs
from django_pgjobs.queries.batch_care import TreeRetention
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.signals import workflow_expiring
from django_pgjobs.worker.process import pruner as pruner_module
from django_pgjobs.worker.process.pruner import Pruner, retentions_of
from django_pgjobs.worker.process.vitals import marks_of
from django_pgjobs.worker.stillness import WAITS
from django_pgjobs.worker.upkeep.look import VAIN_LOOKS, Look
from tests.factories import (
    ago,
    count_jobs,
    get_job,
    get_worker,
    make_batch,
    make_job,
    make_jobs,
    make_worker,
)
from tests.helpers import execute, wait_until
from tests.test_dependencies import enqueue_after
from tests.worker.support import NEVER, ThreadedWorker, make_options
from tests.worker.test_batch_care import care, open_old
from tests.worker.test_dependency_sweep import sweep

pytestmark = pytest.mark.django_db(transaction=True)

Prune = Callable[..., Pruner]


@pytest.fixture
def start(own: OwnConnection) -> Iterator[Prune]:
    """Start a pruner that prunes at once: `start(is_leader=True, **options)`."""
    started: list[Pruner] = []
    crashes: list[str] = []

    def start_one(*, is_leader: Callable[[], bool] = lambda: True, **options: Any) -> Pruner:
        made = Pruner(make_options(**options), own, is_leader=is_leader, on_crash=crashes.append)
        started.append(made)
        made.start()
        made.wake()
        return made

    yield start_one
    for made in started:
        made.stop()
        assert made.join(15)
    assert not crashes


def test_finished_jobs_go_when_the_retention_of_their_status_is_over(start: Prune) -> None:
    """S2.9, S3.7."""
    kept = [
        make_job(status="successful", finished_at=ago(50)),
        make_job(status="cancelled", finished_at=ago(50)),
        make_job(status="failed", finished_at=ago(500)),
        make_job(enqueued_at=ago(10_000)),
        make_job(status="running", enqueued_at=ago(10_000), worker_id=1),
    ]
    for status, age in (("successful", 150), ("cancelled", 150), ("failed", 1500)):
        make_job(status=status, finished_at=ago(age))
    start(retention=100, failed_retention=1000)
    wait_until(lambda: count_jobs() == len(kept))
    assert all(get_job(job_id) for job_id in kept)


def test_a_receiver_may_take_its_time(start: Prune, own: OwnConnection) -> None:
    """The pruner that waits for code of the project does not stand still."""
    entered, free = threading.Event(), threading.Event()

    def keep_results(**_: Any) -> None:
        entered.set()
        free.wait(30)

    workflow_expiring.connect(keep_results)
    try:
        make_batch(completed_at=ago(3600), tree_completed_at=ago(3600))
        made = start(retention=60)
        mark = marks_of([made], {"pruner": own})["the pruner"]
        assert entered.wait(30)
        assert mark() == WAITS
        free.set()
        wait_until(lambda: not Batch.objects.exists())
    finally:
        free.set()
        workflow_expiring.disconnect(keep_results)


def test_a_child_of_a_receiver_prunes_nothing(own: OwnConnection) -> None:
    """It has a copy of the worker's connections."""
    open_old()
    parent, children = os.getpid(), []

    def fork(**_: Any) -> None:
        if child := os.fork():
            children.append(child)

    workflow_expiring.connect(fork)
    try:
        care(own, TreeRetention(0.0, 0.0, 0.0)).tell()
        if os.getpid() != parent:
            os._exit(9)
    finally:
        workflow_expiring.disconnect(fork)
    [child] = children
    assert os.waitpid(child, 0) == (child, 0)
    assert Batch.objects.filter(told_at=None).count() == 1  # the one below it


def test_without_a_retention_jobs_stay(start: Prune) -> None:
    make_job(status="successful", finished_at=ago(10**9))
    make_job(status="failed", finished_at=ago(10))
    start(retention=None, failed_retention=0.0)
    wait_until(lambda: count_jobs(status="failed") == 0)
    assert count_jobs(status="successful") == 1


def test_more_than_a_page_goes_page_by_page(start: Prune, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruner_module, "PAGE", 10)
    monkeypatch.setattr(pruner_module, "PAGE_PAUSE_SECONDS", 0.0)
    make_jobs(35, status="successful", finished_at=ago(100))
    start(retention=1)
    wait_until(lambda: count_jobs() == 0)


def test_only_the_leader_prunes(start: Prune) -> None:
    make_job(status="successful", finished_at=ago(100))
    asked: list[bool] = []
    follower = start(is_leader=lambda: bool(asked.append(False)), retention=1)
    wait_until(lambda: asked)
    follower.wake()
    wait_until(lambda: len(asked) > 1)
    assert count_jobs() == 1


def test_rows_of_workers_that_ended_long_ago_go(start: Prune) -> None:
    long_ago, lately = make_worker(ended_at=ago(10**6)), make_worker(ended_at=ago(10))
    live = make_worker()
    make_job(status="successful", finished_at=ago(100))
    start(retention=1)
    wait_until(lambda: count_jobs() == 0)
    assert get_worker(lately)
    assert get_worker(live)
    with pytest.raises(AssertionError, match="no row"):
        get_worker(long_ago)


def test_a_pruner_outlives_an_outage(
    start: Prune, own: OwnConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker goes on."""
    broken: list[bool] = []
    open_connection = OwnConnection.open

    def fail_once(self: OwnConnection) -> Any:
        if self is own and not broken:
            broken.append(True)
            raise pruner_module.psycopg.OperationalError("down")
        return open_connection(self)

    monkeypatch.setattr(OwnConnection, "open", fail_once)
    make_job(status="successful", finished_at=ago(100))
    pruner = start(retention=1)
    wait_until(lambda: broken)
    wait_until(lambda: pruner.wake() or count_jobs() == 0)


def test_no_answer_is_due_while_the_pruner_pauses(
    start: Prune, own: OwnConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or many pages that are answered at once look like one that is not answered at all."""
    dues: list[float | None] = []
    wait = Pruner.wait

    def note(pruner: Pruner, seconds: float) -> None:
        dues.append(own.answer_due)
        wait(pruner, seconds)

    monkeypatch.setattr(pruner_module, "PAGE", 10)
    monkeypatch.setattr(Pruner, "wait", note)
    make_jobs(35, status="successful", finished_at=ago(100))
    start(retention=1)
    wait_until(lambda: count_jobs() == 0)
    assert len(dues) >= 4
    assert set(dues) == {None}


def test_states_of_rate_limits_are_due_until_they_have_been_pruned(
    start: Prune, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failover in the middle of it does not put it off for an hour."""
    calls: list[bool] = []

    def prune(cursor: Any, **options: Any) -> int:
        calls.append(True)
        if len(calls) == 1:
            raise pruner_module.psycopg.OperationalError("down")
        return 0

    monkeypatch.setattr(pruner_module.rate_limits, "prune_rate_states", prune)
    pruner = start(retention=1)
    wait_until(lambda: calls)
    wait_until(lambda: pruner.wake() or len(calls) == 2)
    for status in ("successful", "cancelled"):
        make_job(status=status, finished_at=ago(100))
    wait_until(lambda: pruner.wake() or count_jobs() == 0)
    assert len(calls) == 2


@pytest.mark.slow
def test_a_retention_of_seconds_is_over_after_seconds(start: Prune) -> None:
    """Not after the minute in which everything else is looked at once."""
    make_job(status="successful", finished_at=ago(100))
    start(retention=1.0, failed_retention=None)
    wait_until(lambda: count_jobs() == 0)
    make_job(status="successful", finished_at=ago(0))
    wait_until(lambda: count_jobs() == 0)


@pytest.mark.parametrize(
    ("retentions", "seconds"),
    [
        ((5.0, 60.0), 0.5),
        ((60.0, 5.0), 0.5),
        ((None, 300.0), 30.0),
        ((600.0, None), 60.0),
        ((7 * 86400.0, 30 * 86400.0), 60.0),
        ((None, None), 60.0),
        ((0.0, None), 0.1),
    ],
)
def test_jobs_are_pruned_within_a_tenth_of_the_shortest_retention_and_a_minute(
    retentions: tuple[float | None, float | None], seconds: float
) -> None:
    assert pruner_module.pause_between(retentions) == pytest.approx(seconds)


def test_everything_else_is_looked_at_once_a_minute_however_short_a_retention_is(
    start: Prune, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: Counter[str] = Counter()

    def count(module: Any, name: str) -> None:
        original = getattr(module, name)

        def counted(*given: Any, **options: Any) -> Any:
            counts[name] += 1
            return original(*given, **options)

        monkeypatch.setattr(module, name, counted)

    rest = ("sweep_dependencies", "prune_workers", "prune_rate_states")
    for module, name in (
        (pruner_module.jobs, "prune_jobs"),
        (pruner_module.dependencies, rest[0]),
        (pruner_module.workers, rest[1]),
        (pruner_module.rate_limits, rest[2]),
    ):
        count(module, name)
    start(retention=0.5, failed_retention=None)
    wait_until(lambda: counts["prune_jobs"] > 10)
    assert {name: counts[name] for name in rest} == dict.fromkeys(rest, 1)


def test_a_follower_prunes_once_when_it_is_asked(start: Prune) -> None:
    make_job(status="successful", finished_at=ago(100))
    follower = start(is_leader=lambda: False, retention=1)
    follower.ask()
    wait_until(lambda: follower.pruned_at < math.inf)
    assert count_jobs() == 0
    make_job(status="successful", finished_at=ago(100))
    follower.ask()
    follower.wake()
    assert count_jobs() == 1


def test_a_pass_that_is_asked_for_during_another_one_follows_at_once(
    start: Prune, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pause between two pages may have taken the wake-up."""
    started: list[Pruner] = []
    prune = pruner_module.workers.prune_workers

    def ask_meanwhile(cursor: Any, **given: Any) -> int:
        wait_until(lambda: started)
        started[0].ask()
        started[0].wait(0)
        return prune(cursor, **given)

    monkeypatch.setattr(pruner_module.workers, "prune_workers", ask_meanwhile)
    started.append(start())
    wait_until(lambda: started[0].pruned_at < math.inf)


@pytest.mark.parametrize(("failed_retention", "left"), [(1.0, 1), (None, 2)])
def test_occurrences_stay_as_long_as_any_job_does_and_a_day_at_least(
    own: OwnConnection, failed_retention: float | None, left: int
) -> None:
    for age in (timedelta(hours=2), timedelta(days=2)):
        instant = timezone.now() - age
        Occurrence.objects.create(schedule="hourly", scheduled_for=instant, outcome="missed")
        Occurrence.objects.filter(scheduled_for=instant).update(created_at=instant)
    for step in pruner_module.Pruning(own, retentions_of(1.0, failed_retention)).steps:
        step()
    assert Occurrence.objects.count() == left


def test_a_drain_prunes_before_it_ends(drain: Callable[..., ThreadedWorker]) -> None:
    """It may be the only worker that ever runs, for moments only."""
    old = make_worker(ended_at=ago(10**6))
    for status, age in (("successful", 150), ("cancelled", 150), ("failed", 1500)):
        make_job(status=status, finished_at=ago(age))
    kept = make_job()
    drain(retention=100, failed_retention=1000)
    assert [row["id"] for row in Job.objects.values("id")] == [kept]
    assert get_job(kept).status == "successful"
    assert not Worker.objects.filter(pk=old).exists()


@pytest.mark.slow
@pytest.mark.parametrize("vain", [0, VAIN_LOOKS - 1])
def test_what_the_pass_at_the_end_of_a_drain_lets_go_runs(
    drain: Callable[..., ThreadedWorker], monkeypatch: pytest.MonkeyPatch, vain: int
) -> None:
    """The answer to a look before the pass is read behind it here, perhaps the last in vain."""
    note, prune = Look._note, Pruner._prune
    passing: list[Pruner] = []
    answered = threading.Event()

    def note_late(look: Look, *answer: Any) -> None:
        if passing and len(look._vain) >= vain and not answered.is_set():
            answered.set()
            wait_until(lambda: passing[0].pruned_at < math.inf)
        note(look, *answer)

    def prune_late(pruner: Pruner, *, does_all: bool) -> None:
        if does_all:
            passing.append(pruner)
            assert answered.wait(10)
        prune(pruner, does_all=does_all)

    monkeypatch.setattr(Look, "_note", note_late)
    monkeypatch.setattr(Pruner, "_prune", prune_late)
    ended = make_job()
    waiting = enqueue_after(ended)
    execute("ALTER TABLE pgjobs_job_live DISABLE TRIGGER USER")
    try:
        execute("DELETE FROM pgjobs_job WHERE id = %s", ended)
    finally:
        execute("ALTER TABLE pgjobs_job_live ENABLE TRIGGER USER")
    drain(poll_interval=NEVER)
    assert get_job(waiting).status == "successful"


def test_a_failed_job_stays_until_those_who_wait_have_learned_of_it(own: OwnConnection) -> None:
    """A predecessor that is gone counts as a success; who is held by the failure knows already."""
    held, waiting, careless, alone = (make_job() for _ in range(4))
    ended = "status = 'failed', finished_at = now() - interval '1 h'"
    fail = f"UPDATE pgjobs_job SET {ended} WHERE id = %s"
    enqueue_after(held, after_failure="hold")
    execute(fail, held)
    sweep(own)
    enqueue_after(waiting)
    enqueue_after(careless, after_failure="run")
    for job_id in (waiting, careless, alone):
        execute(fail, job_id)
    with own.cursor() as cursor:
        assert jobs.prune_jobs(cursor, jobs.OldJobs("failed", 1.0), max_jobs=10) == 3
    assert get_job(waiting).status == "failed"
