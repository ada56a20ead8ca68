"""Changes of all jobs of a QuerySet while others change the same jobs, or refuse it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from django_pgjobs import JobError
from django_pgjobs.control import many
from django_pgjobs.models import Job
from tests.factories import count_jobs, get_job, make_batch, make_job, make_jobs
from tests.helpers import connect
from tests.test_client import make_finished_job

COMMITS = pytest.mark.django_db(transaction=True)

BEGIN = "UPDATE pgjobs_job SET status = 'running', claim = claim + 1 WHERE id = %s"
GO_BACK = "UPDATE pgjobs_job SET status = 'ready', claim = claim + 1 WHERE id = %s"
SUCCEED = "UPDATE pgjobs_job SET status = 'successful', finished_at = now() WHERE id = %s"
REFUSE = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NEW.metadata ->> 'legal' = 'hold' THEN
        RAISE EXCEPTION E'on legal\\nhold';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER refuse BEFORE INSERT ON pgjobs_job_finished
    FOR EACH ROW EXECUTE FUNCTION refuse()
"""


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], None]:
    """Let somebody send a statement about a job between the look and the first change."""

    def do_once(statement: str, job_id: int) -> None:
        change_page = many._change_page
        left = [(statement, [job_id])]

        def act_and_change(*args: Any) -> Any:
            while left:
                with connect() as other:
                    other.execute(*left.pop())
            return change_page(*args)

        monkeypatch.setattr(many, "_change_page", act_and_change)

    return do_once


@COMMITS
def test_a_job_that_somebody_has_run_again_is_not_requeued(between: Any) -> None:
    """Two people requeue what has failed: each job runs once more, not twice."""
    first, second = (make_finished_job("failed", result=None) for _ in range(2))
    between(SUCCEED, first)
    assert Job.objects.finished().requeue() == 1
    assert (get_job(first).status, get_job(second).status) == ("successful", "ready")


@COMMITS
@pytest.mark.parametrize(
    ("found", "asked"),
    [
        (Job.objects.filter(status="ready"), False),
        (Job.objects.all(), True),
        (Job.objects.order_by("pk")[:2], True),
        (Job.objects.filter(status="ready").order_by("pk")[:2], False),
        (Job.objects.order_by("pk").distinct("pk"), True),
    ],
    ids=["ready", "all", "slice", "slice of ready", "distinct"],
)
def test_a_job_that_has_begun_is_asked_to_end_if_it_is_meant(
    between: Any, found: Any, asked: bool
) -> None:
    begun, waiting = make_jobs(2)
    between(BEGIN, begun)
    assert found.all().cancel() == 1 + asked
    assert get_job(waiting).status == "cancelled"
    assert (get_job(begun).cancel_requested_at is not None) == asked


@COMMITS
def test_a_job_that_has_begun_is_not_meant_by_a_status_on_the_command_line(between: Any) -> None:
    begun = make_job()
    between(BEGIN, begun)
    with pytest.raises(CommandError, match="have changed meanwhile"):
        call_command("jobs", "cancel", "--status", "ready", "--yes")
    assert get_job(begun).cancel_requested_at is None


@COMMITS
def test_a_job_that_runs_no_more_is_cancelled_with_all(between: Any) -> None:
    job_id = make_job(status="running")
    between(GO_BACK, job_id)
    assert Job.objects.unfinished().cancel() == 1
    assert get_job(job_id).status == "cancelled"


@pytest.mark.django_db
def test_all_but_those_that_the_database_refuses_are_changed() -> None:
    make_jobs(5)
    refused = make_job(metadata={"legal": "hold"})
    make_jobs(5)
    with connection.cursor() as cursor:
        cursor.execute(REFUSE)
    said = (
        f"^1 job, such as {refused}, could not be changed: the database refused it: on legal hold"
    )
    with pytest.raises(JobError, match=said):
        Job.objects.all().cancel()
    assert count_jobs(status="cancelled") == 10
    assert get_job(refused).status == "ready"


