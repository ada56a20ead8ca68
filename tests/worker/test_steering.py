"""Retries: when a job runs again, when it does not, and what counts as an attempt."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from django_pgjobs.declaring.retries import LONGEST_DELAY_SECONDS
from django_pgjobs.worker.running.outcome import Kind, Outcome
from tests.factories import get_job, make_job
from tests.worker import steering
from tests.worker.support import Bench

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _nothing_asked() -> Iterator[None]:
    steering.asked.clear()
    yield
    steering.asked.clear()


def make_due() -> None:
    """Let every waiting job run now."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgjobs_job SET due_at = NULL WHERE status = 'ready'")


def delays(bench: Bench, times: int) -> list[float | None]:
    """Run the next job that many times and return the delay after each attempt."""
    found = []
    for _ in range(times):
        found.append(bench.run().delay)
        make_due()
    return found


@pytest.mark.parametrize(
    ("name", "delay"),
    [
        ("Retry", 7),
        ("Retry after 30", 30),
        ("Retry after timedelta", 120),
        ("Retry at once", 0),
        ("Retry in an eternity", LONGEST_DELAY_SECONDS),
        ("Mishap", 7),
    ],
)
def test_a_retry_counts_and_its_delay_is_the_one_asked_for(
    bench: Bench, name: str, delay: float
) -> None:
    """S4.23: Retry says when; without that the backoff does."""
    job = steering.end_by.enqueue(name)
    outcome = bench.run()
    assert (outcome.kind, outcome.delay) == (Kind.RETRY, delay)
    row = get_job(job.id)
    assert (row.status, row.attempts, len(row.errors)) == ("ready", 1, 1)
    assert row.note.startswith("retry after ")


@pytest.mark.parametrize("name", ["Retry", "Retry after 30", "Mishap"])
def test_at_the_last_attempt_a_retry_is_a_failure(bench: Bench, name: str) -> None:
    """S2.24, S4.11: max_attempts attempts, not one more."""
    job = steering.end_by.enqueue(name)
    kinds = []
    for _ in range(3):
        kinds.append(bench.run().kind)
        make_due()
    assert kinds == [Kind.RETRY, Kind.RETRY, Kind.FAIL]
    row = get_job(job.id)
    assert (row.status, row.attempts, len(row.errors)) == ("failed", 3, 3)
    assert [error["attempt"] for error in row.errors] == [1, 2, 3]


@pytest.mark.parametrize("name", ["Retry from Mishap", "Retry from a Retry"])
def test_a_retry_from_another_exception_is_recorded_as_that(bench: Bench, name: str) -> None:
    """By which failed jobs are searched and grouped; the traceback tells of both."""
    job = steering.end_by.enqueue(name)
    assert bench.run().kind is Kind.RETRY
    row = get_job(job.id)
    [error] = row.errors
    assert (error["exception_class"], error["message"]) == ("tests.tasks.Mishap", "m")
    assert "Retry: again" in error["traceback"]
    assert row.note == "retry after Mishap"


def test_a_retry_from_a_timeout_says_how_long_it_was(bench: Bench) -> None:
    """The interpreter raises it without words."""
    job = steering.end_by.using(timeout=5).enqueue("Retry from a timeout")
    assert bench.run().kind is Kind.RETRY
    assert get_job(job.id).errors[0]["message"] == "the attempt took longer than 5 s."


def test_a_retry_that_is_its_own_cause_is_recorded_as_it_is(bench: Bench) -> None:
    job = steering.end_by.enqueue("Retry in a circle")
    assert bench.run().kind is Kind.RETRY
    assert get_job(job.id).note == "retry after Retry"


def test_discard_fails_the_job_now(bench: Bench) -> None:
    """S4.23, S5.8: a NonRetryableError."""
    job = steering.end_by.enqueue("Discard")
    assert bench.run().kind is Kind.FAIL
    row = get_job(job.id)
    assert (row.status, row.attempts) == ("failed", 1)
    assert row.errors[0]["message"] == "no use"


@pytest.mark.parametrize(
    ("name", "delay", "note"),
    [
        ("Snooze", 45, "snoozed: not ready"),
        ("Snooze timedelta", 3600, "snoozed"),
        ("Snooze for an eternity", LONGEST_DELAY_SECONDS, "snoozed"),
    ],
)
def test_a_snoozed_job_waits_without_error_or_attempt(
    bench: Bench, name: str, delay: float, note: str
) -> None:
    job = steering.end_by.enqueue(name)
    outcome = bench.run()
    assert (outcome.kind, outcome.delay) == (Kind.SNOOZE, delay)
    row = get_job(job.id)
    assert (row.status, row.attempts, row.errors, row.note) == ("ready", 0, [], note)


