"""The address of the whole installation: who may read it, and what it says."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection
from django.test import Client
from django.utils import timezone

from django_pgjobs import pause
from django_pgjobs.checks import check_settings
from django_pgjobs.metrics import names, of_installation, views
from django_pgjobs.metrics.of_installation import _folded, describe_installation
from django_pgjobs.models import RateLimit
from tests import tasks
from tests.factories import make_job, make_worker
from tests.helpers import wait_until
from tests.metrics.parsing import read, value_of
from tests.schedules.support import make_schedule

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

    assert [jobs("mail", state) for state in ("ready", "scheduled", "held")] == [2, 1, 0]
    assert jobs("other", "held") == 1
    oldest = value_of(metrics, "pgjobs_queue_oldest_ready_seconds", queue="mail")
    assert oldest is not None and 599 < oldest < 700
    assert value_of(metrics, "pgjobs_queue_live_workers", queue="mail") == 1
    assert value_of(metrics, "pgjobs_queue_live_workers", queue="other") == 0
    assert value_of(metrics, "pgjobs_queue_paused", queue="other") == 1
    assert value_of(metrics, "pgjobs_queue_paused", queue="mail") == 0
    assert value_of(metrics, "pgjobs_workers", state="live") == 1


ENTER = """
INSERT INTO pgjobs_statistic (period, begins_at, queue_name, task_path, enqueued, successful, lost)
SELECT
    'part', date_trunc('minute', statement_timestamp(), 'UTC') - make_interval(mins => minute),
    'mail', 'shop.send', 10, 1, 0
FROM unnest(%s::integer[]) AS minute
"""


def test_what_ended_lately_is_that_of_five_complete_minutes() -> None:
    """However often they are written, and whatever of now is not written yet."""
    with connection.cursor() as cursor:
        # The minutes of now, and the one before, may not be written yet.
        cursor.execute(ENTER, [[0, *range(2, 20), *range(2, 20)]])
    metrics = read(describe_installation())
    task = {"queue": "mail", "task": "shop.send"}
    ended = value_of(metrics, "pgjobs_attempts_last_5m", **task, outcome="successful")
    # The last one that is complete is the one before this, or the one before that.
    assert ended in (8, 10)
    assert value_of(metrics, "pgjobs_enqueued_last_5m", **task) == 10 * ended
    assert value_of(metrics, "pgjobs_attempts_last_5m", **task, outcome="lost") is None


def test_tasks_without_number_are_folded() -> None:
    from collections import Counter

    counts: Counter[tuple[str, ...]] = Counter(
        {("q", f"task{place}", "failed"): place + 1 for place in range(names.MAX_TASKS + 10)}
    )
    folded = _folded(counts)
    assert len(folded) == names.MAX_TASKS + 1
    # The least of them.
    assert folded["q", names.OTHERS, "failed"] == sum(range(1, 11))


def test_schedules_say_how_late_they_are() -> None:
    late = make_schedule("late")
    good = make_schedule("good")
    now = timezone.now()
    type(late).objects.filter(pk=late.pk).update(
        next_at=now - timedelta(minutes=10), error="no such task"
    )
    type(good).objects.filter(pk=good.pk).update(next_at=now + timedelta(minutes=10))
    metrics = read(describe_installation())
    seconds = value_of(metrics, "pgjobs_schedule_late_seconds", schedule="late")
    assert seconds is not None and 599 < seconds < 700
    assert value_of(metrics, "pgjobs_schedule_late_seconds", schedule="good") == 0
    assert value_of(metrics, "pgjobs_schedule_error", schedule="late") == 1
    assert value_of(metrics, "pgjobs_schedule_error", schedule="good") == 0


def test_schedules_say_whether_their_last_job_failed() -> None:
    for name, status in (("bad", "failed"), ("good", "successful"), ("new", "ready")):
        schedule = make_schedule(name)
        job_id = make_job(status=status)
        type(schedule).objects.filter(pk=schedule.pk).update(last_job_id=job_id)
    metrics = read(describe_installation())
    shown = {
        name: value_of(metrics, "pgjobs_schedule_failed", schedule=name)
        for name in ("bad", "good", "new")
    }
    assert shown == {"bad": 1, "good": 0, "new": 0}


def test_limits_say_who_waits_for_them() -> None:
    RateLimit.objects.create(name="shop", count=1, period=3600)
    metrics = read(describe_installation())
    assert value_of(metrics, "pgjobs_rate_limit_waiting_jobs", limit="shop") in (0, None)


def test_queues_without_number_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_installation, "MAX_SAMPLED", 20)
    for place in range(30):
        make_job(queue_name=f"queue {place}", task_path=tasks.add.module_path)
    metrics = read(describe_installation())
    assert len(metrics["pgjobs_queue_oldest_ready_seconds"].samples) == 20


def test_metrics_are_called_as_prometheus_asks() -> None:
    for metric in names.OF_INSTALLATION:
        assert metric.kind == "gauge" and not metric.name.endswith("_total")
        assert metric.help.endswith(".")
    every = [metric.name for metric in (*names.OF_WORKERS, *names.OF_INSTALLATION)]
    assert len(every) == len(set(every))
