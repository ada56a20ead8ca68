"""What a bulk change leaves as it is, although it is asked for: others need it, or refuse."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, connection
from django.test import Client
from psycopg import sql

from django_pgjobs import workflow
from django_pgjobs.bulk.actions import ACTIONS
from django_pgjobs.bulk.changes import run_change, run_page
from django_pgjobs.bulk.selection import Selection
from django_pgjobs.control.changing import Effect
from django_pgjobs.models import BulkChange, Job
from django_pgjobs.queries.dependencies import resolve_dependencies
from tests.admin.bulk_support import address, confirm, text_of
from tests.admin.test_bulk import NOW, change_of, do
from tests.factories import count_jobs, get_job, make_job, make_jobs
from tests.tasks import add

pytestmark = pytest.mark.django_db


@pytest.fixture
def boss() -> User:
    """Somebody who may do everything."""
    return User.objects.create_superuser("boss")


def wait_unresolved(status: str, after_failure: str) -> tuple[int, int]:
    """Return a job that nobody has resolved since it ended, and one that waits for it."""
    ended, waiting = make_job(), make_job(hold="dependencies", waits_for=1)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO pgjobs_dependency (job_id, predecessor_id, after_failure)"
            " VALUES (%s, %s, %s)",
            [waiting, ended, after_failure],
        )
        cursor.execute(
            "UPDATE pgjobs_job SET status = %s, finished_at = now() WHERE id = %s", [status, ended]
        )
    return ended, waiting


@pytest.mark.parametrize(
    ("status", "after_failure", "deleted"),
    [
        ("failed", "cancel", 0),
        ("cancelled", "hold", 0),
        ("failed", "run", 1),
        ("successful", "cancel", 1),
    ],
)
def test_a_failure_that_a_waiting_job_has_not_learnt_of_is_not_deleted(
    boss: User, status: str, after_failure: str, deleted: int
) -> None:
    """A job that is gone counts as a success: what was to be cancelled ran."""
    ended, waiting = wait_unresolved(status, after_failure)
    change = do(boss, "delete", ended)
    assert (change.changed, change.passed_over) == (deleted, 1 - deleted)
    with connection.cursor() as cursor:
        resolve_dependencies(cursor, [ended])
    expected = {"cancel": ("cancelled", None), "hold": ("ready", "predecessor failed")}
    found = get_job(waiting)
    assert (found.status, found.hold) == (("ready", None) if deleted else expected[after_failure])
    assert do(boss, "delete", ended).changed == 1 - deleted


def test_what_a_deletion_spares_is_not_among_what_it_is_about(admin_client: Client) -> None:
    """The page said 5 jobs, of which none was deleted, and then that they had changed."""
    with workflow("open") as batch:
        batch.add_many(add, ({"a": number, "b": 0} for number in range(6)))
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgjobs_job SET status = 'failed', finished_at = now()"
            " WHERE batch_id = %s AND id < (SELECT max(id) FROM pgjobs_job)",
            [batch.pk],
        )
    where = address("delete", Selection({"status": "failed"}))
    assert "There is no job that this can be done to." in text_of(admin_client, where)
    make_jobs(2, status="failed", finished_at=sql.SQL("now() - interval '1 hour'"))
    text = text_of(admin_client, where)
    assert "2 jobs." in text
    assert "Skipped, because this cannot be done to them: ✕ Failed" in text
    confirm(admin_client, where)
    change = BulkChange.objects.get()
    assert (change.total, change.changed, change.passed_over) == (2, 2, 0)
    assert count_jobs(status="failed") == 5


AUDIT = """
CREATE FUNCTION refuse_audited() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.task_path = 'tests.tasks.audited' THEN
        RAISE EXCEPTION 'job % is being audited', OLD.id;
    END IF;
    IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER refuse_audited BEFORE UPDATE OR DELETE ON pgjobs_job_finished
FOR EACH ROW EXECUTE FUNCTION refuse_audited();
"""


@pytest.mark.parametrize("verb", ["delete", "discard", "requeue"])
def test_a_job_that_a_trigger_refuses_to_change_stops_no_others(
    boss: User, caplog: pytest.LogCaptureFixture, verb: str
) -> None:
    """No attempt got past the page, so the change never ended."""
    with connection.cursor() as cursor:
        cursor.execute(AUDIT)
    make_jobs(5, status="failed", finished_at=NOW)
    audited = make_jobs(2, "tests.tasks.audited", status="failed", finished_at=NOW)
    make_jobs(6, status="failed", finished_at=NOW)
    change = change_of(boss, verb, Selection({"status": "failed"}))
    assert len(run_change(change.pk).changed) == 11
    change.refresh_from_db()
    assert (change.changed, change.passed_over, change.error) == (11, 2, "")
    assert change.finished_at is not None
    assert set(Job.objects.filter(status="failed").values_list("pk", flat=True)) == set(audited)
    assert f"job {audited[0]} is being audited" in caplog.text


def test_what_the_database_lacks_is_no_fault_of_a_job(
    boss: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_jobs(3, status="failed", finished_at=NOW)

    def ask_for_what_is_not_there(cursor: Any, *args: Any) -> Effect:
        cursor.execute("SELECT pgjobs_of_the_future()")
        return Effect()

    monkeypatch.setitem(
        ACTIONS, "delete", replace(ACTIONS["delete"], apply=ask_for_what_is_not_there)
    )
    change = change_of(boss, "delete", Selection({"status": "failed"}))
    with pytest.raises(DatabaseError):
        run_page(change.pk)
    change.refresh_from_db()
    assert (change.passed_over, change.finished_at) == (0, None)