def test_a_job_may_snooze_at_its_only_attempt_again_and_again(bench: Bench) -> None:
    job = steering.snooze_until_snoozed.enqueue([])
    assert [bench.run().kind for _ in range(4)] == [Kind.SNOOZE] * 4
    assert get_job(job.id).attempts == 0


def outcome_of(bench: Bench, task: Any, name: str) -> Outcome:
    task.enqueue(name)
    return bench.run()


@pytest.mark.parametrize(
    ("task", "name", "kind"),
    [
        (steering.end_by, "KeyError", Kind.RETRY),
        (steering.end_by, "SystemExit", Kind.FAIL),
        (steering.end_by_chosen, "Mishap", Kind.RETRY),
        (steering.end_by_chosen, "KeyError", Kind.FAIL),
        (steering.end_by_chosen, "Fatal", Kind.FAIL),
        (steering.end_by_chosen, "Retry", Kind.RETRY),
        (steering.end_by_retrying_all, "SystemExit", Kind.RETRY),
        (steering.end_by_retrying_all, "Discard", Kind.FAIL),
        (steering.end_by_discarding, "Mishap", Kind.FAIL),
        (steering.end_by_discarding, "Fatal", Kind.FAIL),
        (steering.end_by_discarding, "Retry from Mishap", Kind.RETRY),
        (steering.end_by_discarding, "told to retry a Mishap", Kind.RETRY),
        (steering.end_by_discarding, "KeyError", Kind.RETRY),
    ],
)
def test_the_task_says_which_exceptions_are_worth_another_attempt(
    bench: Bench, task: Any, name: str, kind: Kind
) -> None:
    """S1.21, S4.23, S5.8: retry_on, discard_on; discard_on wins, Retry and Discard always count."""
    assert outcome_of(bench, task, name).kind is kind


def test_a_list_of_delays_is_taken_in_order_and_the_last_repeats(bench: Bench) -> None:
    """S1.21, S4.14."""
    steering.fail_by_list.enqueue()
    assert delays(bench, 6) == [0, 10, 30, 60, 60, 60]


def test_an_exponential_backoff_grows_up_to_its_maximum(bench: Bench) -> None:
    """S2.25."""
    steering.fail_exponentially.enqueue()
    assert delays(bench, 5) == [3, 6, 12, 20, 20]


@pytest.mark.parametrize(
    ("message", "delay"), [("12", 12), ("timedelta", 60), ("eternity", LONGEST_DELAY_SECONDS)]
)
def test_a_callable_says_how_long_to_wait(bench: Bench, message: str, delay: float) -> None:
    job = steering.fail_asking.enqueue(message)
    assert bench.run().delay == delay
    [(error, result)] = steering.asked
    assert str(error) == message
    assert (result.id, result.args, result.attempts) == (job.id, [message], 1)


def test_a_callable_that_returns_none_ends_the_job(bench: Bench) -> None:
    job = steering.fail_asking.enqueue("none")
    assert bench.run().kind is Kind.FAIL
    assert get_job(job.id).status == "failed"


@pytest.mark.parametrize("message", ["raise", "negative", "text"])
def test_a_callable_that_raises_or_answers_nonsense_gives_way_to_the_default(
    bench: Bench, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker goes on."""
    steering.fail_asking.enqueue(message)
    outcome = bench.run()
    assert outcome.kind is Kind.RETRY
    assert outcome.delay is not None
    assert 1 <= outcome.delay <= 2
    assert "backoff of tests.worker.steering.fail_asking raised" in caplog.text


def test_a_job_that_succeeds_at_last_keeps_the_errors_before(bench: Bench) -> None:
    """S1.3, S2.24."""
    job = steering.fail_until.enqueue(3)
    assert [bench.run().kind for _ in range(3)] == [Kind.RETRY, Kind.RETRY, Kind.DONE]
    row = get_job(job.id)
    assert (row.status, row.result, row.attempts) == ("successful", 3, 3)
    assert [error["message"] for error in row.errors] == ["attempt 1", "attempt 2"]
    assert len(row.worker_ids) == 3


def test_the_limit_of_the_job_wins_over_that_of_the_task(bench: Bench) -> None:
    job = steering.end_by.using(max_attempts=1).enqueue("Mishap")
    assert bench.run().kind is Kind.FAIL
    assert get_job(job.id).max_attempts == 1


def test_a_raw_row_has_the_limit_its_task_declares(bench: Bench) -> None:
    """S1.7: INSERT without max_attempts."""
    make_job("tests.worker.steering.end_by", args=["Mishap"], attempts=2)
    assert bench.run().kind is Kind.FAIL
