"""What a bulk change says of jobs that it passed over: one of them, and why it stayed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils.translation import override

from django_pgjobs import workflow
from django_pgjobs.admin.refusals import in_words
from django_pgjobs.bulk import changes
from django_pgjobs.bulk.actions import ACTIONS
from django_pgjobs.bulk.selection import Selection
from django_pgjobs.control.changing import refusal_text
from django_pgjobs.control.leaving import why_locked, why_not_deleted, why_not_requeued
from django_pgjobs.testing import run_jobs
from tests import tasks
from tests.admin.bulk_support import FAILED, address, confirm, said, token_of
from tests.admin.test_job_page import LATER
from tests.factories import make_batch, make_job, make_jobs
from tests.helpers import connect
from tests.test_admin import NOW
from tests.test_translations import ENGLISH

pytestmark = pytest.mark.django_db

REFUSING = """
CREATE FUNCTION pg_temp.refuse() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN RAISE EXCEPTION 'on legal hold' USING DETAIL = 'secret', ERRCODE = 'check_violation'; END$$;
CREATE TRIGGER refuse BEFORE INSERT ON pgjobs_job_live
FOR EACH ROW WHEN (new.id = {id}) EXECUTE FUNCTION pg_temp.refuse();
"""


def test_one_of_a_cancelled_batch_is_named(admin_client: Client) -> None:
    with workflow("nightly") as flow:
        job_id = flow.add(tasks.add.s(1, 1))[0]
    flow.cancel()
    run_jobs()
    make_jobs(2, status="cancelled", finished_at=NOW)
    confirm(admin_client, address("requeue", Selection({"status": "cancelled"})))
    assert said(admin_client) == (
        f"2 jobs requeued, 1 passed over. For example job {job_id}: its batch was cancelled. Retry "
        "that."
    )


def test_one_that_the_server_refuses_is_named_without_its_row(admin_client: Client) -> None:
    ids = make_jobs(3, status="failed", finished_at=NOW)
    with connection.cursor() as cursor:
        cursor.execute(REFUSING.format(id=ids[1]))
    confirm(admin_client, address("requeue", FAILED))
    assert said(admin_client) == (
        f"2 jobs requeued, 1 passed over. For example job {ids[1]}: the database refused it: on "
        "legal hold."
    )


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("verb", "why"),
    [
        ("requeue", "locked by another transaction. Try again when that has ended."),
        ("delete", "an open workflow or a waiting job needs it, or another transaction has "),
    ],
)
def test_one_that_is_locked_is_named(admin_client: Client, verb: str, why: str) -> None:
    ids = make_jobs(3, status="failed", finished_at=NOW)
    with connect(autocommit=False) as other:
        other.execute("SELECT FROM pgjobs_job WHERE id = %s FOR UPDATE", [ids[1]])
        confirm(admin_client, address(verb, FAILED))
    assert f"1 passed over. For example job {ids[1]}: {why}" in said(admin_client)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("verb", "columns", "change", "why"),
    [
        ("run_now", {"due_at": LATER}, "due_at = NULL", "it is due by now."),
        ("run_now", {"due_at": LATER}, "status = 'failed'", "it is failed by now."),
        (
            "cancel",
            {"status": "running"},
            "cancel_requested_at = now()",
            "it has been asked to end.",
        ),
    ],
)
def test_of_one_that_changes_meanwhile_it_is_said_what_it_is_by_then(
    admin_client: Client,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    columns: dict[str, Any],
    change: str,
    why: str,
) -> None:
    """It has the status still that the change is for, or not."""
    job_id, unchanged = make_job(**columns), make_job(**columns)
    with connect(autocommit=False) as other:
        other.execute(f"UPDATE pgjobs_job SET {change} WHERE id = %s", [job_id])

        def run_page(change_id: int) -> changes.Page:
            try:
                return real(change_id)
            finally:
                other.commit()

        real = changes.run_page
        monkeypatch.setattr(changes, "run_page", run_page)
        confirm(admin_client, address(verb, Selection.ids([job_id, unchanged])))
    assert said(admin_client).endswith(f", 1 passed over. For example job {job_id}: {why}")


def test_of_one_that_is_gone_nothing_more_is_said(admin_client: Client) -> None:
    ids = make_jobs(3, status="failed", finished_at=NOW)
    where = address("requeue", FAILED)
    token = token_of(admin_client, where)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM pgjobs_job WHERE id = %s", [ids[0]])
    admin_client.post(where, {"preview": token, "when": "now", "reason": ""})
    assert said(admin_client) == "2 jobs requeued, 1 passed over."


def reasons() -> Iterator[str]:
    """Yield what may be said."""
    with connection.cursor() as cursor:
        job = make_job(status="cancelled", finished_at=NOW)
        for why in (why_locked, why_not_deleted, why_not_requeued):
            yield why(cursor, job)
        batch = make_batch(cancel_requested_at=NOW)
        yield why_not_requeued(
            cursor, make_job(status="cancelled", finished_at=NOW, batch_id=batch)
        )
        batch = make_batch(deleting_at=NOW)
        yield why_not_requeued(
            cursor, make_job(status="cancelled", finished_at=NOW, batch_id=batch)
        )
    yield "it does not exist any more."
    yield "it is failed by now."
    yield from (action.overtaken for action in ACTIONS.values() if action.overtaken)
    yield refusal_text("xyz")


def test_it_is_said_in_the_language_of_the_person() -> None:
    for text in reasons():
        with override("de"):
            told = in_words(text)
        assert told != text
        assert not ENGLISH.search(told), told
