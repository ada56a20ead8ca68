"""Enqueueing a copy of a job: prefilled, checked against the task, secrets kept by the server."""

from __future__ import annotations

import json
from html import unescape
from importlib import import_module
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.http import HttpResponse
from django.test import Client, override_settings

from django_pgjobs import Task, task
from django_pgjobs.admin.job_page.copy_form import StillMasked, copied_task, unmask
from django_pgjobs.compat import TASKS_PACKAGE
from django_pgjobs.declaring.redaction import MASK, redact
from django_pgjobs.models import Job
from tests.admin.test_job_page import job_page, last_entry, user_with
from tests.factories import get_job, make_batch, make_job
from tests.test_admin import LONG_NUMBER, page

pytestmark = pytest.mark.django_db

PATH = f"{__name__}.charge"
SECRETS = {"amount": 5, "card": "4111-1111", "options": [{"token": "s3cret", "n": 1}]}


@task(queue_name="billing", concurrency_key="customer:{customer}")
def charge(customer: int, amount: int = 0, card: str = "", options: Any = None) -> None:
    """Take a payment."""


@task(unique_key="charge:{customer}")
def charge_once(customer: int) -> None:
    """Take one payment at a time."""


@task(unique_key="charge:{customer}", on_conflict="raise")
def charge_never_twice(customer: int) -> None:
    """Refuse a second payment."""


def form_of(**changes: Any) -> dict[str, Any]:
    """Return what a browser sends."""
    data = {"args": [1], "kwargs": {}, "queue_name": "billing", "priority": "0", "run_after": ""}
    data |= changes
    return {key: json.dumps(v) if isinstance(v, list | dict) else v for key, v in data.items()}


def send(client: Client, job_id: int, **changes: Any) -> HttpResponse:
    """Send the form for a copy of a job."""
    return client.post(page("job", "copy", job_id), form_of(**changes))


def newest() -> Any:
    """Return the row of the newest job."""
    return get_job(Job.objects.order_by("-pk").values_list("pk", flat=True)[0])


def test_the_form_is_filled_with_the_job(admin_client: Client) -> None:
    job_id = make_job(PATH, args=[1], kwargs=SECRETS, queue_name="slow", priority=-3)
    text = unescape(admin_client.get(page("job", "copy", job_id)).content.decode())
    assert "charge(customer: 'int', amount: 'int' = 0" in text
    assert '"amount": 5' in text
    for secret in ("4111-1111", "s3cret"):
        assert secret not in text
    assert 'value="slow"' in text
    assert 'value="-3"' in text
    assert not LogEntry.objects.exists()


def test_who_may_reveal_can_fill_the_form_with_secrets(admin_client: Client) -> None:
    job_id = make_job(PATH, args=[1], kwargs=SECRETS)
    text = admin_client.get(page("job", "copy", job_id), {"reveal": "1"}).content.decode()
    assert "4111-1111" in text
    assert last_entry().change_message == "reveal"


def test_a_copy_is_enqueued_with_everything_the_task_says(admin_client: Client) -> None:
    job_id = make_job(
        PATH, args=[1], kwargs=SECRETS, queue_name="slow", tags=["nightly"], max_attempts=7,
        correlation_id="c", metadata={"a": 1}, timeout=9, subject="auth.group:1",
    )  # fmt: skip
    response = send(
        admin_client, job_id, args=[2], kwargs=redact(SECRETS) | {"amount": 6},
        queue_name="other", priority="4", run_after="2030-01-01T12:00",
    )  # fmt: skip
    copy = newest()
    assert response.headers["Location"] == page("job", "change", copy.id)
    assert copy.id != job_id
    assert (copy.args, copy.kwargs) == ([2], SECRETS | {"amount": 6})
    assert (copy.queue_name, copy.priority, copy.concurrency_key) == ("other", 4, "customer:2")
    assert copy.run_after.isoformat() == "2030-01-01T06:15:00+00:00"
    assert (copy.tags, copy.max_attempts, copy.correlation_id, copy.timeout) == (
        ["nightly"],
        7,
        "c",
        9,
    )
    assert copy.subject == "auth.group:1"
    assert copy.metadata == {"a": 1, "enqueued_by": "admin", "copy_of": job_id}
    entry = last_entry()
    assert entry.object_id == str(copy.id)
    assert entry.change_message == f"enqueue: copy of #{job_id}"
    assert "admin" in job_page(admin_client, copy.id)


