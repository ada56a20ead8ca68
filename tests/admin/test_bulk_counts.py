"""What the page before a bulk change says is what happens: how many jobs, and which others."""

from __future__ import annotations

import html
import re
import time
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from psycopg import sql

from django_pgjobs.admin.bulk import asking
from django_pgjobs.bulk import preview as previewing
from django_pgjobs.bulk.actions import ACTIONS
from django_pgjobs.bulk.selection import Selection
from django_pgjobs.models import BulkChange
from tests.admin.bulk_support import (
    address,
    confirm,
    confirm_again,
    counting,
    let_counts_take,
    post,
    text_of,
    token_of,
)
from tests.factories import count_jobs, make_job, make_jobs

pytestmark = pytest.mark.django_db

OLD = {"task_path": "shop.tasks.old"}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows and bounds that a few jobs exceed."""
    monkeypatch.setattr(previewing, "MAX_ROWS", 3)
    monkeypatch.setattr(asking, "UNTYPED_JOBS", 4)


def make_old_jobs(count: int, status: str) -> None:
    """Make jobs that lie behind the newest ones of their status, which others are."""
    for number in range(count + 5):
        path = "shop.tasks.new" if number < 5 else OLD["task_path"]
        end = sql.SQL("now() - make_interval(mins => {})").format(number)
        make_job(path, status=status, finished_at=None if status == "ready" else end)


@pytest.fixture
def nothing_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts beyond the newest rows take too long."""
    for name in ("QUICK_SECONDS", "EXACT_SECONDS"):
        monkeypatch.setattr(previewing, name, 0.01)
    let_counts_take(monkeypatch, 5)


