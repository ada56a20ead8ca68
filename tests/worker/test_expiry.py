"""Jobs that expire: begun in time, or ended as cancelled, by whoever finds them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db.models import Value
from psycopg import sql

from django_pgjobs import DuplicateJob, requeue, task
from django_pgjobs.compat import InvalidTask
from django_pgjobs.models import Job
from django_pgjobs.queries import expiry
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.testing import run_jobs
from django_pgjobs.worker.running.outcome import Kind
from tests import tasks
from tests.factories import get_job, make_job
from tests.worker.support import Bench, ThreadedWorker

pytestmark = pytest.mark.django_db(transaction=True)

Drain = Callable[..., ThreadedWorker]
PAST = sql.SQL("now() - interval '1 minute'")
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
ran: list[str] = []


@task(expires=MINUTE, max_attempts=3, backoff=[600])
def note(name: str, fails: bool = False) -> None:
    """Note that the job ran, and perhaps fail."""
    ran.append(name)
    if fails:
        raise ValueError(name)


def merge_by_hand(waiting: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Merge by a function of the project's own."""
    return waiting | new


@task
def lasting(name: str) -> None:
    """Never expire, unless it is said."""


@task
def tell(job_id: int, error: str) -> None:
    """Be what is enqueued when a job fails."""


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


def seconds_to_expiry(job: Any, since: str = "enqueued_at") -> float:
    """Return how long a job may wait."""
    row = get_job(job if isinstance(job, int) else job.id)
    return float((row.expires_at - getattr(row, since)).total_seconds())


def sweep(own: OwnConnection) -> list[int]:
    """End what has expired, as the pruner does."""
    with own.cursor() as cursor:
        return [job.id for job in expiry.expire_jobs(cursor, max_jobs=9)]


def test_a_length_of_time_counts_from_the_enqueue() -> None:
    assert seconds_to_expiry(note.enqueue("a")) == 60
    assert seconds_to_expiry(note.using(expires=HOUR).enqueue("a")) == 3600


def test_a_length_of_time_counts_from_the_earliest_start() -> None:
    later = datetime.now(UTC) + HOUR
    assert seconds_to_expiry(note.using(run_after=HOUR).enqueue("a"), "run_after") == 60
    assert seconds_to_expiry(note.using(run_after=later).enqueue("a"), "run_after") == 60
    past = note.using(run_after=later - 2 * HOUR).enqueue("a")
    assert seconds_to_expiry(past) == pytest.approx(60, abs=30)


