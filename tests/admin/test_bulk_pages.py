"""The page that asks before a bulk change, what is done when it comes back, and its progress."""

from __future__ import annotations

import html
from typing import Any

import pytest
from django.contrib.admin.models import DELETION, LogEntry
from django.core import signing
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from psycopg import sql

from django_pgjobs.admin.bulk import asking
from django_pgjobs.bulk import preview as previewing
from django_pgjobs.bulk.actions import ACTIONS
from django_pgjobs.bulk.selection import Selection
from django_pgjobs.models import BulkChange
from tests.admin.bulk_support import FAILED, address, confirm, log_in, said, text_of, token_of
from tests.factories import count_jobs, get_job, make_job, make_jobs, make_running_job
from tests.odd_rows import admit_odd_values
from tests.test_admin import NOW, ROWS, page

pytestmark = pytest.mark.django_db


def test_the_page_says_what_would_be_changed_and_what_is_skipped(admin_client: Client) -> None:
    make_jobs(3, "shop.tasks.a", status="failed", finished_at=NOW, queue_name="mail")
    make_job("shop.tasks.b", status="cancelled", finished_at=NOW)
    make_jobs(2)
    make_running_job()
    make_job(attempts=2, due_at=sql.SQL("now() + interval '1 hour'"))
    text = text_of(admin_client, address("requeue", Selection({})))
    assert "4 jobs." in text
    assert "● Ready 3" in text
    assert "▶ Running 1" in text
    assert "1 of them waits for its retry" in text
    assert "mail shop.tasks.a 3" in text
    assert "default shop.tasks.b 1" in text


@pytest.mark.parametrize("count", [1, 12])
def test_the_button_says_what_it_does_to_how_many(admin_client: Client, count: int) -> None:
    make_jobs(count, status="failed", finished_at=NOW)
    text = admin_client.get(address("requeue", FAILED)).content.decode()
    jobs = "1 job" if count == 1 else f"{count} jobs"
    assert f'value="Requeue: {jobs}"' in text


