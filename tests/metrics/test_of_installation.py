"""The address of the whole installation: who may read it, and what it says."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest
from django.db import DatabaseError
from django.test import Client
from django.utils import timezone

from django_pgjobs import pause
from django_pgjobs.checks import check_settings
from django_pgjobs.metrics import names, of_installation, views
from django_pgjobs.metrics.of_installation import describe_installation
from django_pgjobs.models import QueueSample, RateLimit, Statistic
from django_pgjobs.queries import numbers
from django_pgjobs.queries.system import RelationRow
from tests.factories import make_job, make_jobs, make_worker
from tests.helpers import connect, some_always, wait_until
from tests.metrics.parsing import read, value_of

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.metrics.urls")]

TOKEN = "a-token-of-the-tests"
PATH = "/pgjobs/metrics/"


@pytest.fixture
def token(settings: Any) -> Iterator[str]:
    """The token that is set; nothing is kept from before or for later."""
    settings.PGJOBS = {**settings.PGJOBS, "METRICS_TOKEN": TOKEN}
    views.installation.forget()
    yield TOKEN
    views.installation.forget()


def ask(client: Client, authorization: str | None = f"Bearer {TOKEN}", **given: Any) -> Any:
    """Return the answer."""
    headers = {} if authorization is None else {"Authorization": authorization}
    return client.get(PATH, headers=headers, **given)


# Who may read it


def test_without_a_token_in_the_settings_there_is_nothing(client: Client) -> None:
    assert ask(client).status_code == 404
    assert ask(client, "Bearer None").status_code == 404


@pytest.mark.parametrize(
    "given",
    [None, "", "Bearer", "Bearer ", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", "Bearer \xe9",
     f"Bearer {TOKEN.upper()}", f"Bearer {TOKEN} {TOKEN}"],
)  # fmt: skip
def test_who_does_not_know_the_token_is_refused(
    client: Client, token: str, given: str | None, django_assert_num_queries: Any
) -> None:
    with django_assert_num_queries(0):
        answer = ask(client, given)
    assert answer.status_code == 401
    assert answer["WWW-Authenticate"] == "Bearer"
    assert b"pgjobs_" not in answer.content


def test_who_knows_the_token_reads(client: Client, token: str) -> None:
    answer = ask(client)
    assert answer.status_code == 200
    assert answer["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "no-store" in answer["Cache-Control"]
    assert ask(client, f"bearer {TOKEN}").status_code == 200
    assert client.post(PATH, headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 405


def test_nobody_has_to_log_in(client: Client, token: str, settings: Any) -> None:
    login = pytest.importorskip("django.contrib.auth.middleware")
    assert login.LoginRequiredMiddleware
    settings.MIDDLEWARE = [
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.auth.middleware.LoginRequiredMiddleware",
    ]
    assert ask(client).status_code == 200


def test_a_token_that_cannot_be_is_not_shown(settings: Any) -> None:
    settings.PGJOBS = {"METRICS_TOKEN": "too-short"}
    [found] = check_settings()
    assert "METRICS_TOKEN" in found.msg
    assert "too-short" not in found.msg


# How often it is asked, and what if it cannot be


def test_many_callers_ask_once_in_ten_seconds(
    client: Client, token: str, django_assert_num_queries: Any
) -> None:
    first = ask(client).content
    make_job()
    with django_assert_num_queries(0):
        assert ask(client).content == first


def test_callers_at_the_same_time_wait_for_one_answer() -> None:
    asked: list[int] = []
    callers = [threading.Event() for _ in range(3)]

    def find() -> bytes:
        asked.append(1)
        for event in callers:
            assert event.wait(30)
        return b"found"

    fresh = views.Fresh(find)
    answers: list[bytes | None] = []

    def call(begun: threading.Event) -> None:
        begun.set()
        answers.append(fresh.get())

    threads = [threading.Thread(target=call, args=(event,)) for event in callers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (asked, answers) == ([1], [b"found"] * 3)


def test_what_is_old_is_given_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the database hangs, or no alert would see it."""
    monkeypatch.setattr(views, "FRESH_SECONDS", 0.0)
    asked, over = threading.Event(), threading.Event()

    def find() -> bytes:
        if asked.is_set():
            over.wait(30)
        return b"found"

    fresh = views.Fresh(find)
    assert fresh.get() == b"found"
    asked.set()
    asking = threading.Thread(target=fresh.get)
    asking.start()
    wait_until(fresh._asking.locked)
    assert fresh.get() == b"found"
    monkeypatch.setattr(views, "STALE_SECONDS", -1.0)
    assert fresh.get() is None
    over.set()
    asking.join(30)
    assert fresh.get() == b"found"


