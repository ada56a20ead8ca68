"""What a page before a bulk change says of jobs that wait for those that it is about."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from django_pgjobs.admin.bulk import asking
from django_pgjobs.bulk import dependants
from django_pgjobs.bulk import preview as previewing
from django_pgjobs.bulk.selection import Selection
from django_pgjobs.models import Job
from tests.admin.bulk_support import (
    address,
    confirm,
    confirm_again,
    counting,
    post,
    text_of,
    token_of,
)
from tests.factories import count_jobs
from tests.tasks import add
from tests.test_admin import page

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that is to be there at once takes its time: the machine may be busy."""
    monkeypatch.setattr(previewing, "QUICK_SECONDS", 60)


def make_chain() -> Job:
    """Enqueue a job that four others wait for, one of them not to be cancelled with it."""
    first = add.enqueue(1, 2)
    second = add.using(after=[first]).enqueue(1, 2)
    third = add.using(after=[second]).enqueue(1, 2)
    add.using(after=[first, third]).enqueue(1, 2)
    add.using(after=[first], after_failure="run").enqueue(1, 2)
    return Job.objects.get(pk=first.id)


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["cancel", "discard"])
def test_a_change_says_which_others_go_with_it(admin_client: Client, verb: str) -> None:
    job = make_chain()
    where = address(verb, Selection.ids([job.pk]))
    assert "3 other jobs wait for these and are cancelled with them." in text_of(
        admin_client, where
    )
    confirm(admin_client, where)
    assert count_jobs(status="cancelled") == 4
    assert count_jobs(status="ready") == 1


def test_those_that_are_chosen_are_no_others(admin_client: Client) -> None:
    make_chain()
    text = text_of(admin_client, address("cancel", Selection({"status": "ready"})))
    assert "5 jobs." in text
    assert "cancelled with them" not in text


def test_more_than_can_be_counted_is_said_to_be_more(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dependants, "MAX_DEPENDANTS", 2)
    monkeypatch.setattr(asking, "MAX_DEPENDANTS", 2)
    text = text_of(admin_client, address("cancel", Selection.ids([make_chain().pk])))
    assert "more than 2 other jobs" in text


def test_the_page_of_a_job_says_which_others_go_with_it(admin_client: Client) -> None:
    job = make_chain()
    text = text_of(admin_client, page("job", "change", job.pk))
    assert text.count("3 other jobs wait for this one and are cancelled with it.") == 2
    last = Job.objects.order_by("-pk").first()
    assert last is not None
    assert "cancelled with it" not in text_of(admin_client, page("job", "change", last.pk))


def test_dependants_that_take_long_are_counted_when_the_page_is_asked_again(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page waited for half a second and more."""
    real = dependants.list_dependants

    def sleep(cursor: Any, *args: Any, **options: Any) -> list[int]:
        cursor.execute("SELECT pg_sleep(0.2)")
        return real(cursor, *args, **options)

    monkeypatch.setattr(dependants, "COUNT_SECONDS", 60)
    monkeypatch.setattr(previewing, "QUICK_SECONDS", 0.1)
    monkeypatch.setattr(dependants, "list_dependants", sleep)
    where = address("cancel", Selection.ids([make_chain().pk]))
    text = text_of(admin_client, where)
    assert "1 job." in text
    assert "Not all is counted yet." in text
    assert "too long" not in text
    assert "3 other jobs wait for these" in text_of(admin_client, counting(where))


def test_a_count_of_dependants_has_a_budget(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sleep(cursor: Any, *args: Any, **options: Any) -> list[int]:
        cursor.execute("SELECT pg_sleep(5)")
        return []

    monkeypatch.setattr(dependants, "COUNT_SECONDS", 0.01)
    monkeypatch.setattr(dependants, "list_dependants", sleep)
    job = make_chain()
    words = "how many takes too long to count"
    assert words in text_of(admin_client, counting(address("cancel", Selection.ids([job.pk]))))
    assert words in text_of(admin_client, page("job", "change", job.pk))


@pytest.mark.slow
def test_more_that_wait_for_a_job_are_looked_at_first(admin_client: Client) -> None:
    job = make_chain()
    where = address("discard", Selection.ids([job.pk]))
    token = token_of(admin_client, where)
    add.using(after=[job]).enqueue(1, 2)
    status_code, text = post(admin_client, where, token)
    assert status_code == 200
    assert "There are more now: look again." in text
    assert "4 other jobs wait for these" in text
    assert count_jobs(status="cancelled") == 0
    confirm_again(admin_client, where, text)
    assert count_jobs(status="cancelled") == 5
