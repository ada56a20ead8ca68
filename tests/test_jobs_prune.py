"""`manage.py jobs prune`: what it deletes, what it counts, and what it says."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connections
from django.test import override_settings
from psycopg import sql

from django_pgjobs.management import prune as prune_module
from django_pgjobs.models import RateState
from example_project.database import parse_url
from tests.factories import ago, count_jobs, get_job, make_job, make_jobs, make_worker
from tests.helpers import execute
from tests.servers import PrivateCluster, temporary_standby
from tests.test_dependencies import enqueue_after
from tests.worker.test_batch_care import open_old

pytestmark = pytest.mark.django_db(transaction=True)

Run = Callable[..., list[str]]

NOTHING_ELSE = [
    "workflows: 0 deleted",
    "rows of workers: 0 deleted",
    "occurrences of schedules: 0 deleted",
    "states of rate limits: 0 deleted",
]


@pytest.fixture
def prune(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `jobs prune` with words of a command line; return the lines that it prints."""

    def run_one(*words: str) -> list[str]:
        call_command("jobs", "prune", *words)
        return capsys.readouterr().out.splitlines()

    return run_one


@pytest.fixture
def old_jobs() -> None:
    """Three successful jobs, a cancelled one and two failed ones, ten days after their end."""
    for status, count in (("successful", 3), ("cancelled", 1), ("failed", 2)):
        make_jobs(count, status=status, finished_at=ago(10 * 86400))
    make_job(enqueued_at=ago(10 * 86400))


def test_the_retentions_of_the_settings_hold(prune: Run, old_jobs: None) -> None:
    assert prune() == [
        "successful jobs: 3 deleted that ended more than 7d ago",
        "cancelled jobs: 1 deleted that ended more than 7d ago",
        "failed jobs: 0 deleted that ended more than 30d ago",
        *NOTHING_ELSE,
    ]
    assert (count_jobs(), count_jobs(status="failed"), count_jobs(status="ready")) == (3, 2, 1)


def test_other_retentions_can_be_given(prune: Run, old_jobs: None) -> None:
    lines = prune("--retention", "11d", "--failed-retention", "36h")
    assert lines[0] == "successful jobs: 0 deleted that ended more than 11d ago"
    assert lines[2] == "failed jobs: 2 deleted that ended more than 36h ago"
    assert count_jobs() == 5


def test_what_is_kept_for_ever_stays(prune: Run, old_jobs: None) -> None:
    with override_settings(PGJOBS={"RETENTION_SECONDS": None, "FAILED_RETENTION_SECONDS": 60}):
        lines = prune()
        assert lines[0] == "successful jobs: kept for ever, as PGJOBS['RETENTION_SECONDS'] is None"
        assert lines[2].startswith("failed jobs: 2 deleted")
        assert count_jobs() == 5
        assert prune("--dry-run")[1].startswith("cancelled jobs: kept for ever")


