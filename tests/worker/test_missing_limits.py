"""Rate limits without their row are told of before anybody waits for them."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO

import pytest
from django.core import checks as django_checks
from django.core.management import call_command
from django.db import connection
from django.test import override_settings

from django_pgjobs import checks, task
from django_pgjobs.declaring.missing_limits import named_limits
from django_pgjobs.models import RateLimit
from django_pgjobs.queries.rate_limits import MissingRate, send_missing_rates
from django_pgjobs.worker.turns.turn import Turn
from django_pgjobs.worker.upkeep import missing_limits
from django_pgjobs.worker.upkeep.missing_limits import MissingLimits
from tests import tasks
from tests.factories import get_job, make_job
from tests.helpers import wait_until
from tests.worker.support import ThreadedWorker

README_LIMIT = "missing-shopify"


@task(rate_limit=[f"{README_LIMIT}:{{left}}", "{left}", "missing-day", lambda left, right: "x"])
def push(left: int, right: int) -> None:
    """Name four limits, two of which can be known before there is a job."""


def told(of: str = "missing-") -> list[django_checks.CheckMessage]:
    found = checks.check_rate_limits(databases=["default"])
    return [message for message in found if of in str(message.msg)]


def make_limits(*names: str) -> None:
    RateLimit.objects.bulk_create(RateLimit(name=name, count=1, period=1.0) for name in names)


@pytest.mark.django_db
def test_limits_that_tasks_name_are_known_without_a_job() -> None:
    assert {README_LIMIT, "missing-day"} <= named_limits().keys()
    assert not {"x", "", "{left}"} & named_limits().keys()


@pytest.mark.django_db
def test_the_check_of_the_database_names_limits_without_a_row() -> None:
    messages = told()
    assert [message.id for message in messages] == ["pgjobs.W005"] * 2
    assert messages[1].msg == (
        "a task names the rate limit 'missing-shopify', which does not exist: its jobs cannot "
        "start."
    )
    assert "Create 'missing-shopify' in the admin, by RateLimit" in str(messages[1].hint)
    make_limits("missing-day", f"{README_LIMIT}:17")
    assert told() == []


@pytest.mark.django_db(transaction=True)
def test_a_limit_that_migrate_is_about_to_make_is_told_of_by_workers_only(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Django's `migrate` begins with the check."""
    said = StringIO()
    with override_settings(PGJOBS={"RATE_LIMITS": {"missing-day": {"count": 1, "period": 1.0}}}):
        call_command("runjobs", "--check", stdout=said)
        assert "\nWARNING a task names the rate limit 'missing-day'" in said.getvalue()
        assert "manage.py migrate makes the row" in said.getvalue()
        call_command("migrate", "pgjobs", skip_checks=False, verbosity=0)
        assert "missing-day" not in capsys.readouterr().err
        assert RateLimit.objects.filter(name="missing-day").exists()
    assert len(told()) == 1


@pytest.mark.django_db
def test_jobs_that_wait_are_told_of_with_their_key() -> None:
    make_job(rate_limit_keys="missing-raw:5")
    assert "jobs wait for the rate limit of 'missing-raw:5'" in str(told()[1].msg)


@pytest.mark.django_db
def test_jobs_that_wait_behind_thousands_of_other_keys_are_told_of() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO pgjobs_job (task_path, queue_name, concurrency_key)"
            " SELECT 'tests.tasks.add', 'a', 'k:' || number FROM generate_series(1, 2000) AS number"
        )
    make_job(rate_limit_keys="missing-raw:5", queue_name="b")
    assert "jobs wait for the rate limit of 'missing-raw:5'" in str(told()[1].msg)


def test_without_its_flag_the_check_asks_no_database() -> None:
    assert checks.check_rate_limits() == checks.check_rate_limits(databases=["other"]) == []


@pytest.mark.django_db(transaction=True)
def test_runjobs_check_says_it_and_is_no_error() -> None:
    make_job(rate_limit_keys="missing-raw:5")
    said = StringIO()
    call_command("runjobs", "--check", stdout=said)
    assert "\nWARNING jobs wait for the rate limit of 'missing-raw:5'" in said.getvalue()
    assert said.getvalue().splitlines()[-1].endswith("but see the warnings above.")