@pytest.fixture
def counted_later(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts beyond the newest rows take too long for a page that is to be there at once."""
    monkeypatch.setattr(previewing, "QUICK_SECONDS", 0.02)
    monkeypatch.setattr(previewing, "EXACT_SECONDS", 60)
    let_counts_take(monkeypatch, 0.1)


def test_a_deletion_of_old_jobs_says_how_many_they_are(small: None, admin_client: Client) -> None:
    """The newest rows hold none of them, and the page said 0."""
    make_old_jobs(7, "successful")
    where = address("delete", Selection({"status": "successful", **OLD}))
    assert "7 jobs." in text_of(admin_client, where)
    confirm(admin_client, where, typed="7")
    assert count_jobs(task_path=OLD["task_path"]) == 0
    assert count_jobs(task_path="shop.tasks.new") == 5


def test_a_cancellation_says_how_many_it_is_about(small: None, admin_client: Client) -> None:
    make_old_jobs(2, "ready")
    make_jobs(3, OLD["task_path"])
    where = address("cancel", Selection({"status__in": ["ready"], **OLD}))
    assert "5 jobs." in text_of(admin_client, where)
    confirm(admin_client, where, typed="5")
    assert count_jobs(status="cancelled") == 5


@pytest.mark.slow
def test_a_page_that_is_to_be_there_at_once_counts_once_if_that_took_most_of_its_time(
    small: None, admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    total, places, asked = previewing.Walk.total, previewing.Walk.places, list[int]()

    monkeypatch.setattr(previewing, "QUICK_SECONDS", 0.5)

    def slow_total(walk: previewing.Walk) -> int:
        found = total(walk)
        time.sleep(0.6 * previewing.QUICK_SECONDS)
        return found

    def noted_places(walk: previewing.Walk) -> Any:
        found = places(walk)
        asked.append(1)
        return found

    monkeypatch.setattr(previewing.Walk, "total", slow_total)
    monkeypatch.setattr(previewing.Walk, "places", noted_places)
    make_old_jobs(7, "successful")
    where = address("delete", Selection({"status": "successful", **OLD}))
    assert "7 jobs." in text_of(admin_client, where)
    assert not asked
    assert "7 jobs." in text_of(admin_client, counting(where))
    assert asked


def test_what_cannot_be_counted_is_said_to_be_so(
    small: None, nothing_is_counted: None, admin_client: Client
) -> None:
    make_old_jobs(7, "successful")
    where = counting(address("delete", Selection({"status": "successful", **OLD})))
    text = text_of(admin_client, where)
    assert "They take too long to count." in text
    assert " 0 jobs" not in text
    make_jobs(2, "shop.tasks.new", status="successful", finished_at=sql.SQL("now()"))
    where = counting(address("delete", Selection({"task_path": "shop.tasks.new"})))
    text = text_of(admin_client, where)
    assert "at least" in text
    assert "How many exactly takes too long to count." in text


def test_what_retries_cancels_nothing_that_had_to_be_counted(
    small: None, nothing_is_counted: None, admin_client: Client
) -> None:
    make_old_jobs(7, "successful")
    where = counting(address("requeue", Selection({"status": "successful", **OLD})))
    assert "cancelled with them" not in text_of(admin_client, where)


def test_the_page_is_there_at_once_and_counts_when_it_is_asked_again(
    counted_later: None, admin_client: Client
) -> None:
    make_old_jobs(7, "successful")
    where = address("delete", Selection({"status": "successful", **OLD}))
    response = admin_client.get(where).content.decode()
    assert "Every job of the selection that this can be done to is meant." in response
    assert "too long" not in response
    assert " 0 jobs" not in response
    found = re.search(r'data-pgjobs-source="([^"]+)" data-pgjobs-unfinished', response)
    assert found
    assert html.unescape(found[1]) == counting(where)
    assert f'<a href="{found[1]}">Count all</a>' in response
    response = admin_client.get(counting(where)).content.decode()
    assert "<strong>7</strong> jobs." in response
    assert "data-pgjobs-done" in response
    assert "Count all" not in response


@pytest.mark.slow
def test_nothing_ends_before_it_was_tried_to_count_it(
    counted_later: None, admin_client: Client
) -> None:
    """Without scripts, or for who is quicker than they are."""
    make_old_jobs(7, "successful")
    where = address("delete", Selection({"status": "successful", **OLD}))
    status_code, text = post(admin_client, where, token_of(admin_client, where), typed="Delete")
    assert status_code == 200
    assert "They are counted now: look again." in text
    assert "Type “7”." in text
    assert not BulkChange.objects.exists()
    confirm_again(admin_client, where, text, typed="7")
    assert count_jobs(task_path=OLD["task_path"]) == 0


def test_what_ends_nothing_is_counted_when_it_is_done(
    counted_later: None, admin_client: Client
) -> None:
    make_old_jobs(7, "failed")
    confirm(admin_client, address("requeue", Selection({"status": "failed", **OLD})))
    change = BulkChange.objects.get()
    assert (change.total, change.changed, change.job_id) == (7, 7, None)


def test_jobs_that_wait_for_their_retry_are_counted_beside_the_others(small: None) -> None:
    make_old_jobs(7, "failed")
    make_jobs(2, OLD["task_path"], attempts=3)
    make_jobs(4, OLD["task_path"])
    make_jobs(4)
    selection = Selection(OLD).pinned()
    found = previewing.preview(ACTIONS["requeue"], selection, lambda jobs: jobs)
    assert (found.exact, found.more, found.dependants) == (7, 2, 0)


@pytest.mark.parametrize("typed", ["", "6", "Delete", "yes", "-7", "seven"])
def test_many_jobs_are_not_ended_by_a_click(small: None, admin_client: Client, typed: str) -> None:
    make_jobs(7, status="successful", finished_at=sql.SQL("now()"))
    where = address("delete", Selection({"status": "successful"}))
    assert "Type “7”." in text_of(admin_client, where)
    response = confirm(admin_client, where, typed=typed)
    assert response.status_code == 200
    text = response.content.decode()
    assert (text.count("Type “7”."), text.count("not the text asked for")) == (1, 1)
    assert count_jobs() == 7
    assert not BulkChange.objects.exists()


@pytest.mark.parametrize("typed", ["1234", "1,234", "1.234", " 1 234 "])
def test_the_number_may_be_grouped(typed: str) -> None:
    form = asking.EndingForm({"typed": typed})
    form.ask_to_type("1234")
    assert form.is_valid()


def test_few_jobs_are_ended_by_a_click(small: None, admin_client: Client) -> None:
    make_jobs(4, status="successful", finished_at=sql.SQL("now()"))
    where = address("delete", Selection({"status": "successful"}))
    assert "To confirm" not in text_of(admin_client, where)
    confirm(admin_client, where)
    assert count_jobs() == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lookups", "word"), [({"queue_name": "mail"}, "mail"), ({"status": "ready"}, "Cancel")]
)
def test_what_nobody_counted_takes_the_queue_or_the_action(
    small: None,
    nothing_is_counted: None,
    admin_client: Client,
    lookups: dict[str, str],
    word: str,
) -> None:
    make_jobs(7, queue_name="mail")
    where = address("cancel", Selection(lookups | {"task_path__contains": "a"}))
    assert f"Type “{word}”." in text_of(admin_client, where)
    assert confirm(admin_client, where, typed="7").status_code == 200
    assert not BulkChange.objects.exists()
    assert confirm(admin_client, where, typed=word).status_code == 302
    assert BulkChange.objects.get().verb == "cancel"


def test_one_limit_of_time_holds_for_all_rows_of_a_page_that_is_to_be_there_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is skipped took as long again as what is not."""
    make_job()
    make_job(due_at=sql.SQL("now() + interval '1 hour'"))

    def slow(jobs: Any) -> Any:
        return jobs.extra(where=["(SELECT pg_sleep(0.2)) IS NOT NULL"])

    monkeypatch.setattr(previewing, "QUICK_SECONDS", 0.3)
    selection = Selection({"status": "ready"}).pinned()
    assert previewing.preview(ACTIONS["run_now"], selection, slow, is_quick=True).is_unknown


MAIL = Selection({"queue_name": "mail", "status": "ready"})
MORE_NOW = "There are more now: look again."


@pytest.mark.slow
@pytest.mark.parametrize("way", ["requeued", "moved"])
def test_what_comes_into_the_filter_is_looked_at_first(
    small: None, admin_client: Client, way: str
) -> None:
    """Their ids are old and they have no end, so the pin does not leave them out."""
    if way == "requeued":
        ids = make_jobs(7, queue_name="mail", status="failed", finished_at=sql.SQL("now()"))
    else:
        ids = make_jobs(7, queue_name="other")
    make_jobs(2, queue_name="mail")
    where = address("cancel", MAIL)
    token = token_of(admin_client, where)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgjobs_job SET status = 'ready', finished_at = NULL, queue_name = 'mail'"
            " WHERE id = ANY(%s)",
            [ids],
        )
    status_code, text = post(admin_client, where, token)
    assert status_code == 200
    assert MORE_NOW in text
    assert "Type “9”." in text
    assert not BulkChange.objects.exists()
    confirm_again(admin_client, where, text, typed="9")
    assert count_jobs(status="cancelled") == 9