def test_a_moment_is_stored_as_it_is() -> None:
    moment = datetime(2100, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert get_job(note.using(expires=moment).enqueue("a").id).expires_at == moment


def test_all_ways_to_enqueue_say_when_a_job_expires() -> None:
    unique = note.using(unique_key="{name}")
    ways = [
        note.enqueue_many([("a",)]),
        unique.enqueue_many([("b",)]),
        [unique.using(unique_until="claimed").enqueue("c").id],
        [unique.using(on_conflict="replace").enqueue("d").id],
    ]
    note.enqueue_from(Job.objects.all()[:1], name=Value("e"))
    unique.enqueue_from(Job.objects.all()[:1], name=Value("f"))
    newest = Job.objects.order_by("-pk").values_list("pk", flat=True)[:2]
    found = [*(int(job_id) for way in ways for job_id in way), *newest]
    assert [seconds_to_expiry(job_id) for job_id in found] == [60] * 6


def test_an_enqueue_that_is_merged_moves_the_expiry() -> None:
    merged = note.using(unique_key="one", on_conflict="replace")
    merged.enqueue("a")
    job = merged.using(run_after=HOUR).enqueue("a")
    assert seconds_to_expiry(job, "run_after") == 60


UNIQUE = [{"on_conflict": "return"}, {"unique_until": "claimed"}]
CHANGING = [{"on_conflict": "replace"}, {"on_conflict": "merge"}, {"merge": merge_by_hand}]
WAYS = [*UNIQUE, *CHANGING[:2], {"on_conflict": "merge", **CHANGING[2]}]


@pytest.mark.parametrize("options", WAYS)
def test_an_expired_job_that_nobody_ended_does_not_swallow_an_enqueue(
    drain: Drain, options: dict[str, Any]
) -> None:
    unique = note.using(unique_key="{name}", **options)
    job = unique.enqueue("a")
    Job.objects.update(expires_at=datetime(2000, 1, 1, tzinfo=UTC))
    assert unique.enqueue("a").id == job.id
    assert 0 < (get_job(job.id).expires_at - datetime.now(UTC)).total_seconds() <= 60
    drain()
    assert get_job(job.id).status == "successful"


@pytest.mark.parametrize("options", WAYS)
def test_what_an_enqueue_meets_expires_at_the_later_of_both(options: dict[str, Any]) -> None:
    never = lasting.using(unique_key="{name}", **options)
    early, late = never.using(expires=MINUTE), never.using(expires=HOUR)
    job = early.enqueue("a")
    for unique in (late, early):
        unique.enqueue("a")
        assert seconds_to_expiry(job) == pytest.approx(3600, abs=30)
    for unique in (never, early, late):
        unique.enqueue_many([("a",)])
        assert get_job(job.id).expires_at is None
    assert Job.objects.count() == 1


@pytest.mark.parametrize("options", WAYS[:4])
def test_what_enqueue_from_meets_expires_at_the_later_of_both(options: dict[str, Any]) -> None:
    unique = note.using(unique_key="{name}", **options)
    job = unique.enqueue("a")
    unique.using(expires=HOUR).enqueue_from(Job.objects.all(), name=Value("a"))
    assert seconds_to_expiry(job) == pytest.approx(3600, abs=30)


def test_an_enqueue_that_is_refused_moves_no_expiry() -> None:
    unique = note.using(unique_key="{name}", on_conflict="raise")
    job = unique.enqueue("a")
    with pytest.raises(DuplicateJob):
        unique.using(expires=HOUR).enqueue("a")
    assert seconds_to_expiry(job) == 60


def test_the_follow_up_of_the_first_enqueue_stays() -> None:
    unique = note.using(unique_key="{name}", on_conflict="replace")
    job = unique.using(on_failure=tell).enqueue("a")
    unique.enqueue("a")
    assert tell.module_path in get_job(job.id).on_failure


@pytest.mark.parametrize("given", [timedelta(), -MINUTE, 60, "soon"])
def test_what_is_no_time_is_refused(given: Any) -> None:
    with pytest.raises(InvalidTask, match="expected expires to be"):
        note.using(expires=given)


def test_a_job_that_could_never_start_is_refused() -> None:
    moment = datetime.now(UTC)
    with pytest.raises(ValueError, match="could never start"):
        note.using(expires=moment, run_after=moment + HOUR).enqueue("a")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (datetime(2100, 1, 1), "with a time zone"),  # noqa: DTZ001
        (timedelta(days=366_001), "within 1000 years"),
        (datetime.max.replace(tzinfo=UTC), "from 0001-01-02"),
    ],
)
def test_a_moment_that_cannot_be_is_refused_where_it_is_declared(
    given: datetime | timedelta, message: str
) -> None:
    with pytest.raises(InvalidTask, match=f"note expected expires {message}"):
        note.using(expires=given)

    assert Job.objects.count() == 0


def test_the_last_times_there_are_break_no_transaction() -> None:
    far = datetime(9999, 12, 29, tzinfo=UTC)
    note.using(run_after=far, expires=timedelta(days=300_000)).enqueue("a")
    note.using(run_after=timedelta(days=366_000), expires=timedelta(days=366_000)).enqueue("a")
    assert Job.objects.count() == 2


def test_a_worker_ends_an_expired_job_that_it_claims(drain: Drain) -> None:
    """No attempt is counted, and it is not begun."""
    job_id = make_job(note.module_path, args=["late"], expires_at=PAST)
    in_time = note.enqueue("in time")
    drain()
    row = get_job(job_id)
    assert (row.status, row.note, row.attempts) == ("cancelled", "expired: not started in time", 0)
    assert (row.worker_ids, row.started_at, row.last_attempted_at) == ([], None, None)
    assert row.errors == [] and row.finished_at is not None
    assert get_job(in_time.id).status == "successful"
    assert ran == ["in time"]


def test_a_job_that_expires_between_claim_and_begin_is_not_begun(bench: Bench) -> None:
    """It may wait for a slot."""
    job = note.enqueue("late")
    attempt = bench.claim()
    assert 0 < attempt.expires - attempt.row.asked_at <= 60
    attempt.expires = attempt.claimed_at
    assert bench.run(attempt).kind is Kind.EXPIRE
    assert get_job(job.id).status == "cancelled"
    assert ran == []