def test_a_dry_run_counts_and_deletes_nothing(
    prune: Run, old_jobs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    awaited = make_job()
    enqueue_after(awaited)
    for job_id in (awaited, make_job()):
        ended = "status = 'failed', finished_at = now() - interval '40 days'"
        execute(f"UPDATE pgjobs_job SET {ended} WHERE id = %s", job_id)
    before = count_jobs()
    monkeypatch.setattr(prune_module, "MAX_COUNTED", 3)
    assert prune("--dry-run") == [
        "successful jobs: at least 3 would be deleted that ended more than 7d ago",
        "cancelled jobs: 1 would be deleted that ended more than 7d ago",
        "failed jobs: 1 would be deleted that ended more than 30d ago",
        "workflows: 0 would be deleted, with their jobs",
    ]
    assert count_jobs() == before


@pytest.mark.slow
def test_a_dry_run_counts_the_workflows_that_go(
    prune: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a notice those that owners were told of so long ago; else all whose time is over."""
    open_old(), open_old(), open_old("failed", fails=True), open_old("young", hours=0)
    words = ("--retention", "30m", "--failed-retention", "2h")

    def counted() -> list[str]:
        return [line for line in prune(*words, "--dry-run") if "workflows" in line]

    assert counted() == ["workflows: 2 would be deleted, with their jobs"]
    with override_settings(PGJOBS={"WORKFLOW_NOTICE_SECONDS": 600}):
        assert counted() == ["workflows: 0 would be deleted, with their jobs"]
        prune(*words)
        execute("UPDATE pgjobs_batch SET told_at = told_at - interval '10 m'")
        assert counted() == ["workflows: 2 would be deleted, with their jobs"]
    monkeypatch.setattr(prune_module, "MAX_COUNTED", 1)
    assert counted() == ["workflows: at least 1 would be deleted, with their jobs"]
    assert "workflows: 2 deleted" in prune(*words)


def test_it_lets_go_who_waits_for_what_has_ended_and_ends_nothing_itself(prune: Run) -> None:
    """What a worker would do at once, so that the ended jobs may go."""
    late = make_job(expires_at=ago(60), queue_name="other")
    awaited = make_job()
    waiting = enqueue_after(awaited, after_failure="run")
    execute("UPDATE pgjobs_job SET status = 'failed', finished_at = now() WHERE id = %s", awaited)
    prune("--dry-run")
    assert get_job(waiting).hold == "dependencies"
    prune()
    assert get_job(waiting).hold is None
    assert get_job(late).status == "ready"


def test_workers_that_ended_and_unused_states_go(prune: Run) -> None:
    for seconds in (10**6, 10):
        make_worker(ended_at=ago(seconds))
    for key, seconds in (("old", 10**6), ("new", 10)):
        next_free = datetime.now(UTC) - timedelta(seconds=seconds)
        RateState.objects.create(key=key, next_free=next_free)
    assert prune()[4:] == [
        "rows of workers: 1 deleted",
        "occurrences of schedules: 0 deleted",
        "states of rate limits: 1 deleted",
    ]
    assert RateState.objects.get().key == "new"


def test_a_job_that_cannot_be_deleted_is_named(
    capsys: pytest.CaptureFixture[str],
    open_connection: Callable[..., psycopg.Connection],
    old_jobs: None,
) -> None:
    kept = make_job(status="successful", finished_at=ago(9 * 86400))
    owner = open_connection()
    owner.execute(
        sql.SQL(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " IF OLD.id = {} THEN RAISE 'not this one'; END IF; RETURN OLD; END $$;"
            " CREATE TRIGGER refuse BEFORE DELETE ON pgjobs_job_finished"
            " FOR EACH ROW EXECUTE FUNCTION refuse()"
        ).format(kept)
    )
    try:
        with pytest.raises(CommandError, match=f"1 job could not be deleted, such as {kept};"):
            call_command("jobs", "prune")
    finally:
        owner.execute("DROP FUNCTION refuse CASCADE")
    assert capsys.readouterr().out.startswith("successful jobs: 3 deleted")


@pytest.mark.parametrize("given", ["0", "0s", "7", "1w"])
def test_a_retention_that_is_none_is_refused_with_what_would_be_one(given: str) -> None:
    with pytest.raises(CommandError, match=f"--retention: .*unit, 1s or more, .*, got '{given}'"):
        call_command("jobs", "prune", "--retention", given)


@pytest.mark.slow
@pytest.mark.parametrize("flags", [(), ("--dry-run",)], ids=["it deletes", "it counts"])
def test_a_standby_is_refused_in_one_line_with_3(
    private_database: PrivateCluster, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...]
) -> None:
    with temporary_standby(private_database) as standby:
        connections.settings["standby"] = connections.settings["default"] | parse_url(
            standby.url("pgjobs")
        )
        try:
            with override_settings(PGJOBS={"WORKER_DATABASE": "standby"}):
                with pytest.raises(
                    CommandError, match=r"^the database 'standby' cannot "
                ) as caught:
                    call_command("jobs", "prune", *flags)
        finally:
            del connections["standby"], connections.settings["standby"]
    assert "takes no writes" in str(caught.value) or "hot standby" in str(caught.value)
    assert (caught.value.returncode, "\n" in str(caught.value)) == (3, False)
    assert capsys.readouterr().out == ""


def test_a_connection_that_is_lost_halfway_ends_with_3(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: Any, **options: Any) -> int:
        raise psycopg.OperationalError("the server is\ngone")

    monkeypatch.setattr(prune_module, "count_old_jobs", fail)
    with pytest.raises(CommandError, match=r"^not all was pruned: the server is gone$") as caught:
        call_command("jobs", "prune", "--dry-run")
    assert caught.value.returncode == 3


def test_the_help_says_what_is_deleted_when(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        call_command("jobs", "prune", "--help")
    said = capsys.readouterr().out
    for words in (
        "FAILED_RETENTION_SECONDS",
        "--dry-run changes nothing",
        "jobs prune --retention 1d",
        "100,000",
        "wait for ended ones are released, or cancelled",
        "are left to workers, which end them",
    ):
        assert words in said