def test_the_form_says_that_a_copy_is_of_no_batch(admin_client: Client) -> None:
    """Who repairs a part of a workflow by it would wait in vain."""
    batch_id = make_batch()
    of_batch, other = (
        make_job(task_path=PATH, batch_id=batch_id, source_id=0),
        make_job(task_path=PATH),
    )
    said = "The job is of a batch. The copy is of none"
    assert said in admin_client.get(page("job", "copy", of_batch)).content.decode()
    assert (
        "The copy is of none" not in admin_client.get(page("job", "copy", other)).content.decode()
    )


def test_the_original_is_not_changed(admin_client: Client) -> None:
    job_id = make_job(PATH, args=[1], status="failed")
    before = get_job(job_id)
    send(admin_client, job_id)
    assert get_job(job_id) == before
    assert Job.objects.count() == 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"args": "[1"}, "Expected a JSON list"),
        ({"args": {"a": 1}}, "Expected a JSON list"),
        ({"kwargs": [1]}, "Expected a JSON object"),
        ({"args": "[" * 100_000}, "Expected a JSON list"),
        ({"args": "[NaN]"}, "expected a finite number"),
        ({"args": '["\\u0000"]'}, "NUL"),
        ({"args": []}, "missing a required argument: 'customer'"),
        ({"kwargs": {"unknown": 1}}, "unexpected keyword argument 'unknown'"),
        ({"args": ["x" * 300_000]}, "at most 262144 bytes"),
        ({"priority": "101"}, "less than or equal to 100"),
        ({"queue_name": ""}, "This field is required"),
        ({"queue_name": "ü" * 100}, "128 bytes"),
        ({"run_after": "soon"}, "Enter a valid date/time"),
        ({"kwargs": {"card": MASK}}, "A masked value can stay where it was"),
        ({"args": ["\u0663"], "kwargs": {"customer": 1}}, "multiple values for argument"),
    ],
)
def test_what_is_wrong_is_said_at_its_field(
    admin_client: Client, changes: dict[str, Any], said: str
) -> None:
    job_id = make_job(PATH, args=[1])
    response = send(admin_client, job_id, **changes)
    assert response.status_code == 200
    text = unescape(response.content.decode())
    assert said in text
    assert "errorlist" in text
    assert Job.objects.count() == 1
    assert not LogEntry.objects.exists()


@pytest.mark.slow
def test_a_task_that_is_not_here_cannot_be_enqueued(admin_client: Client) -> None:
    job_id = make_job("nobody.tasks.f", args=[1])
    page_text = admin_client.get(page("job", "copy", job_id)).content.decode()
    assert "has not loaded the task" in page_text
    text = send(admin_client, job_id).content.decode()
    assert "not declared in this deployment" in text
    assert Job.objects.count() == 1


def test_arguments_that_cannot_be_decoded_cannot_be_copied(admin_client: Client) -> None:
    job_id = make_job(PATH, args=LONG_NUMBER)
    for response in (admin_client.get(page("job", "copy", job_id)), send(admin_client, job_id)):
        assert "cannot be decoded" in response.content.decode()
    assert Job.objects.count() == 1


@pytest.mark.slow
def test_a_job_with_the_unique_key_stands_for_the_copy(admin_client: Client) -> None:
    done = make_job(f"{__name__}.charge_once", args=[1], status="successful")
    send(admin_client, done)
    copy = newest()
    response = admin_client.post(page("job", "copy", done), form_of(), follow=True)
    assert "has the unique key already" in response.content.decode()
    assert Job.objects.count() == 2
    assert response.redirect_chain[-1][0] == page("job", "change", copy.id)


def test_a_refused_copy_says_which_job_is_in_the_way(admin_client: Client) -> None:
    done = make_job(f"{__name__}.charge_never_twice", args=[1], status="successful")
    send(admin_client, done)
    twin = newest()
    text = unescape(send(admin_client, done).content.decode())
    assert f"job {twin.id} of" in text
    assert Job.objects.count() == 2


