"""Where a router sends reads to a replica that lags behind, what was just changed is known."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import transaction
from django.test import Client, override_settings
from django.urls import reverse

from django_pgjobs.http.tokens import TokenScope, create_token
from django_pgjobs.models import Job, Schedule
from tests.aliases import Replica, extra_alias
from tests.factories import get_job, make_batch, make_job

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def lagging() -> Iterator[None]:
    """Read from a replica that does not have what the open transaction changes."""
    with extra_alias("replica"), override_settings(DATABASE_ROUTERS=[Replica()]):
        with transaction.atomic():
            yield


@pytest.mark.usefixtures("lagging")
def test_commands_tell_what_is_so(run: Any) -> None:
    waiting, failed = make_job(), make_job(status="failed", attempts=1)
    assert json.loads(run("show", waiting, "--json"))["id"] == waiting
    assert str(waiting) in run("list")
    assert run("cancel", waiting) == f"job {waiting}: cancelled\n"
    assert run("requeue", failed) == f"job {failed}: requeued\n"
    with pytest.raises(CommandError, match="was not requeued"):
        run("requeue", failed)
    assert get_job(failed).status == "ready"
    batch = make_batch("payroll")
    assert "payroll" in run("workflows")
    assert "payroll" in run("workflows", "show", batch)
    Schedule.objects.create(name="nightly", task_path="tests.tasks.add", every=60.0)
    assert "nightly" in run("schedules", "list")


@pytest.mark.usefixtures("lagging")
def test_the_secret_of_a_rotated_token_is_printed(run: Any) -> None:
    token, old = create_token("node", TokenScope(verbs=["work"]))
    secret = run("tokens", "rotate", token.pk, "--keep", "2h")
    assert secret.strip() not in ("", old)


def test_a_job_is_copied_in_the_admin(admin_client: Client) -> None:
    job_id = make_job("tests.tasks.add", args=[1, 2])
    with extra_alias("replica"), override_settings(DATABASE_ROUTERS=[Replica()]):
        form = {"args": "[3, 4]", "kwargs": "{}", "queue_name": "default", "priority": "0"}
        response = admin_client.post(reverse("admin:pgjobs_job_copy", args=[job_id]), form)
    assert response.status_code == 302
    assert get_job(Job.objects.latest("pk").pk).args == [3, 4]
