"""The HTTP API where USE_TZ is False: its times have their zone all the same."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from django_pgjobs import workflow
from django_pgjobs.models import Job, Token
from django_pgjobs.testing import run_jobs
from tests import tasks
from tests.http.support import ONLY_WSGI, Api
from tests.http.trees import ADD, read

# A thread keeps its connection, with the time zone that the settings had when it was opened.
pytestmark = ONLY_WSGI


@pytest.fixture(autouse=True)
def no_time_zones(settings: Any) -> None:
    """Kathmandu is 5:45 ahead of UTC."""
    settings.USE_TZ = False


def test_a_job_has_the_time_that_was_given(api: Api) -> None:
    later = "2031-05-01T09:30:00+02:00"
    shown = read(api.post("jobs", {"task": ADD, "args": [1, 2], "run_after": later}), 201)
    assert shown["run_after"] == "2031-05-01T07:30:00Z"
    assert Job.objects.get().run_after == datetime(2031, 5, 1, 13, 15)  # noqa: DTZ001
    assert read(api.get(f"jobs/{shown['id']}"))["run_after"] == shown["run_after"]


def test_jobs_and_workflows_are_told_when_they_ended(api: Api) -> None:
    with workflow("import") as batch:
        batch.add(tasks.add.s(1, 2))
    run_jobs()
    job_id = Job.objects.get().pk
    assert read(api.get(f"jobs/{job_id}"))["finished_at"].endswith("Z")
    assert read(api.get(f"workflows/{batch.pk}/status"))["created_at"].endswith("Z")


def test_a_token_tells_when_it_expires(api: Api) -> None:
    Token.objects.update(expires_at=datetime(2031, 5, 1, 13, 15))  # noqa: DTZ001
    assert read(api.get("token"))["expires_at"] == "2031-05-01T07:30:00Z"
