"""What a narrowed person may do, and what a page says of jobs that this person does not see."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.db.models.functions import Now
from django.test import Client
from django.urls import reverse

from django_pgjobs.bulk.selection import Selection
from django_pgjobs.models import Batch, BulkChange, Job
from django_pgjobs.permissions import Verb, is_narrowed, may, narrow
from django_pgjobs.testing import run_jobs
from tests import tasks
from tests.admin.bulk_support import address as bulk_address
from tests.admin.bulk_support import token_of
from tests.admin.lists import LATER
from tests.admin.tenants import (
    NUMBER,
    Rows,
)
from tests.factories import get_job, make_job, make_running_job
from tests.worker import declared
from tests.worker.test_filling import insert

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("two_tenants")]


def own_to_operate(user: Any, permission: str, jobs: Any) -> Any:
    """Let people see everything, and act on the queue "own"."""
    return True if jobs is None or "view" in permission else jobs.filter(queue_name="own")


@pytest.mark.parametrize("path", ["nowhere.jobs_of", "tests.urls.jobs_of"])
def test_a_hook_that_is_not_there_is_named(admin_client: Client, settings: Any, path: str) -> None:
    settings.PGJOBS = {"ADMIN_PERMISSION": path}
    with pytest.raises(ImproperlyConfigured, match=rf"^PGJOBS\['ADMIN_PERMISSION'\] .*{path}"):
        admin_client.get(reverse("admin:index"))


def test_of_bulk_changes_one_sees_one_s_own(person_client: Client, person: User) -> None:
    rows = Rows(person)
    text = person_client.get(reverse("admin:pgjobs_job_bulk")).content.decode()
    assert reverse("admin:pgjobs_job_bulk_progress", args=[rows.own_change]) in text
    assert reverse("admin:pgjobs_job_bulk_progress", args=[rows.change]) not in text


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("waits", "It waits for other jobs."),
        ("held", "One of the jobs it waited for failed."),
        ("full", "As many jobs of its concurrency key run as may."),
    ],
)
def test_why_a_job_waits_is_said_without_the_jobs_of_others(
    person_client: Client, person: User, settings: Any, name: str, reason: str
) -> None:
    rows = Rows(person)
    address = reverse("admin:pgjobs_job_change", args=[rows.own[name]])
    text = person_client.get(address).content.decode()
    assert reason in text
    assert str(NUMBER)[:6] not in text
    settings.PGJOBS = {}
    text = person_client.get(address).content.decode()
    assert reason not in text
    assert str(NUMBER)[:6] in text


def test_jobs_are_not_moved_to_where_one_may_not_act(person_client: Client, person: User) -> None:
    job_id = make_job(queue_name="own")
    where = bulk_address("move", Selection.ids([job_id]))
    form = {"preview": token_of(person_client, where), "queue_name": "zebra-queue"}
    person_client.post(where, form)
    assert get_job(job_id).queue_name == "own"
    change = BulkChange.objects.get()
    assert change.finished_at is not None
    assert "antelope may not act on the jobs where they would be" in change.error
    person_client.post(where, {"preview": token_of(person_client, where), "priority": "7"})
    assert get_job(job_id).priority == 7


def test_a_copy_is_not_enqueued_where_one_may_not_act(person_client: Client) -> None:
    job_id = make_job(queue_name="own")
    where = reverse("admin:pgjobs_job_copy", args=[job_id])
    form = {"args": "[1, 2]", "kwargs": "{}", "priority": "0"}
    response = person_client.post(where, form | {"queue_name": "zebra-queue"})
    assert "You may not enqueue this job there." in response.content.decode()
    assert Job.objects.count() == 1
    person_client.post(where, form | {"queue_name": "own"})
    assert Job.objects.count() == 2


def test_a_unique_key_that_another_tenant_holds_is_all_that_one_is_told(
    person_client: Client, person: User
) -> None:
    rows = Rows(person)
    response = person_client.post(
        reverse("admin:pgjobs_job_do", args=[rows.own["twin"], "requeue"]), follow=True
    )
    text = response.content.decode()
    assert "another unfinished job has its unique key" in text
    assert str(NUMBER)[:6] not in text


def test_a_cancelled_batch_of_others_is_all_that_one_is_told(
    person_client: Client, person: User
) -> None:
    rows = Rows(person)
    Batch.objects.filter(pk=rows.mixed_batch).update(cancel_requested_at=Now())
    job_id = rows.own["mixed"]
    one = reverse("admin:pgjobs_job_do", args=[job_id, "requeue"])
    many = bulk_address("requeue", Selection.ids([job_id, rows.own["failed"]]))
    form = {"preview": token_of(person_client, many), "when": "now"}
    for address, data in ((one, {}), (many, form)):
        text = person_client.post(address, data, follow=True).content.decode()
        assert "its batch was cancelled. Retry that." in text
        assert str(NUMBER)[:6] not in text


def test_a_note_names_no_job_of_others(person_client: Client, settings: Any) -> None:
    other = tasks.fail_once.using(queue_name="zebra").enqueue()
    job_id = tasks.add.using(queue_name="own", after=[other]).enqueue(1, 1).id
    run_jobs()
    address = reverse("admin:pgjobs_job_change", args=[job_id])
    export = bulk_address("export", Selection.ids([int(job_id)]))

    def told() -> list[str]:
        form = {"preview": token_of(person_client, export), "file_format": "csv"}
        file = b"".join(person_client.post(export, form).streaming_content)
        return [person_client.get(address).content.decode(), file.decode()]

    for text in told():
        assert "cancelled: a job which it waited for failed" in text
    settings.PGJOBS = {}
    for text in told():
        assert f"cancelled: job {other.id}, which it waited for, failed" in text


def test_a_note_names_no_job_of_others_that_has_the_unique_key(
    person_client: Client, settings: Any
) -> None:
    insert(declared.unique, kwargs={"month": "May"})
    other = make_job(declared.unique.module_path, unique_key="report:May", due_at=LATER)
    run_jobs()
    job = Job.objects.get(status="cancelled")
    Job.objects.filter(pk=job.pk).update(queue_name="own")
    address = reverse("admin:pgjobs_job_change", args=[job.pk])
    text = person_client.get(address).content.decode()
    assert "cancelled: another job has its unique key" in text
    settings.PGJOBS = {}
    text = person_client.get(address).content.decode()
    assert f"cancelled: job {other} has its unique key" in text


def test_a_page_of_the_whole_installation_says_why_it_is_closed(person_client: Client) -> None:
    for name in ("worker_changelist", "queuesettings_changelist", "job_system", "pause_add"):
        response = person_client.get(reverse(f"admin:pgjobs_{name}"))
        assert response.status_code == 403
        assert "You see some of the jobs" in response.content.decode()


def test_links_lead_only_where_one_may_go(person_client: Client) -> None:
    job_id = make_running_job(queue_name="own", rate_limit_keys="api").id
    for address in (
        reverse("admin:pgjobs_job_change", args=[job_id]),
        reverse("admin:pgjobs_job_changelist"),
        reverse("admin:index"),
    ):
        text = person_client.get(address).content.decode()
        for model in ("worker", "queuesettings", "ratelimit", "pause"):
            assert f"/pgjobs/{model}/" not in text, address


def test_who_acts_on_some_jobs_ends_no_change_of_others(
    person_client: Client, person: User, settings: Any
) -> None:
    settings.PGJOBS = {"ADMIN_PERMISSION": f"{__name__}.own_to_operate"}
    rows = Rows(person)
    other = reverse("admin:pgjobs_job_bulk_progress", args=[rows.change])
    text = person_client.get(other).content.decode()
    assert "zebra-why" in text
    assert 'name="cancel"' not in text
    for what in ("cancel", "continue"):
        assert person_client.post(other, {what: "1"}).status_code == 403
    assert BulkChange.objects.get(pk=rows.change).finished_at is None
    own = reverse("admin:pgjobs_job_bulk_progress", args=[rows.own_change])
    assert person_client.post(own, {"cancel": "1"}).status_code == 302
    assert BulkChange.objects.get(pk=rows.own_change).finished_at is not None


def test_nobody_acts_on_what_they_do_not_see(person: User, settings: Any) -> None:
    """A function that narrows what is seen need not say it again for each thing to do."""
    settings.PGJOBS = {"ADMIN_PERMISSION": f"{__name__}.own_to_see"}
    own, other = make_job(queue_name="own"), make_job(queue_name="zebra")
    for verb in (Verb.OPERATE, Verb.DELETE, Verb.ENQUEUE, Verb.REVEAL):
        assert [job.pk for job in narrow(person, verb, Job.objects.all())] == [own]
        assert not may(person, verb, Job.objects.get(pk=other))
    for verb in (Verb.CONTROL_QUEUES, Verb.CONTROL_WORKERS):
        assert not may(person, verb)


def own_to_see(user: Any, permission: str, jobs: Any) -> Any:
    """Narrow what is seen, and nothing else."""
    is_view = permission == Verb.VIEW.value
    return jobs.filter(queue_name="own") if is_view and jobs is not None else True


ANSWERS: dict[str, tuple[Any, bool]] = {
    "all": (lambda jobs: True, False),
    "as given": (lambda jobs: jobs, False),
    "copy": (lambda jobs: jobs.all(), False),
    "none": (lambda jobs: False, True),
    "filter": (lambda jobs: jobs.filter(queue_name="a"), True),
    "exclude": (lambda jobs: jobs.exclude(queue_name="a"), True),
    "empty": (lambda jobs: jobs.none(), True),
    "slice": (lambda jobs: jobs[:10], True),
    "union": (lambda jobs: jobs.filter(queue_name="a").union(jobs.filter(queue_name="b")), True),
    "distinct": (lambda jobs: jobs.distinct("queue_name"), True),
}
CHOSEN: list[Any] = []


def chosen(user: Any, permission: str, jobs: Any) -> Any:
    """Answer as the test says."""
    return True if jobs is None else CHOSEN[0](jobs)


@pytest.mark.parametrize("name", ANSWERS)
def test_what_is_fewer_jobs_is_known(person: User, settings: Any, name: str) -> None:
    settings.PGJOBS = {"ADMIN_PERMISSION": f"{__name__}.chosen"}
    CHOSEN[:], expected = [ANSWERS[name][0]], ANSWERS[name][1]
    assert is_narrowed(person) is expected
    assert may(person, Verb.CONTROL_QUEUES) is not expected
