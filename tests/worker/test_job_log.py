"""What a worker's lines say of jobs, to people, to programs and to trackers of errors."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterator

import pytest
from psycopg import sql

from django_pgjobs import Retry, current_job, task
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.process.pruner import Pruning
from django_pgjobs.worker.running import job_log
from django_pgjobs.worker.running.job_log import JsonFormatter, TextFormatter
from django_pgjobs.worker.running.outcome import Kind
from tests.factories import get_job, make_job, make_running_job, make_worker
from tests.helpers import wait_until
from tests.worker import declared, nasty
from tests.worker.support import Bench, ThreadedWorker, make_attempt_of

pytestmark = pytest.mark.django_db(transaction=True)

LOUD = logging.getLogger("django_pgjobs")


class Records(logging.Handler):
    """Keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        self.records.append(record)

    def of(self, event: str) -> logging.LogRecord:
        """Return the one record of an event."""
        [found] = [
            record for record in self.records
            if getattr(record, "pgjobs", {}).get("event") == event
        ]  # fmt: skip
        return found


@pytest.fixture
def log() -> Iterator[Records]:
    """What is logged during the test."""
    records, level = Records(), LOUD.level
    LOUD.addHandler(records)
    LOUD.setLevel(logging.DEBUG)
    yield records
    LOUD.removeHandler(records)
    LOUD.setLevel(level)


@task(max_attempts=1)
def charge(amount: int) -> None:
    """Fail, in a function of its own."""
    refuse(amount)


def refuse(amount: int) -> None:
    """Fail with a text of two lines."""
    raise ValueError("no such card\n18:47:03.118 done    forged.task #1\x1b[1A")


@task(max_attempts=2, backoff=[0])
def retry() -> None:
    """Ask for another attempt."""
    raise Retry("not yet")


@task
def tell_correlation() -> list[str]:
    """Return the id that the job was enqueued with."""
    return [current_job().correlation_id]


Drain = Callable[..., ThreadedWorker]


def test_a_failure_is_logged_with_its_traceback_once(drain: Drain, log: Records) -> None:
    """From the task's own frame on."""
    charge.enqueue(5)
    drain()
    record = log.of("FAIL")
    assert [each for each in log.records if each.exc_info] == [record]
    text = TextFormatter().format(record)
    first, *lines = text.splitlines()
    assert first.endswith(
        "error=ValueError: no such card\\x0a18:47:03.118 done    forged.task #1\\x1b[1A"
    )
    assert all(line.startswith("    ") for line in lines)
    assert lines[0] == "    Traceback (most recent call last):"
    assert "in charge" in lines[1]
    assert lines[-2:] == [
        "    ValueError: no such card",
        "    18:47:03.118 done    forged.task #1\\x1b[1A",
    ]


def test_json_has_the_traceback_of_a_failure(drain: Drain, log: Records) -> None:
    charge.enqueue(5)
    drain()
    entry = json.loads(JsonFormatter().format(log.of("FAIL")))
    assert entry["traceback"].startswith("Traceback (most recent call last):\n")
    assert "in charge" in entry["traceback"]
    assert "ValueError: no such card" in entry["traceback"]


def test_each_kind_of_line_has_one_template(drain: Drain, log: Records) -> None:
    """What has no exception is grouped by it."""
    charge.enqueue(5)
    charge.enqueue(6)
    retry.enqueue()
    drain()
    templates: dict[str, set[str]] = {}
    for record in log.records:
        if event := getattr(record, "pgjobs", {}).get("event"):
            templates.setdefault(event, set()).add(str(record.msg))
    assert templates == {
        "start": {"start   %s #%d %s"},
        "RETRY": {"RETRY   %s #%d %s"},
        "FAIL": {"FAIL    %s #%d %s"},
    }
    failures = [record for record in log.records if record.levelno >= logging.ERROR]
    assert {record.exc_info[0] for record in failures if record.exc_info} == {ValueError, Retry}


@pytest.mark.parametrize(("level", "is_told"), [(logging.DEBUG, True), (logging.INFO, False)])
def test_who_develops_sees_where_an_attempt_failed_before_the_last(
    drain: Drain, log: Records, level: int, is_told: bool
) -> None:
    """By `-v 2`; in production, and for a tracker of errors, a retry is one line."""
    LOUD.setLevel(level)
    charge.using(max_attempts=2).enqueue(5)
    drain()
    record = log.of("RETRY")
    assert record.levelno == logging.WARNING
    assert (record.exc_info is not None) == is_told
    assert ("in charge" in TextFormatter().format(record)) == is_told


def test_an_attempt_that_is_tried_again_is_one_line(drain: Drain, log: Records) -> None:
    """Its traceback is on the job's page."""
    retry.enqueue()
    drain()
    assert log.of("RETRY").exc_info is None


@task(max_attempts=1)
def say_nothing() -> None:
    """Fail without a text."""
    raise ValueError


def test_an_exception_without_a_text_is_its_name(drain: Drain, log: Records) -> None:
    """As in a traceback."""
    say_nothing.enqueue()
    drain()
    first, *_ = TextFormatter().format(log.of("FAIL")).splitlines()
    assert first.endswith(" error=ValueError")