def test_a_copy_may_go_to_another_backend_of_the_projects_tests(admin_client: Client) -> None:
    job_id = make_job(PATH, args=[1], backend="gone")
    dummy = {"BACKEND": f"{TASKS_PACKAGE}.backends.dummy.DummyBackend", "QUEUES": []}
    with override_settings(TASKS={"default": dummy}):
        response = admin_client.post(page("job", "copy", job_id), form_of(), follow=True)
    assert "Enqueued as " in response.content.decode()
    assert response.redirect_chain[-1][0] == page("job", "change", job_id)
    assert Job.objects.count() == 1


def test_a_plain_task_of_djangos_is_copied_with_what_it_knows() -> None:
    dummy = {"BACKEND": f"{TASKS_PACKAGE}.backends.dummy.DummyBackend", "QUEUES": []}
    job = Job.objects.get(pk=make_job(PATH, args=[1], backend="gone", tags=["t"]))
    options = {"queue_name": "q", "priority": 1, "run_after": None}
    with override_settings(TASKS={"default": dummy}):
        plain = import_module(TASKS_PACKAGE).task(charge.func)
        copied = copied_task(plain, job, options)
    assert not isinstance(copied, Task)
    assert (copied.queue_name, copied.priority) == ("q", 1)


@pytest.mark.slow
def test_who_may_not_enqueue_is_refused(client: Client) -> None:
    user_with(client, "view_job", "operate_job")
    job_id = make_job(PATH, args=[1])
    assert page("job", "copy", job_id) not in job_page(client, job_id)
    assert client.get(page("job", "copy", job_id)).status_code == 403
    assert send(client, job_id).status_code == 403
    assert Job.objects.count() == 1


@pytest.mark.slow
def test_who_may_enqueue_but_not_reveal_copies_without_seeing(client: Client) -> None:
    user_with(client, "view_job", "enqueue_job")
    job_id = make_job(PATH, args=[1], kwargs=SECRETS)
    assert client.get(page("job", "copy", job_id), {"reveal": "1"}).status_code == 403
    text = client.get(page("job", "copy", job_id)).content.decode()
    assert "reveal=1" not in text
    send(client, job_id, kwargs=redact(SECRETS))
    assert newest().kwargs == SECRETS
    # An error must not show them either.
    response = send(client, job_id, kwargs=redact(SECRETS), priority="x")
    assert "4111-1111" not in response.content.decode()


STORED = {"a": 1, "token": "A", "list": [{"token": "B", "n": 1}, {"token": "C", "n": 1}, 5]}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (redact(STORED), STORED),
        ({"token": "new"}, {"token": "new"}),
        ({"token": MASK, "a": True}, {"token": "A", "a": True}),
        ({"list": [{"token": MASK, "n": 2}, {"token": MASK, "n": 1}, 6]},
         {"list": [{"token": "B", "n": 2}, {"token": "C", "n": 1}, 6]}),
        ({"list": [5]}, {"list": [5]}),
        ({}, {}),
    ],
)  # fmt: skip
def test_masks_stand_for_what_is_stored(given: Any, expected: Any) -> None:
    found = unmask(given, STORED, redact(STORED))
    assert json.dumps(found) == json.dumps(expected)


@pytest.mark.parametrize(
    "given",
    [
        {"a": MASK},
        {"other": MASK},
        {"list": MASK},
        {"list": [{"token": MASK, "n": 1}]},
        {"list": [MASK, 1, 2]},
        {"token": {"token": MASK}},
        {"token": [MASK]},
        [MASK],
        MASK,
    ],
    ids=repr,
)
def test_a_mask_that_stands_for_nothing_is_refused(given: Any) -> None:
    with pytest.raises(StillMasked):
        unmask(given, STORED, redact(STORED))


def test_an_item_is_found_again_after_another_one_was_removed() -> None:
    stored = [{"id": 1, "token": "A"}, {"id": 2, "token": "B"}]
    kept = unmask([{"id": 2, "token": MASK}], stored, redact(stored))
    assert kept == [{"id": 2, "token": "B"}]