def test_of_a_job_that_ran_before_the_earlier_attempts_stay(bench: Bench) -> None:
    job_id = make_job(
        note.module_path, args=["a"], expires_at=PAST, attempts=1, worker_ids=["w"],
        started_at=PAST, errors=[{"message": "m"}],
    )  # fmt: skip
    assert bench.run().kind is Kind.EXPIRE
    row = get_job(job_id)
    assert (row.status, row.attempts, row.worker_ids) == ("cancelled", 1, ["w"])
    assert row.started_at is not None and len(row.errors) == 1


def test_a_retry_that_would_come_too_late_is_a_failure_at_once(bench: Bench) -> None:
    """With its exception, and not ten minutes later as cancelled."""
    job = note.enqueue("a", fails=True)
    assert bench.run().kind is Kind.FAIL
    row = get_job(job.id)
    assert (row.status, row.attempts, row.errors[0]["message"]) == ("failed", 1, "a")
    later = note.using(expires=HOUR).enqueue("b", fails=True)
    assert bench.run().kind is Kind.RETRY
    assert get_job(later.id).status == "ready"


@pytest.mark.parametrize(
    "columns",
    [
        {"queue_name": "nobody serves it"},
        {"concurrency_key": "full"},
        {"due_at": sql.SQL("now() + interval '1 hour'")},
        {"hold": "dependencies", "waits_for": 1},
        {"rate_limit_keys": "no such limit"},
    ],
)
def test_what_nobody_can_claim_is_ended_too(own: OwnConnection, columns: dict[str, Any]) -> None:
    late = make_job(expires_at=PAST, **columns)
    early = make_job(expires_at=sql.SQL("now() + interval '1 minute'"), **columns)
    assert sweep(own) == [late]
    row = get_job(late)
    assert (row.status, row.note, row.hold, row.claim) == (
        "cancelled", "expired: not started in time", None, 1,
    )  # fmt: skip
    assert row.cancel_requested_at is None
    assert get_job(early).status == "ready"
    assert sweep(own) == []


def test_a_job_that_runs_does_not_expire(own: OwnConnection, bench: Bench) -> None:
    note.enqueue("a")
    attempt = bench.claim()
    Job.objects.update(expires_at=datetime(2000, 1, 1, tzinfo=UTC))
    assert sweep(own) == []
    assert bench.run(attempt).kind is Kind.DONE


def test_who_waits_for_an_expired_job_is_resolved(own: OwnConnection) -> None:
    first = note.enqueue("a")
    second = note.using(after=[first]).enqueue("b")
    third = note.using(after=[first], after_failure="run").enqueue("c")
    Job.objects.filter(pk=first.id).update(expires_at=datetime(2000, 1, 1, tzinfo=UTC))
    assert sweep(own) == [int(first.id)]
    assert get_job(second.id).status == "cancelled"
    assert (get_job(third.id).status, get_job(third.id).hold) == ("ready", None)


def test_a_worker_sweeps_from_time_to_time(
    start_thread: Drain, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django_pgjobs.worker.process import pruner
    from tests.helpers import wait_until

    monkeypatch.setattr(pruner.random, "uniform", lambda low, high: 0.05)
    late = make_job(expires_at=PAST, queue_name="other")
    start_thread(queues=("default",))
    wait_until(lambda: get_job(late).status == "cancelled")


@pytest.mark.slow
def test_a_requeued_job_does_not_expire_by_a_time_that_is_over(drain: Drain) -> None:
    late = make_job(note.module_path, args=["a"], expires_at=PAST)
    drain()
    assert requeue(late)
    assert get_job(late).expires_at is None
    drain()
    assert get_job(late).status == "successful"


def test_an_explanation_says_when_a_job_expires() -> None:
    late = make_job(expires_at=PAST, queue_name="other")
    job = note.enqueue("a")
    reasons = Job.objects.get(pk=late).explain().reasons
    assert reasons[0].code == "expired"
    assert "no_worker" in [reason.code for reason in reasons]
    explanation = Job.objects.get(pk=job.id).explain()
    assert explanation.is_ready_to_run
    assert [reason.code for reason in explanation.reasons][-1] == "expires"


def test_run_jobs_ends_expired_ones() -> None:
    late = make_job(note.module_path, args=["a"], expires_at=PAST)
    run_jobs()
    assert get_job(late).status == "cancelled"
    assert ran == []


def test_without_time_zones_it_counts_from_a_naive_start(settings: Any) -> None:
    settings.USE_TZ = False
    start = datetime(2999, 1, 1, 12)  # noqa: DTZ001
    result = tasks.add.using(run_after=start, expires=timedelta(hours=1)).enqueue(1, 2)
    assert get_job(result.id).expires_at - get_job(result.id).run_after == timedelta(hours=1)
