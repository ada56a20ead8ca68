"""`manage.py jobs show`: a job as people read it, and all of it for programs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from django_pgjobs.models import Job
from tests.factories import make_job

pytestmark = pytest.mark.django_db


def test_show_prints_everything_that_is_stored(run: Any) -> None:
    job_id = make_job(args=["ä", 2], priority=5)
    found = json.loads(run("show", job_id, "--json"))
    assert (found["id"], found["args"], found["priority"]) == (job_id, ["ä", 2], 5)


def test_show_prints_a_job_for_people(run: Any) -> None:
    errors = [
        {
            "attempt": number,
            "failed_at": f"2026-01-0{number}T00:00:00.5+00:00",
            "exception_class": "ValueError",
            "message": f"no {number}",
            "traceback": f"Traceback {number}\n  line\nValueError: no {number}\n",
        }
        for number in (1, 2)
    ]
    job_id = make_job(
        args=["ä", 2], priority=5, attempts=2, errors=errors, due_at="2100-01-01", tags=["a\nb"]
    )
    lines = run("show", job_id).splitlines()
    assert lines[0] == f"job {job_id}: ready"
    told = dict(line.split(maxsplit=1) for line in lines[1 : lines.index("why")])
    assert told["args"] == '["ä", 2]'
    assert told["priority"] == "5"
    assert told["due_at"].startswith("2100-01-01 05:45:00")
    assert told["tags"] == r'["a\nb"]'
    assert not {"finished_at", "result", "unique_key", "rate_cost", "claim"} & set(told)
    reasons, attempts = lines.index("why"), lines.index("failed attempts, newest first")
    assert all(line.endswith("]") for line in lines[reasons + 1 : attempts])
    assert lines[attempts + 1 :] == [
        "  2  2026-01-02 05:45:00+05:45  ValueError  no 2",
        "  1  2026-01-01 05:45:00+05:45  ValueError  no 1",
        "Traceback 2",
        "  line",
        "ValueError: no 2",
    ]


ODD = [7, "text", {"a": 1}, {"traceback": 7, "failed_at": "2026-02-31T00:00"}, [], None]


@pytest.mark.parametrize("error", ODD)
def test_show_prints_whatever_is_recorded_of_attempts(run: Any, error: Any) -> None:
    """A raw row may hold any JSON."""
    job_id = make_job(status="failed", finished_at="2020-01-01")
    Job.objects.filter(pk=job_id).update(errors=[error])
    assert run("show", job_id).startswith(f"job {job_id}: failed\n")