@pytest.mark.django_db(transaction=True)
def test_the_worker_logs_each_once(
    start_thread: Callable[..., ThreadedWorker], caplog: pytest.LogCaptureFixture
) -> None:
    make_job(rate_limit_keys="missing-raw:5")
    start_thread(poll_interval=0.05)
    wait_until(lambda: "jobs wait for the rate limit of 'missing-raw:5'" in caplog.text)
    make_limits("missing-raw")
    done = tasks.add.enqueue(1, 2)
    wait_until(lambda: done.refresh() or done.is_finished)
    assert caplog.text.count("missing-raw:5") == 1


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_limit_that_was_made_and_deleted_is_told_of_again(
    start_thread: Callable[..., ThreadedWorker],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also if nobody waited for any limit meanwhile."""
    monkeypatch.setattr(missing_limits, "PAUSE_SECONDS", 0.0)
    limits = start_thread(poll_interval=0.05).runner.upkeep._duties.look._missing_limits

    def wait_until_told(times: int) -> None:
        job_id = make_job(rate_limit_keys="missing-raw:5")
        wait_until(lambda: caplog.text.count("missing-raw:5") == times)
        make_limits("missing-raw")
        wait_until(lambda: get_job(job_id).status == "successful")

    wait_until_told(1)
    wait_until(lambda: not limits.known)
    RateLimit.objects.all().delete()
    wait_until_told(2)


def test_a_question_without_an_answer_is_asked_again() -> None:
    """And not a minute later; one that was answered is."""
    limits = MissingLimits("test:1")

    def ask() -> Turn:
        turn = Turn(1)
        limits.plan(turn, knows_of_keys=True)
        return turn

    unanswered, answered = ask(), ask()
    assert unanswered.sends == answered.sends == [send_missing_rates]
    answered.receive([[]])
    assert ask().sends == []


def test_a_worker_that_knows_of_no_keys_asks_for_no_limits() -> None:
    turn = Turn(1)
    MissingLimits("test:1").plan(turn, knows_of_keys=False)
    assert turn.sends == []


def test_the_name_of_a_limit_is_what_stands_before_the_colon() -> None:
    assert MissingRate("shopify:17:eu", True).name == "shopify"


# A start takes more than the burst


@task(rate_limit="small-shop:{left}", rate_cost=10)
def push_much(left: int) -> None:
    """Take ten tokens at a start."""


@pytest.fixture
def small() -> RateLimit:
    """A limit of which no start can take ten."""
    return RateLimit.objects.create(name="small-shop", count=20, burst=5, period=1.0)


@pytest.mark.django_db
def test_a_task_that_takes_more_than_the_burst_is_told_of(small: RateLimit) -> None:
    assert named_limits()["small-shop"] == 10
    [message] = told("small-shop")
    assert (message.id, message.level) == ("pgjobs.W006", django_checks.WARNING)
    assert message.msg == (
        "a task takes 10 tokens of the rate limit 'small-shop' at once, whose burst is 5: its "
        "jobs cannot start."
    )
    assert str(message.hint) == (
        "Let it allow 10 at once (its burst, or its count if it has none), or lower rate_cost."
    )
    RateLimit.objects.update(burst=None)
    assert told("small-shop") == []


@pytest.mark.django_db
def test_jobs_that_take_more_than_the_burst_are_told_of(small: RateLimit) -> None:
    make_job(rate_limit_keys="small-shop:5", rate_cost=7)
    make_job(rate_limit_keys="small-shop:5", rate_cost=9)
    make_job(rate_limit_keys="small-shop:6", rate_cost=5)
    [message] = told("small-shop:")
    assert message.msg == (
        "jobs that wait for 'small-shop:5' take 7 tokens of the rate limit 'small-shop' at "
        "once, whose burst is 5: they cannot start."
    )


@pytest.mark.django_db(transaction=True)
def test_the_worker_logs_a_burst_that_is_too_small_once(
    small: RateLimit,
    start_thread: Callable[..., ThreadedWorker],
    caplog: pytest.LogCaptureFixture,
) -> None:
    push_much.enqueue(1)
    start_thread(poll_interval=0.05)
    wait_until(lambda: "whose burst is 5: they cannot start. Let it allow 10" in caplog.text)
