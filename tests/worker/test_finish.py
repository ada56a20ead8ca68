"""finish_*.sql, give_back_jobs.sql, write_progress.sql: fenced, exact, all in one round trip."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection

from django_pgjobs.queries import jobs
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.jobs import MAX_ERRORS
from tests.factories import get_job, make_job, make_running_job, make_worker
from tests.worker.support import claim

pytestmark = pytest.mark.django_db(transaction=True)

Write = Callable[..., set[int]]


def success(job: SimpleNamespace, **changes: Any) -> Callable[[Any], None]:
    given = {"id": job.id, "claim": job.claim, "result": "", "age": 0.0, "duration": 1.0}
    return partial(_send, jobs.send_successes, jobs.Success(**(given | changes)))


def end(job: SimpleNamespace, **changes: Any) -> Callable[[Any], None]:
    given = {"status": "failed", "error": error_text(), "note": "", "age": 0.0, "duration": 1.0}
    return partial(_send, jobs.send_ends, jobs.End(id=job.id, claim=job.claim, **(given | changes)))


def give_back(job: SimpleNamespace, **changes: Any) -> Callable[[Any], None]:
    given = {"delay": None, "counted": True, "error": "", "note": "", "age": 0.0, "duration": 1.0}
    return partial(
        _send, jobs.send_returns, jobs.Return(id=job.id, claim=job.claim, **(given | changes))
    )


def progress(job: SimpleNamespace, text: str = '{"done": 1}') -> Callable[[Any], None]:
    return partial(_send, jobs.send_progress, (job.id, job.claim, 2.5, text))


def _send(function: Callable[[Any, Any], None], item: Any, cursor: Any) -> None:
    function(cursor, [item])


def error_text(message: str = "broken") -> str:
    """Return an entry as a worker writes it."""
    return json.dumps(
        {"exception_class": "builtins.ValueError", "message": message, "traceback": ""}
        | {"attempt": 1}
    )


def write(own: OwnConnection, *sends: Callable[[Any], None]) -> list[list[int]]:
    """Send statements in one round trip; return the ids that each has changed."""
    return [[row[0] for row in rows] for rows in own.round_trip(sends)]


def row_of(job_id: int) -> tuple[str, Any]:
    """Return the partition and the whole row of a job, to compare."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT tableoid::regclass::text, to_jsonb(job) FROM pgjobs_job AS job WHERE id = %s",
            [job_id],
        )
        return cursor.fetchone()


def test_a_job_that_could_not_be_rescued_and_ends_well_has_no_note(own: OwnConnection) -> None:
    job = make_running_job(note="cannot be rescued: no room")
    assert write(own, success(job)) == [[job.id]]
    assert get_job(job.id).note == ""


ALL_WRITES = pytest.mark.parametrize(
    "make_write", [success, end, give_back, progress], ids=["success", "end", "return", "progress"]
)


@ALL_WRITES
@pytest.mark.parametrize("claim_offset", [-1, 1])
def test_a_write_with_another_claim_changes_nothing(
    own: OwnConnection, make_write: Write, claim_offset: int
) -> None:
    """S2.8, S2.19: the claim is the fencing token of every write."""
    job = make_running_job(claim=7)
    before = row_of(job.id)
    job.claim += claim_offset
    assert write(own, make_write(job)) == [[]]
    assert row_of(job.id) == before


@ALL_WRITES
def test_a_write_of_a_job_that_waits_again_changes_nothing(
    own: OwnConnection, make_write: Write
) -> None:
    """Not even with the right claim."""
    job = get_job(make_job(claim=3))
    before = row_of(job.id)
    assert write(own, make_write(job)) == [[]]
    assert row_of(job.id) == before


@ALL_WRITES
@pytest.mark.parametrize("first", [success, end], ids=["successful", "failed"])
def test_a_write_of_a_finished_job_changes_nothing(
    own: OwnConnection, make_write: Write, first: Write
) -> None:
    """A finish that is sent twice is written once."""
    job = make_running_job()
    assert write(own, first(job)) == [[job.id]]
    before = row_of(job.id)
    assert write(own, make_write(job)) == [[]]
    assert row_of(job.id) == before


@ALL_WRITES
def test_a_write_of_a_job_that_was_given_back_and_claimed_again_changes_nothing(
    own: OwnConnection, make_write: Write
) -> None:
    """The claim rises with the give-back and with the next claim."""
    job = make_running_job()
    write(own, give_back(job))
    [row] = claim(own, make_worker())
    assert row.claim >= job.claim + 2
    before = row_of(job.id)
    assert write(own, make_write(job)) == [[]]
    assert row_of(job.id) == before


