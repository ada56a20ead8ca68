"""The claim of one job that a worker over HTTP names."""

from __future__ import annotations

from datetime import timedelta

from django.http import HttpResponse
from django.utils import timezone

from django_pgjobs import pause, resume
from django_pgjobs.models import Job
from tests.factories import get_job
from tests.http import tasks
from tests.http.support import Api, problem_of
from tests.http.test_rules_repeats import ALWAYS, JOBS, crossed
from tests.http.workers import Remote, body_of


def ask(worker: Remote, job_id: int | str) -> HttpResponse:
    """Ask for a job."""
    return worker.api.post(f"jobs/{job_id}/workers/{worker.id}")


def test_s2_31_a_job_is_claimed_by_its_id(api: Api) -> None:
    """S2.31."""
    first, second, third = (int(tasks.resize.enqueue(n).id) for n in range(3))
    worker = Remote(api)
    given = body_of(ask(worker, second))
    assert (given["job"], given["args"], given["attempt"]) == (str(second), [1], 1)
    assert {get_job(each).status for each in (first, third)} == {"ready"}
    # The answer may have been lost.
    assert body_of(ask(worker, second))["assignment"] == given["assignment"]
    answer = ask(Remote(api), second)
    assert (answer.status_code, problem_of(answer)) == (409, "not-next")
    assert worker.finish(given) == {"status": "stored"}
    assert problem_of(ask(worker, second)) == "not-next"


def test_s2_23_only_the_oldest_of_a_key_is_to_be_had(api: Api) -> None:
    first, second = (int(tasks.bill.enqueue(1, n).id) for n in range(2))
    another = int(tasks.bill.enqueue(2).id)
    worker = Remote(api)
    assert problem_of(ask(worker, second)) == "not-next"
    given = body_of(ask(worker, first))
    assert problem_of(ask(worker, second)) == "not-next"
    body_of(ask(worker, another))
    worker.finish(given)
    body_of(ask(worker, second))
    assert [each["job"] for each in worker.claim(5)] == []


def test_what_is_paused_is_not_to_be_had(api: Api) -> None:
    job_id = int(tasks.resize.enqueue(1).id)
    worker = Remote(api)
    pause(queue="node")
    assert problem_of(ask(worker, job_id)) == "not-next"
    resume(queue="node")
    pause(task=tasks.resize)
    assert problem_of(ask(worker, job_id)) == "not-next"
    resume(task=tasks.resize)
    body_of(ask(worker, job_id))


def test_a_job_that_is_none_of_the_workers_is_not_there(api: Api) -> None:
    from tests.tasks import add

    worker = Remote(api, queues=["node"])
    for job_id in (add.enqueue(1, 2).id, tasks.other.enqueue().id, 4711):
        answer = ask(worker, job_id)
        assert (answer.status_code, problem_of(answer)) == (404, "not-found")


def test_a_row_that_cannot_be_promoted_keeps_nobody_from_a_job_by_its_id(api: Api) -> None:
    job_id = int(tasks.resize.enqueue(1).id)
    due = int(tasks.resize.using(run_after=timezone.now() + timedelta(hours=1)).enqueue(2).id)
    Job.objects.filter(pk=due).update(due_at=timezone.now() - timedelta(hours=1))
    worker = Remote(api)
    with crossed(ALWAYS, JOBS, when="OLD.due_at IS NOT NULL", code="22000"):
        assert body_of(ask(worker, job_id))["job"] == str(job_id)
        assert problem_of(ask(worker, due)) == "not-next"
    body_of(ask(worker, due))