def test_a_database_that_does_not_answer_is_asked_again_later(
    client: Client, token: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> bytes:
        raise DatabaseError("password of the role")

    monkeypatch.setattr(views.installation, "_find", refuse)
    for _ in range(2):
        answer = ask(client)
        assert (answer.status_code, answer.content) == (503, b"see the log\n")
    assert caplog.text.count("the metrics of the installation cannot be read") == 1


# What it says


def test_an_empty_installation_says_so() -> None:
    metrics = read(describe_installation())
    assert value_of(metrics, "pgjobs_workers", state="live") == 0
    assert value_of(metrics, "pgjobs_table_bytes", table="pgjobs_job_live") is not None


def test_queues_say_what_waits_and_who_serves_them() -> None:
    make_worker(queues=["mail"])
    now = timezone.now()
    for _ in range(2):
        make_job(queue_name="mail", enqueued_at=now - timedelta(minutes=10))
    make_job(queue_name="mail", due_at=now + timedelta(hours=1), run_after=now + timedelta(hours=1))
    make_job(queue_name="other", hold="dependencies")
    pause(queue="other")
    metrics = read(describe_installation())

    def jobs(queue: str, state: str) -> float | None:
        return value_of(metrics, "pgjobs_queue_jobs", queue=queue, state=state)

    assert [jobs("mail", state) for state in ("ready", "scheduled", "blocked")] == [2, 1, 0]
    assert jobs("other", "blocked") == 1
    oldest = value_of(metrics, "pgjobs_queue_oldest_ready_seconds", queue="mail")
    assert oldest is not None and 599 < oldest < 700
    assert value_of(metrics, "pgjobs_queue_live_workers", queue="mail") == 1
    assert value_of(metrics, "pgjobs_queue_live_workers", queue="other") == 0
    assert value_of(metrics, "pgjobs_queue_paused", queue="other") == 1
    assert value_of(metrics, "pgjobs_queue_paused", queue="mail") == 0
    assert value_of(metrics, "pgjobs_workers", state="live") == 1


@pytest.mark.parametrize(
    ("few", "key", "sampled", "oldest"),
    some_always(product([10_000, 2], ["", "shop"], ["never", "before", "then"], [5, 0, -5])),
)
def test_how_long_the_oldest_waits_is_of_now_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch, few: int, key: str, sampled: str, oldest: int
) -> None:
    """All workers have ended in order, so nobody measures any more, or the oldest has run since."""
    monkeypatch.setattr(numbers, "FEW", few)
    keys = {"concurrency_key": key} if key else {}
    now = timezone.now()
    if sampled != "never":
        QueueSample.objects.create(
            measured_at=now - timedelta(minutes=30),
            ready=9 if sampled == "then" else 0,
            waiting_since=now - timedelta(hours=5),
        )
    make_jobs(5, queue_name="other", enqueued_at=now - timedelta(minutes=10))
    # A retry has the lowest id, and waits only since it may run again.
    make_job(queue_name="mail", priority=5, ready_at=now, **keys)
    for priority in (5, 0, -5):
        minutes = 20 if priority == oldest else 1
        enqueued_at = now - timedelta(minutes=minutes)
        make_job(queue_name="mail", priority=priority, enqueued_at=enqueued_at, **keys)
    metrics = read(describe_installation())
    for queue, minutes in (("mail", 20), ("other", 10)):
        seconds = value_of(metrics, "pgjobs_queue_oldest_ready_seconds", queue=queue)
        assert seconds == pytest.approx(60 * minutes, abs=30)


def test_workers_that_were_rescued_are_lost_no_more() -> None:
    make_worker("live:1", slots=3)
    make_worker("live:2", slots=4, quiet_requested_at=timezone.now())
    make_worker("gone:1", lease_seconds=-5)
    make_worker("gone:2", lease_seconds=-900, lost=True, ended_at=timezone.now())
    make_worker("ended:1", lease_seconds=-900, ended_at=timezone.now())
    metrics = read(describe_installation())
    found = [value_of(metrics, "pgjobs_workers", state=state) for state in ("live", "lost")]
    assert [*found, value_of(metrics, "pgjobs_slots")] == [2, 1, 7]


def enter(*minutes: int, **counts: int | list[int]) -> None:
    """Write statistics of a task in the minutes of these numbers."""
    for minute in minutes:
        Statistic.objects.create(
            begins_at=datetime.fromtimestamp(60 * minute, UTC),
            queue_name="mail",
            task_path="shop.send",
            **counts,
        )


