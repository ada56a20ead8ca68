"""More of the page of a batch: how deep trees are drawn, and the jobs of callbacks."""

from __future__ import annotations

import html
import re

import pytest
from django.test import Client

from django_pgjobs import workflow
from django_pgjobs.models import Job
from django_pgjobs.testing import run_jobs
from tests import tasks
from tests.admin.lists import ids_in
from tests.admin.test_workflows import PAGE, read
from tests.factories import make_batch, make_job

pytestmark = pytest.mark.django_db


def test_a_deep_batch_says_its_level(admin_client: Client) -> None:
    """Indentation ends at eight."""
    root = batch = make_batch("root")
    for _ in range(10):
        batch = make_batch("deep", parent_id=batch)
    text = read(admin_client, PAGE, root)
    assert re.findall(r"Level (\d+)", text) == ["9", "10"]
    assert text.count('class="pgjobs-depth-8"') == 3


def test_the_jobs_of_callbacks_are_found(admin_client: Client) -> None:
    with workflow("payroll", seal=False) as pay:
        pay.on_success(tasks.echo.s())
    others = make_job("tests.tasks.echo", args=[pay.pk + 1])
    assert "q=task" not in read(admin_client, PAGE, pay.pk)
    pay.seal()
    run_jobs()
    link = re.search(r'<a href="([^"]*)">tests.tasks.echo</a>', read(admin_client, PAGE, pay.pk))
    assert link
    found = ids_in(admin_client.get(html.unescape(link[1])).content.decode())
    [wanted] = Job.objects.filter(task_path="tests.tasks.echo").exclude(pk=others)
    assert found == [wanted.pk]