def test_the_page_says_more_than_it_counts(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(previewing, "MAX_COUNTED", 5)
    monkeypatch.setattr(asking, "MAX_COUNTED", 5)
    monkeypatch.setattr(previewing, "MAX_SKIPPED", 3)
    monkeypatch.setattr(asking, "MAX_SKIPPED", 3)
    monkeypatch.setattr(previewing, "_count_exactly", lambda *args, **flags: None)
    make_jobs(9, status="failed", finished_at=NOW)
    make_jobs(9)
    text = text_of(admin_client, address("requeue", Selection({})))
    assert "more than 5 jobs" in text
    assert "● Ready more than 3" in text
    assert "done by a worker, in the background" in text
    assert "Where 5 of them are" in text
    assert "default tests.tasks.add 5 " in text


def test_the_page_says_if_it_did_not_look_at_everything(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(previewing, "MAX_ROWS", 4)
    make_jobs(3, "shop.tasks.a")
    make_jobs(3)
    for number in range(6):
        end = sql.SQL("now() - make_interval(secs => {})").format(number)
        make_job("shop.tasks.a", status="failed", finished_at=end)
    where = address("discard", Selection({"task_path": "shop.tasks.a"})) + "&count=1"
    text = text_of(admin_client, where)
    assert "9 jobs." in text
    assert "✕ Failed 6, ● Ready 3" in text
    assert "Where they are Queue Task Jobs default shop.tasks.a 9 Some" in text


def test_the_numbers_of_queues_and_tasks_add_up_to_the_number_of_jobs(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were those of the first 10,001, on a page that said 15,000."""
    monkeypatch.setattr(previewing, "MAX_COUNTED", 5)
    make_jobs(4, status="failed", finished_at=NOW)
    make_jobs(6, status="failed", finished_at=NOW, queue_name="mail")
    text = text_of(admin_client, address("requeue", FAILED) + "&count=1")
    assert "10 jobs. ✕ Failed 10 " in text
    assert "Jobs mail tests.tasks.add 6 default tests.tasks.add 4 Some of them" in text


def test_a_count_that_takes_too_long_is_left_out(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_job(status="failed", finished_at=NOW)

    def read_for_ever(*args: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(5)")

    for name in ("COUNT_SECONDS", "EXACT_SECONDS"):
        monkeypatch.setattr(previewing, name, 0.01)
    for name in ("_preview", "_walk_of"):
        monkeypatch.setattr(previewing, name, read_for_ever)
    assert "too long to count" in text_of(admin_client, address("requeue", FAILED) + "&count=1")


@pytest.mark.parametrize("verb", ACTIONS)
def test_no_page_that_asks_takes_more_than_its_budget(verb: str) -> None:
    client = log_in("view_job", "operate_job", "delete_job", "reveal_job")
    make_jobs(500, status="failed", finished_at=NOW)
    make_jobs(500)
    for lookups in ({}, {"task_path": "tests.tasks.add"}, {"id__in": [1, 2]}):
        with CaptureQueriesContext(connection) as queries:
            response = client.get(address(verb, Selection(lookups)))
        assert response.status_code == 200
        # The test's own transaction makes savepoints of what is a transaction of its own.
        # So do the four budgets of time, each a few statements.
        assert len(queries) <= 22, [query["sql"][:80] for query in queries]
        assert len(response.content) < 150_000


def test_hostile_rows_are_shown_escaped(admin_client: Client) -> None:
    admit_odd_values()
    for columns in ROWS.values():
        make_job(**columns)
    text = admin_client.get(address("export", Selection({}))).content.decode()
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text


def test_a_small_change_is_done_at_once_and_told(admin_client: Client) -> None:
    ids = make_jobs(3, status="failed", finished_at=NOW)
    stuck = make_job(status="failed", finished_at=NOW, unique_key="k")
    twin = make_job(unique_key="k")
    back = page("job", "changelist") + "?tab=failed"
    where = address("requeue", FAILED, back=back)
    token = token_of(admin_client, where)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM pgjobs_job WHERE id = %s", [ids[0]])
    response = admin_client.post(where, {"preview": token, "when": "now", "reason": "why not"})
    assert (response.status_code, response["Location"]) == (302, back)
    text = said(admin_client)
    assert text == (f"2 jobs requeued, 1 passed over, 1 in conflict with a unique job (#{twin}).")
    assert get_job(stuck).status == "failed"
    change = BulkChange.objects.get()
    assert (change.total, change.reason) == (4, "why not")
    assert LogEntry.objects.filter(object_id=str(ids[1])).count() == 1
    assert "why not" in LogEntry.objects.get(object_id=str(change.pk)).change_message


@pytest.mark.parametrize("verb", [verb for verb in ACTIONS if verb != "export"])
def test_every_action_can_be_confirmed(admin_client: Client, verb: str) -> None:
    make_jobs(2, status="failed", finished_at=NOW)
    make_job(due_at=sql.SQL("now() + interval '1 hour'"))
    fields = {"when": "in", "amount": "2", "unit": "60"} if verb == "postpone" else {}
    response = confirm(admin_client, address(verb, Selection({})), queue_name="other", **fields)
    assert response.status_code == 302
    change = BulkChange.objects.get()
    assert change.finished_at is not None
    assert change.changed == {"requeue": 2, "discard": 3, "delete": 2}.get(verb, 1)


@pytest.mark.parametrize(
    ("verb", "fields", "problem"),
    [
        ("requeue", {"when": "spread", "amount": "", "unit": "60"}, "Say how long."),
        ("requeue", {"when": "spread", "amount": "-1", "unit": "60"}, "greater than or equal to 1"),
        ("requeue", {"when": "spread", "amount": "9999999", "unit": "86400"}, "at most ten years"),
        ("requeue", {"when": "spread", "amount": "9" * 400, "unit": "60"}, "at most ten years"),
        ("postpone", {"when": "in", "amount": "9" * 400, "unit": "1"}, "at most ten years"),
        ("requeue", {"when": "at", "at": ""}, "Say when."),
        ("requeue", {"when": "at", "at": "soon"}, "Enter a valid date/time."),
        (
            "requeue",
            {"when": "at", "at": "9999-12-31 23:59"},
            "Expected a time from 0001-01-02 00:00+00:00 to 9999-12-30 00:00+00:00.",
        ),
        ("requeue", {"when": "never"}, "Select a valid choice"),
        ("postpone", {"when": "now"}, "Select a valid choice"),
        ("move", {}, "Give a queue, a priority, or both."),
        ("move", {"priority": "101"}, "less than or equal to 100"),
        ("move", {"queue_name": "x" * 129}, "at most 128 bytes"),
        ("cancel", {"reason": "x" * 501}, "at most 500 characters"),
    ],
)
def test_a_form_that_is_wrong_says_so_and_does_nothing(
    admin_client: Client, verb: str, fields: dict[str, str], problem: str
) -> None:
    make_job(status="failed", finished_at=NOW)
    make_job()
    response = confirm(admin_client, address(verb, Selection({})), **fields)
    assert response.status_code == 200
    assert problem in html.unescape(response.content.decode())
    assert not BulkChange.objects.exists()


def test_options_of_a_retry_reach_the_jobs(admin_client: Client) -> None:
    job_id = make_job(status="failed", finished_at=NOW)
    waiting = make_job(attempts=3, due_at=sql.SQL("now() + interval '1 hour'"))
    fields = {"when": "at", "at": "2090-01-02T03:04", "reset_attempts": "on"}
    confirm(admin_client, address("requeue", Selection({})), **fields)
    # The time zone of the tests is five hours and 45 minutes ahead.
    assert get_job(job_id).run_after.isoformat() == "2090-01-01T21:19:00+00:00"
    assert get_job(waiting).attempts == 0
    assert BulkChange.objects.get().total == 2


def test_what_is_deleted_keeps_its_name_in_the_log(admin_client: Client) -> None:
    job_id = make_job("shop.tasks.send", status="failed", finished_at=NOW)
    confirm(admin_client, address("delete", FAILED))
    entry = LogEntry.objects.get(object_id=str(job_id), action_flag=DELETION)
    assert entry.object_repr == f"shop.tasks.send #{job_id}"


def test_jobs_that_fail_after_the_preview_are_left_alone(admin_client: Client) -> None:
    make_job(status="failed", finished_at=NOW)
    where = address("requeue", FAILED)
    token = token_of(admin_client, where)
    later = make_job(status="failed", finished_at=sql.SQL("clock_timestamp() + interval '1 s'"))
    admin_client.post(where, {"preview": token, "when": "now"})
    assert get_job(later).status == "failed"
    assert count_jobs(status="ready") == 1


@pytest.mark.parametrize("selection", ["", "x", "tampered", "expired", "unknown lookup"])
def test_a_link_that_is_damaged_or_old_is_refused(admin_client: Client, selection: str) -> None:
    job_id = make_job(status="failed", finished_at=NOW)
    good = signing.dumps(FAILED.to_json(), salt=asking.SALT, compress=True)
    given = {
        "tampered": good[:-2] + "xx",
        "expired": signing.dumps(FAILED.to_json(), salt="another"),
        "unknown lookup": signing.dumps({"lookups": {"args__x": 1}}, salt=asking.SALT),
    }.get(selection, selection)
    query = {"verb": "requeue", "selection": given}
    for response in (
        admin_client.get(page("job", "bulk"), query),
        admin_client.post(
            page("job", "bulk") + f"?verb=requeue&selection={given}", {"when": "now"}
        ),
    ):
        assert response.status_code == 302
        assert response["Location"] == page("job", "changelist")
    assert "damaged or too old" in said(admin_client)
    assert get_job(job_id).status == "failed"


def test_an_unknown_action_is_refused(admin_client: Client) -> None:
    assert admin_client.get(address("explode", FAILED)).status_code == 302
    assert admin_client.post(address("explode", FAILED)).status_code == 302


def test_a_preview_of_another_page_person_or_time_does_nothing(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = make_job(status="failed", finished_at=NOW)
    where = address("requeue", FAILED)
    theirs = token_of(log_in("view_job", "operate_job"), where)
    discarding = token_of(admin_client, address("discard", FAILED))
    everything = token_of(admin_client, address("requeue", Selection({})))
    for token in ("", "x", theirs, discarding, everything):
        response = admin_client.post(where, {"preview": token, "when": "now"})
        assert response["Location"] == where
    token = token_of(admin_client, where)
    monkeypatch.setattr(asking, "FORM_SECONDS", -1)
    admin_client.post(where, {"preview": token, "when": "now"})
    assert "too old" in said(admin_client)
    assert get_job(job_id).status == "failed"


def test_one_returns_to_a_page_of_this_site_only(admin_client: Client) -> None:
    make_job(status="failed", finished_at=NOW)
    where = address("requeue", FAILED, back="https://evil.example/")
    assert confirm(admin_client, where)["Location"] == page("job", "changelist")


def test_nothing_to_do_is_said(admin_client: Client) -> None:
    make_job()
    assert "no job that this can be done to" in text_of(admin_client, address("requeue", FAILED))


@pytest.mark.parametrize("verb", [verb for verb in ACTIONS if verb != "export"])
@pytest.mark.parametrize("method", ["get", "post"])
def test_who_may_only_view_can_do_nothing(verb: str, method: str) -> None:
    job_id = make_job(status="failed", finished_at=NOW)
    client = log_in("view_job")
    assert getattr(client, method)(address(verb, FAILED)).status_code == 403
    assert get_job(job_id).status == "failed"


def test_deleting_and_operating_are_two_permissions() -> None:
    client = log_in("view_job", "operate_job")
    assert client.get(address("requeue", FAILED)).status_code == 200
    assert client.get(address("delete", FAILED)).status_code == 403


def test_who_may_not_even_view_sees_none_of_the_pages() -> None:
    client = log_in()
    for where in (address("export", FAILED), page("job", "bulk"), page("job", "bulk_progress", 1)):
        assert client.get(where).status_code == 403