def test_outcomes_of_all_kinds_travel_in_one_round_trip(own: OwnConnection) -> None:
    done, failed, cancelled, again = [make_running_job() for _ in range(4)]
    answers = write(
        own,
        success(done, result="[1]"),
        end(failed),
        end(cancelled, status="cancelled", error="", note="cancelled while running"),
        give_back(again, delay=60.0),
        progress(again),
    )
    assert answers == [[done.id], [failed.id], [cancelled.id], [again.id], []]
    statuses = [get_job(job.id).status for job in (done, failed, cancelled, again)]
    assert statuses == ["successful", "failed", "cancelled", "ready"]


def test_a_batch_with_a_stale_claim_writes_the_others(own: OwnConnection) -> None:
    jobs_ = [make_running_job() for _ in range(3)]
    outcomes = [
        jobs.Success(job.id, job.claim - (index == 1), f"{index}", 0.0, 0.0)
        for index, job in enumerate(jobs_)
    ]
    [rows] = own.round_trip([lambda cursor: jobs.send_successes(cursor, outcomes)])
    assert sorted(row[0] for row in rows) == [jobs_[0].id, jobs_[2].id]
    assert [get_job(job.id).result for job in jobs_] == [0, None, 2]


def test_each_outcome_of_a_batch_reaches_its_own_job(own: OwnConnection) -> None:
    texts = ["", '["\\n"]', '{"a": "\\u00e4\\\\n"}', "", "[1,\t2]", '["' + "x" * 200_000 + '"]', ""]
    running = [make_running_job() for _ in texts]
    outcomes = [
        jobs.Success(job.id, job.claim, text, 0.0, 0.0)
        for job, text in zip(running, texts, strict=True)
    ]
    own.round_trip([lambda cursor: jobs.send_successes(cursor, list(reversed(outcomes)))])
    found = [get_job(job.id).result for job in running]
    assert found == [json.loads(text) if text else None for text in texts]


@pytest.mark.parametrize("make_end", [success, end])
def test_times_say_when_the_attempt_ran_and_not_when_it_was_written(
    own: OwnConnection, make_end: Write
) -> None:
    """S4.11: timestamps measure duration and bottlenecks."""
    job = make_running_job()
    write(own, make_end(job, age=100.0, duration=1000.5))
    stored = get_job(job.id)
    assert stored.finished_at - stored.started_at == timedelta(seconds=1000.5)
    assert stored.last_attempted_at == stored.started_at
    assert stored.started_at < job.started_at - timedelta(seconds=1000)
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        [(now,)] = cursor.fetchall()
    assert (now - stored.finished_at).total_seconds() == pytest.approx(100, abs=30)


@pytest.mark.parametrize("make_end", [success, end])
def test_the_begin_of_the_first_attempt_stays(own: OwnConnection, make_end: Write) -> None:
    job = make_running_job(attempts=2)
    write(own, make_end(job, age=0.0, duration=0.5))
    stored = get_job(job.id)
    assert stored.started_at == job.started_at
    assert stored.finished_at - stored.last_attempted_at == timedelta(seconds=0.5)


def test_a_finished_job_lies_in_the_partition_of_finished_jobs(own: OwnConnection) -> None:
    """S3.7: the hot part stays small."""
    job = make_running_job()
    assert row_of(job.id)[0] == "pgjobs_job_live"
    write(own, success(job))
    assert row_of(job.id)[0] == "pgjobs_job_finished"


def test_an_error_names_worker_attempt_and_times(own: OwnConnection) -> None:
    """S2.24: failures are kept as a list."""
    job = make_running_job(worker_ids=["a:1", "b:2"], attempts=2)
    write(own, end(job, error=error_text("late"), duration=3.0))
    [entry] = get_job(job.id).errors
    assert (entry["message"], entry["worker"]) == ("late", "b:2")
    assert entry["started_at"] < entry["failed_at"]


@pytest.mark.parametrize("make_write", [end, give_back])
def test_errors_are_capped_and_the_first_one_stays(own: OwnConnection, make_write: Write) -> None:
    old = [{"message": f"old {number}"} for number in range(MAX_ERRORS)]
    job = make_running_job(errors=old)
    write(own, make_write(job, error=error_text("new")))
    messages = [entry["message"] for entry in get_job(job.id).errors]
    assert len(messages) == MAX_ERRORS
    assert messages[:2] == ["old 0", "old 2"]
    assert messages[-2:] == [f"old {MAX_ERRORS - 1}", "new"]


def test_progress_is_stored_while_the_job_runs_and_survives_its_end(own: OwnConnection) -> None:
    job = make_running_job()
    write(own, progress(job, '{"done": 3, "total": 10}'))
    stored = get_job(job.id).progress
    assert stored == {
        "done": 3,
        "total": 10,
        "longest_pause": 2.5,
        "changed_at": stored["changed_at"],
    }
    assert get_job(job.id).status == "running"
    write(own, success(job))
    assert get_job(job.id).progress == stored