@pytest.mark.django_db
def test_nobody_waits_for_jobs_that_their_batch_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """As little as `requeue()` of one job does."""
    monkeypatch.setattr(many.time, "sleep", lambda _: pytest.fail("waited"))
    batch = make_batch(cancel_requested_at="now")
    kept = make_jobs(3, batch_id=batch, status="failed")
    make_jobs(2, status="failed")
    said = f"^3 jobs, such as {kept[0]}, could not be changed: its batch {batch} was cancelled"
    with pytest.raises(JobError, match=said):
        Job.objects.all().requeue()
    assert (count_jobs(status="failed"), count_jobs(status="ready")) == (3, 2)


@COMMITS
def test_what_keeps_jobs_and_what_is_locked_is_told_of_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(many, "LOCKED_SECONDS", 0.05)
    batch = make_batch(cancel_requested_at="now")
    kept = make_job(batch_id=batch, status="failed")
    locked = make_job(status="failed")
    said = (
        f"^1 job, such as {kept}, could not be changed: its batch {batch} was cancelled."
        f" Retry that. 1 job, such as {locked}, could not be changed: locked by another transaction"
    )
    with connect(autocommit=False) as other:
        other.execute("SELECT FROM pgjobs_job WHERE id = %s FOR UPDATE", [locked])
        with pytest.raises(JobError, match=said):
            Job.objects.all().requeue()


@pytest.mark.django_db
def test_the_command_tells_what_the_database_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    refused = make_job(metadata={"legal": "hold"})
    make_jobs(2)
    with connection.cursor() as cursor:
        cursor.execute(REFUSE)
    with pytest.raises(CommandError, match=f"^1 job, such as {refused}, could not be changed"):
        call_command("jobs", "cancel", "--queue", "default", "--yes")
    assert capsys.readouterr().out == "2 of 3 jobs cancelled.\n"


@pytest.mark.django_db
def test_of_named_jobs_all_are_tried(capsys: pytest.CaptureFixture[str]) -> None:
    refused, other = make_job(metadata={"legal": "hold"}), make_job()
    with connection.cursor() as cursor:
        cursor.execute(REFUSE)
    with pytest.raises(CommandError, match="1 of 2 jobs was not cancelled"):
        call_command("jobs", "cancel", str(refused), str(other))
    said = capsys.readouterr().out
    assert said.startswith(f"job {refused}: the database refused it: on legal hold")
    assert said.endswith(f"job {other}: cancelled\n")


@COMMITS
def test_a_connection_that_is_lost_is_told_behind_what_was_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_jobs(5)
    monkeypatch.setattr(many, "PAGE_JOBS", 2)
    change_page = many._change_page
    done: list[int] = []

    def change_and_end(*args: Any) -> Any:
        if done:
            with connect() as other:
                other.execute(
                    "SELECT pg_terminate_backend(%s, 5000)",
                    [connection.connection.info.backend_pid],
                )
        done.append(1)
        return change_page(*args)

    monkeypatch.setattr(many, "_change_page", change_and_end)
    try:
        with pytest.raises(CommandError, match=r"^the connection to the database was lost"):
            call_command("jobs", "cancel", "--queue", "default", "--yes")
    finally:
        connection.close()
    assert capsys.readouterr().out == "2 of 5 jobs cancelled.\n"
    assert count_jobs(status="ready") == 3


@COMMITS
def test_a_lock_that_is_not_to_be_had_is_told_as_that() -> None:
    make_job()
    with connect(autocommit=False) as other, connection.cursor() as cursor:
        other.execute("LOCK TABLE pgjobs_job_live IN ACCESS EXCLUSIVE MODE")
        cursor.execute("SET lock_timeout = '50ms'")
        try:
            with pytest.raises(CommandError, match=r"^the database gave up: canceling") as refusal:
                call_command("jobs", "cancel", "--queue", "default", "--yes")
        finally:
            cursor.execute("RESET lock_timeout")
    assert refusal.value.returncode == 1