def test_what_takes_too_long_to_count_by_now_is_looked_at_first(
    small: None, admin_client: Client, request: pytest.FixtureRequest
) -> None:
    make_jobs(3, queue_name="mail")
    where = address("cancel", Selection({"queue_name": "mail", "task_path__contains": "a"}))
    token = token_of(admin_client, where)
    make_jobs(3)
    request.getfixturevalue("nothing_is_counted")
    status_code, text = post(admin_client, where, token)
    assert status_code == 200
    assert "There may be more now: look again." in text
    assert "Type “mail”." in text
    assert not BulkChange.objects.exists()


def test_fewer_jobs_need_no_other_look(admin_client: Client) -> None:
    ids = make_jobs(5, queue_name="mail")
    where = address("cancel", MAIL)
    token = token_of(admin_client, where)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgjobs_job SET queue_name = 'other' WHERE id = %s", [ids[0]])
    make_jobs(3, queue_name="mail")
    assert post(admin_client, where, token)[0] == 302
    assert count_jobs(status="cancelled") == 4


@pytest.mark.slow
def test_a_form_with_an_error_asks_for_what_is_to_be_typed_now(
    small: None, admin_client: Client
) -> None:
    make_jobs(2, queue_name="mail")
    where = address("cancel", MAIL)
    token = token_of(admin_client, where)
    make_jobs(7, queue_name="mail")
    status_code, text = post(admin_client, where, token, reason="x" * 501)
    assert status_code == 200
    assert "Type “9”." in text


def test_what_was_not_looked_at_may_run_once_more(
    small: None, nothing_is_counted: None, admin_client: Client
) -> None:
    """The newest rows of a task were failed ones, and nothing was said of the successful ones."""
    make_old_jobs(7, "successful")
    make_old_jobs(2, "failed")
    words = "may have been successful, and run once more."
    where = address("requeue", Selection(OLD))
    for asked in (where, counting(where)):
        assert words in text_of(admin_client, asked)
    failed = address("requeue", Selection({"status": "failed", **OLD}))
    assert words not in text_of(admin_client, failed)


def test_a_page_does_not_wait_for_a_lock_of_the_table(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything was counted it waited without an end."""

    def wait(selection: Selection) -> Selection:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(60)")
        return selection

    monkeypatch.setattr(asking, "PAGE_SECONDS", 0.05)
    monkeypatch.setattr(Selection, "pinned", wait)
    response = admin_client.get(address("delete", Selection({"status": "failed"})))
    assert response.status_code == 503
    assert "Too slow" in response.content.decode()