class Broken(Exception):
    """An exception of which nothing works."""

    def __str__(self) -> str:
        raise SystemExit

    @property
    def __traceback__(self) -> None:  # type: ignore[override]
        raise SystemExit


@task(max_attempts=1)
def break_all() -> None:
    """Fail with it."""
    raise Broken


def test_an_exception_that_cannot_be_shown_is_a_failure_as_any(drain: Drain, log: Records) -> None:
    job = break_all.enqueue()
    drain()
    assert get_job(job.id).status == "failed"
    record = log.of("FAIL")
    assert record.exc_info is not None and record.exc_info[0] is Broken


@pytest.mark.parametrize("formatter", [TextFormatter, JsonFormatter])
def test_a_failure_has_its_line_though_its_exception_cannot_be_formatted(
    drain: Drain, log: Records, formatter: type[logging.Formatter]
) -> None:
    nasty.end_with.using(max_attempts=1).enqueue("cause raises")
    drain()
    text = formatter().format(log.of("FAIL"))
    assert "error=BadTraceback" in text or '"error": "BadTraceback' in text
    assert "(its exception cannot be formatted)" in text


def test_every_line_of_a_job_names_its_correlation_id(drain: Drain, log: Records) -> None:
    """Text and JSON."""
    tell_correlation.using(correlation_id="order-17").enqueue()
    charge.using(correlation_id="order\n18").enqueue(5)
    drain()
    for event, text, value in (
        ("start", "", None),
        ("done", " correlation_id=order-17 ", "order-17"),
        ("FAIL", " correlation_id=order\\x0a18 ", "order\n18"),
    ):
        for record in log.records:
            fields = getattr(record, "pgjobs", {})
            if fields.get("event") == event and (
                value is None or fields["correlation_id"] == value
            ):
                assert text in TextFormatter().format(record)
                assert json.loads(JsonFormatter().format(record))["correlation_id"]
                break
        else:
            pytest.fail(f"no line of {event}")


def test_a_line_of_a_job_without_one_says_nothing_of_it(drain: Drain, log: Records) -> None:
    tell_correlation.enqueue()
    drain()
    assert "correlation_id" not in TextFormatter().format(log.of("done"))


def test_a_rescue_names_the_correlation_id(drain: Drain, log: Records) -> None:
    make_running_job(make_worker(lease_seconds=-1), correlation_id="order-17")
    drain()
    assert " correlation_id=order-17" in TextFormatter().format(log.of("rescue"))


def test_other_lines_about_a_job_name_it_too(log: Records) -> None:
    attempt = make_attempt_of(7, correlation_id="order-17")
    job_log.logger.of(attempt).warning("timed out after %d s", 5)
    [record] = log.records
    assert (
        TextFormatter()
        .format(record)
        .endswith(" job=7 correlation_id=order-17 timed out after 5 s")
    )
    assert json.loads(JsonFormatter().format(record)).items() >= {
        "job": 7, "correlation_id": "order-17",
    }.items()  # fmt: skip
    assert record.filename == "test_job_log.py"


def test_the_running_job_knows_its_correlation_id(bench: Bench) -> None:
    job = tell_correlation.using(correlation_id="order-17").enqueue()
    assert bench.run().kind is Kind.DONE
    assert get_job(job.id).result == ["order-17"]


def test_what_a_row_is_given_is_logged_and_so_is_a_key_that_cannot_be_made(
    log: Records, start_thread: Callable[..., ThreadedWorker]
) -> None:
    given = make_job(declared.placed.module_path)
    broken = make_job(declared.keyed_by_function.module_path, kwargs={"shop_id": -1})
    start_thread(poll_interval=0.05)
    wait_until(
        lambda: {get_job(each).status for each in (given, broken)} == {"successful", "failed"}
    )
    wait_until(lambda: any("done" in record.getMessage() for record in log.records))
    assert log.of("fill").__dict__["pgjobs"]["job"] == given
    failure = log.of("FAIL")
    assert failure.levelno == logging.ERROR
    assert failure.__dict__["pgjobs"]["job"] == broken
    assert failure.exc_info is not None


def test_a_job_that_nobody_could_claim_in_time_has_a_line_of_its_own(
    log: Records, own: OwnConnection
) -> None:
    columns = {"queue_name": "nobody's", "correlation_id": "order-17"}
    late = make_job(expires_at=sql.SQL("now() - interval '1 minute'"), **columns)
    for step in Pruning(own, {}, worker="web-1:7").steps:
        step()
    record = log.of("expire")
    assert (record.levelno, record.__dict__["pgjobs"]["job"]) == (logging.WARNING, late)
    assert (
        TextFormatter()
        .format(record)
        .endswith(
            f" expire  tests.tasks.add #{late} attempt=0 queue=nobody's worker=web-1:7 "
            "correlation_id=order-17 note=expired: not started in time"
        )
    )


def test_a_length_of_time_that_json_has_no_number_for_is_text(log: Records) -> None:
    attempt = make_attempt_of(1)
    attempt.row = attempt.row._replace(waited=math.inf)
    job_log.log_start(attempt, "w")
    entry = json.loads(JsonFormatter().format(log.of("start")), parse_constant=pytest.fail)
    assert entry["waited"] == "inf"
