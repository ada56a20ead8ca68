"""The page of a job leads to the job that it came of, and back, as far as its row says so."""

from __future__ import annotations

import re
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext, override_settings
from django.urls import reverse

from django_pgjobs.models import Job
from django_pgjobs.testing import run_jobs
from tests.admin.tenants import only_own
from tests.factories import make_job
from tests.test_admin import NOW, page, read
from tests.worker.test_on_failure import charge, tell

HANDLER = "tests.worker.test_on_failure.tell"
NARROWED = {"ADMIN_PERMISSION": "tests.admin.tenants.only_own"}


def job_page(client: Client, job_id: int) -> str:
    """Return the page of a job, without its values: these name anything."""
    return unescape(read(client, "job", "change", job_id)).split('id="pgjobs-h-values"')[0]


def leads_to(text: str, job_id: int) -> bool:
    """Is there a link to that job in the details?"""
    return f'<dd><ul class="pgjobs-plain">\n<li><a href="{page("job", "change", job_id)}">' in text


@pytest.mark.django_db(transaction=True)
def test_a_failed_job_and_the_job_of_its_failure_lead_to_each_other(
    admin_client: Client,
) -> None:
    charge.using(max_attempts=1).enqueue()
    run_jobs()
    failed = Job.objects.get(task_path=charge.module_path)
    handler = Job.objects.get(task_path=tell.module_path)
    text = job_page(admin_client, handler.pk)
    assert "After the failure of" in text
    assert leads_to(text, failed.pk)
    [address] = re.findall(r'<a href="([^"]+)">Find its job', job_page(admin_client, failed.pk))
    assert parse_qs(urlsplit(address).query)["q"] == [f'task:"{HANDLER}" args.0:{failed.pk}']
    found = admin_client.get(address).content.decode()
    assert f'href="{handler.pk}/change/"' in found
    assert f'href="{failed.pk}/change/"' not in found


@pytest.mark.django_db
@pytest.mark.parametrize("status", ["ready", "running", "successful", "cancelled"])
def test_what_has_not_failed_has_enqueued_nothing(admin_client: Client, status: str) -> None:
    columns = {"claim": 1, "worker_id": 1} if status == "running" else {}
    if status in ("successful", "cancelled"):
        columns = {"finished_at": NOW}
    job_id = make_job(status=status, on_failure={"task_path": HANDLER}, **columns)
    text = job_page(admin_client, job_id)
    assert "On failure" in text
    assert "Find its job" not in text


@pytest.mark.django_db
@pytest.mark.parametrize(
    "columns",
    [
        {"task_path": "another.task"},
        {"correlation_id": "another"},
        {"args": [1, 2]},
        {"args": [True, "builtins.ValueError"]},
        {"args": [10**30, "builtins.ValueError"]},
        {"args": ["1", "builtins.ValueError"]},
    ],
)
def test_a_job_that_only_looks_like_one_of_a_failure_is_none(
    admin_client: Client, columns: dict[str, Any]
) -> None:
    failed = make_job(status="failed", finished_at=NOW, on_failure={"task_path": HANDLER})
    like: dict[str, Any] = {"task_path": HANDLER, "args": [failed, "builtins.ValueError"]}
    assert leads_to(job_page(admin_client, make_job(**like)), failed)
    assert not leads_to(job_page(admin_client, make_job(**like | columns)), failed)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("column", "label"), [("metadata", "Copy of"), ("source_id", "From the result of")]
)
def test_a_copy_and_a_job_of_a_result_lead_to_where_they_came_from(
    admin_client: Client, column: str, label: str
) -> None:
    first = make_job()
    value: Any = {"copy_of": first} if column == "metadata" else first
    text = job_page(admin_client, make_job(**{column: value}))
    assert label in text
    assert leads_to(text, first)
    Job.objects.filter(pk=first).delete()
    gone: Any = {"copy_of": first} if column == "metadata" else first
    text = job_page(admin_client, make_job(**{column: gone}))
    assert f"#{first}" in text
    assert "deleted" in text
    assert not leads_to(text, first)


@pytest.mark.django_db
@pytest.mark.parametrize("value", [None, 0, -1, True, "7", 1.5, [7], 10**30])
def test_metadata_that_names_no_job_leads_nowhere(admin_client: Client, value: Any) -> None:
    assert "Copy of" not in job_page(admin_client, make_job(metadata={"copy_of": value}))


@pytest.mark.django_db
def test_a_job_that_came_of_none_costs_no_query(admin_client: Client) -> None:
    ids = [make_job(), make_job(metadata={"copy_of": make_job()})]
    counts = []
    for job_id in ids:
        with CaptureQueriesContext(connection) as queries:
            job_page(admin_client, job_id)
        counts.append(len(queries))
    assert counts[1] - counts[0] == 1


@pytest.mark.django_db
def test_jobs_of_others_are_not_named(client: Client) -> None:
    assert only_own(None, "view", None) is True
    User.objects.create_superuser("owner")
    client.force_login(User.objects.get(username="owner"))
    theirs = make_job(queue_name="other")
    own = make_job(queue_name="own", metadata={"copy_of": theirs}, source_id=theirs)
    with override_settings(PGJOBS=NARROWED):
        address = reverse("admin:pgjobs_job_change", args=[own])
        text = client.get(address).content.decode().split('id="pgjobs-h-values"')[0]
    assert f"#{theirs}" not in text
    assert "Copy of" not in text