@pytest.mark.parametrize("few", [10_000, 1])
def test_what_ended_lately_is_that_of_five_minutes_that_are_written(
    monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """However often they are written, and whatever of now is written or counted."""
    make_jobs(2, status="failed", queue_name="mail", finished_at=timezone.now())
    monkeypatch.setattr(numbers, "FEW", few)
    # Longer than a minute, so that it always matters.
    monkeypatch.setattr(numbers, "CLOSING_SECONDS", 70.0)
    before, after = written(), 0
    while before != after:
        before = written()
        Statistic.objects.all().delete()
        enter(*range(before - 20, before + 2), *range(before - 20, before + 2), successful=1)
        enter(before - 6, before, failed=1000)
        enter(before - 5, before - 1, retried=4, lost=1)
        metrics = read(describe_installation())
        after = written()
    task = {"queue": "mail", "task": "shop.send"}
    found = {
        outcome: value_of(metrics, "pgjobs_attempts_last_5m", **task, outcome=outcome)
        for outcome in of_installation.OUTCOMES
    }
    assert found == {"successful": 10, "failed": None, "cancelled": None, "retried": 8, "lost": 2}


def test_a_job_that_ended_without_an_attempt_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    # As above.
    monkeypatch.setattr(numbers, "CLOSING_SECONDS", 70.0)
    # What `cancel()` writes of jobs that wait, and then a worker of others.
    enter(written() - 1, cancelled=3)
    enter(written() - 1, cancelled=2, successful=1, retried=1, runs=[0, 3, 1])
    metrics = read(describe_installation())
    task = {"queue": "mail", "task": "shop.send"}
    assert value_of(metrics, "pgjobs_attempts_last_5m", **task, outcome="cancelled") == 2


def written() -> int:
    """Return the number of the first minute that may not be written yet."""
    return int((time.time() - numbers.CLOSING_SECONDS) // 60)


def test_what_came_in_lately_is_that_of_five_minutes_that_are_counted() -> None:
    """Enqueues are counted up to the last sample but one."""
    now = timezone.now()
    for seconds in (130, 70, 10):
        QueueSample.objects.create(measured_at=now - timedelta(seconds=seconds))
    last = int((now.timestamp() - 70) // 60)
    enter(*range(last - 20, last), enqueued=60)
    enter(last, enqueued=7)
    metrics = read(describe_installation())
    task = {"queue": "mail", "task": "shop.send"}
    assert value_of(metrics, "pgjobs_enqueued_last_5m", **task) == 300
    QueueSample.objects.all().delete()
    assert value_of(read(describe_installation()), "pgjobs_enqueued_last_5m", **task) is None


def test_limits_say_who_waits_for_them() -> None:
    RateLimit.objects.create(name="shop", count=1, period=3600)
    RateLimit.objects.create(name="idle", count=1, period=3600)
    for key in ("shop:1", "shop:1", "shop:2"):
        make_job(rate_limit_keys=key, rate_cost=1)
    metrics = read(describe_installation())
    for name, number in (("waiting_jobs", 3), ("keys", 2)):
        assert value_of(metrics, f"pgjobs_rate_limit_{name}", limit="shop") == number
        assert value_of(metrics, f"pgjobs_rate_limit_{name}", limit="idle") is None


def test_a_queue_whose_backend_nobody_serves_has_no_worker() -> None:
    make_worker(backends=["default"])
    make_job(queue_name="mail", backend="other")
    make_job(queue_name="fax")
    metrics = read(describe_installation())
    found = [value_of(metrics, "pgjobs_queue_live_workers", queue=name) for name in ("mail", "fax")]
    assert found == [0, 1]


def test_it_says_when_it_counted() -> None:
    make_job()
    metrics = read(describe_installation())
    counted_at = value_of(metrics, "pgjobs_queue_jobs_timestamp_seconds")
    assert counted_at == pytest.approx(time.time(), abs=30)


def test_tables_say_their_size_and_what_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    table = RelationRow(False, "pgjobs_x", "", 5, 7, 9, 3, None, None, 0, True)
    index = table._replace(name="pgjobs_y", is_index=True)
    monkeypatch.setattr(of_installation, "list_relations", lambda cursor: [table, index])
    metrics = read(describe_installation())
    assert value_of(metrics, "pgjobs_table_bytes", table="pgjobs_x") == 12
    assert value_of(metrics, "pgjobs_table_dead_rows", table="pgjobs_x") == 3
    assert value_of(metrics, "pgjobs_table_bytes", table="pgjobs_y") is None


@pytest.mark.django_db(transaction=True)
def test_a_transaction_that_is_open_is_told_of() -> None:
    assert value_of(read(describe_installation()), "pgjobs_oldest_transaction_seconds") == 0
    with connect() as other, other.transaction():
        other.execute("SELECT pg_current_xact_id()")
        seconds = value_of(read(describe_installation()), "pgjobs_oldest_transaction_seconds")
    assert seconds is not None and seconds > 0


def test_queues_without_number_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_installation, "MAX_SAMPLED", 20)
    monkeypatch.setattr(numbers, "MAX_QUEUES", 20)
    for place in range(30):
        # The largest are not the first ones.
        make_jobs(1 + (place >= 15), queue_name=f"queue {place:02}")
    metrics = read(describe_installation())
    assert len(metrics["pgjobs_queue_oldest_ready_seconds"].samples) == 20
    assert len(metrics["pgjobs_queue_jobs"].samples) == 20 * len(of_installation.STATES)


def test_metrics_are_called_as_prometheus_asks() -> None:
    for metric in names.OF_INSTALLATION:
        assert metric.kind == "gauge" and not metric.name.endswith("_total")
        assert metric.help.endswith(".")
    every = [metric.name for metric in (*names.OF_WORKERS, *names.OF_INSTALLATION)]
    assert len(every) == len(set(every))
