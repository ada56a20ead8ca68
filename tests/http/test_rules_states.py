"""The seed's rules of states and routes, as a worker over HTTP meets them."""

from __future__ import annotations

import pytest

from django_pgjobs.http.access import known_tokens
from django_pgjobs.http.looking import looks
from django_pgjobs.http.members import recent_members
from django_pgjobs.http.pool import pool
from django_pgjobs.http.station import station
from django_pgjobs.http.waiting import waiting
from django_pgjobs.models import Batch
from django_pgjobs.testing import run_jobs
from tests.factories import get_job, get_worker
from tests.helpers import execute
from tests.http import tasks
from tests.http.support import Api, problem_of
from tests.http.workers import Remote, body_of

pytestmark = pytest.mark.usefixtures("hold")

ERROR = {"error": {"type": "E", "message": "no"}}


def let_pass(seconds: float) -> None:
    """Let so much time pass for what runs and for what is known of heartbeats."""
    execute(
        "UPDATE pgjobs_job_live SET last_attempted_at = last_attempted_at - make_interval(secs"
        " => %s) WHERE status = 'running'",
        seconds,
    )
    execute(
        "UPDATE pgjobs_worker SET named_at = (SELECT jsonb_object_agg(key, value::float8 - %s)"
        " FROM jsonb_each_text(named_at)) WHERE named_at <> '{}'",
        seconds,
    )


def begin_as_another_process() -> None:
    """Forget all that the web process knows, as one that has just been started."""
    station.end()
    waiting.end()
    pool.close()
    for part in (recent_members, known_tokens):
        part.forget()
    for each in (looks, pool, station, waiting):
        each.begin_anew()


def claimed(worker: Remote) -> list[int]:
    """Claim by a look of now; return the jobs."""
    looks.begin_anew()
    return [int(each["job"]) for each in worker.claim(20)]


# The rules 7 to 11 of S2.29


def test_what_somebody_has_is_locked_for_the_others(api: Api) -> None:
    """S2.29, rule 7: from the claim to the outcome."""
    job_id = int(tasks.resize.enqueue(1).id)
    worker, other = Remote(api, "one"), Remote(api, "other")
    [given] = worker.claim()
    job = get_job(job_id)
    assert (job.status, job.worker_id, job.result) == ("running", worker.id, None)
    assert claimed(other) == []
    assert problem_of(api.post(f"jobs/{job_id}/workers/{other.id}")) == "not-next"
    worker.finish(given, 1)
    assert get_job(job_id).result == 1
    assert claimed(other) == []


def test_a_failure_is_appended_and_its_assignment_is_gone(api: Api) -> None:
    """S2.29, rule 8."""
    job_id = int(tasks.convert.enqueue().id)
    worker = Remote(api)
    [given] = worker.claim()
    assert body_of(worker.say(given, "failure", ERROR))["status"] == "retry"
    job = get_job(job_id)
    assert (job.status, job.worker_id, len(job.errors)) == ("ready", None, 1)
    assert (job.errors[0]["exception_class"], job.errors[0]["worker"]) == ("E", "node")
    for what, body in (("result", {}), ("failure", ERROR), ("release", {})):
        assert problem_of(worker.say(given, what, body)) == "lost"
    assert len(get_job(job_id).errors) == 1


def test_a_result_is_kept_and_who_reported_it(api: Api) -> None:
    """S2.29, rule 9: whose result it is stays with the job; none is a result, too."""
    first, second = (int(tasks.resize.enqueue(number).id) for number in range(2))
    worker = Remote(api)
    given = {int(each["job"]): each for each in worker.claim(2)}
    worker.finish(given[first], {"area": 1})
    body_of(worker.say(given[second], "result"))
    job = get_job(first)
    assert (job.status, job.result, job.worker_id) == ("successful", {"area": 1}, worker.id)
    assert job.worker_ids == ["node"]
    assert (get_job(second).status, get_job(second).result) == ("successful", None)
    assert claimed(worker) == []


def test_what_is_named_no_more_is_a_failure_of_its_kind(api: Api) -> None:
    """S2.29, rule 10, and S2.20: told in its errors, counted as a loss, and given to another."""
    job_id = int(tasks.resize.enqueue(1).id)
    worker = Remote(api)
    [given] = worker.claim()
    let_pass(170)
    worker.beat()
    assert get_job(job_id).status == "running"
    let_pass(20)
    worker.beat()
    job = get_job(job_id)
    assert (job.status, job.lost_count, len(job.errors)) == ("ready", 1, 1)
    assert job.errors[0]["exception_class"] == "django_pgjobs.exceptions.WorkerLost"
    assert problem_of(worker.say(given, "result")) == "lost"
    assert claimed(Remote(api)) == [job_id]


@pytest.mark.parametrize("kind", ["taken", "successful", "waits for its retry", "not the oldest"])
def test_what_may_be_assigned(api: Api, kind: str) -> None:
    """S2.29, rule 11: to nobody yet, not successful, due, and the oldest of its key."""
    older = int(tasks.bill.enqueue(1).id)
    worker, other = Remote(api, "one"), Remote(api, "other")
    if kind == "not the oldest":
        job_id = int(tasks.bill.enqueue(1).id)
        address = f"jobs/{job_id}/workers/{other.id}"
        assert problem_of(api.post(address)) == "not-next"
        assert claimed(other) == [older]
        return
    [given] = worker.claim()
    if kind == "successful":
        worker.finish(given)
    elif kind == "waits for its retry":
        worker.say(given, "failure", {**ERROR, "retry_after": 3600})
    assert claimed(other) == []
    assert problem_of(api.post(f"jobs/{older}/workers/{other.id}")) == "not-next"
    if kind == "waits for its retry":
        execute("UPDATE pgjobs_job_live SET due_at = now()")
        assert claimed(other) == [older]


# Work that takes long, and processes that come and go


def test_a_worker_takes_as_long_as_it_wants_while_its_heart_beats(api: Api) -> None:
    """S2.7, S2.20."""
    job_id = int(tasks.resize.enqueue(1).id)
    worker = Remote(api)
    [given] = worker.claim()
    for _ in range(10):
        let_pass(120)
        assert worker.beat(given)["cancel"] == []
    assert (get_job(job_id).status, get_job(job_id).attempts) == ("running", 1)
    assert worker.finish(given, "done") == {"status": "stored"}


@pytest.mark.slow
def test_each_request_may_be_answered_by_another_process(api: Api) -> None:
    """S2.6, S2.34: nothing between requests is known to a process alone."""
    jobs = [int(tasks.convert.enqueue(str(number)).id) for number in range(3)]
    worker = Remote(api)
    begin_as_another_process()
    given = worker.claim(3)
    begin_as_another_process()
    assert worker.beat(*given)["cancel"] == []
    begin_as_another_process()
    held = [each["assignment"] for each in given[:1]]
    assert worker.claim(3, held=held) == given[1:]
    begin_as_another_process()
    assert worker.finish(given[0], 1) == {"status": "stored"}
    begin_as_another_process()
    assert body_of(worker.say(given[1], "failure", ERROR))["status"] == "retry"
    begin_as_another_process()
    assert body_of(worker.say(given[2], "release")) == {"status": "released"}
    begin_as_another_process()
    again = worker.claim(3)
    assert [int(each["job"]) for each in again] == jobs[1:]
    begin_as_another_process()
    assert api.delete(f"workers/{worker.id}").status_code == 204
    assert [get_job(each).status for each in jobs] == ["successful", "ready", "ready"]


def test_what_a_process_knew_is_found_again_in_the_tables(api: Api) -> None:
    """S2.33: also a job whose notification nobody heard, and one that is due."""
    unheard, due = (int(tasks.resize.enqueue(number).id) for number in range(2))
    execute("UPDATE pgjobs_job_live SET due_at = now() WHERE id = %s", due)
    execute("UPDATE pgjobs_worker SET listening = FALSE")
    worker = Remote(api)
    begin_as_another_process()
    assert {int(each["job"]) for each in worker.claim(5)} == {unheard, due}


def test_who_is_told_twice_of_a_job_gets_it_once(api: Api) -> None:
    """S2.33: duplicates are harmless; the first wins."""
    job_id = int(tasks.resize.enqueue(1).id)
    workers = [Remote(api, f"node-{number}") for number in range(3)]
    answers = [api.post(f"jobs/{job_id}/workers/{worker.id}") for worker in workers]
    assert [answer.status_code for answer in answers] == [200, 409, 409]
    assert (get_job(job_id).worker_id, get_job(job_id).attempts) == (workers[0].id, 1)


def test_what_a_process_that_was_killed_has_left_is_picked_up(api: Api) -> None:
    """S2.34: a claim whose answer was never sent, of a worker that is gone with it."""
    job_id = int(tasks.resize.enqueue(1).id)
    worker, other = Remote(api, "gone"), Remote(api, "other")
    worker.claim()
    begin_as_another_process()
    execute("UPDATE pgjobs_worker SET lease_expires_at = now() WHERE id = %s", worker.id)
    other.beat()
    assert get_worker(worker.id).lost
    assert claimed(other) == [job_id]


# The routes


@pytest.mark.slow
def test_the_nine_routes_of_the_seed_have_their_twins(api: Api) -> None:
    """S2.31: create, query, status, delete; items; claim, result, failure, heartbeat; and seal."""
    resize = {"task": tasks.resize.module_path, "args": [1]}
    tree = {"name": "seed", "seal": False, "jobs": [resize, resize]}
    flow = body_of(api.post("workflows", tree), 201)["id"]
    [more] = body_of(api.post(f"batches/{flow}/jobs", {"jobs": [resize]}), 201)["jobs"]
    body_of(api.post(f"batches/{flow}/seal"))
    assert [each["id"] for each in body_of(api.get("workflows"))["workflows"]] == [flow]
    found = body_of(api.get(f"jobs?batch={flow}&status=ready"))["jobs"]
    assert len(found) == 3
    worker = Remote(api)
    given = body_of(api.post(f"jobs/{more}/workers/{worker.id}"))
    assert body_of(worker.say(given, "heartbeat"))["cancel"] is None
    assert worker.finish(given, 1) == {"status": "stored"}
    for each in found:
        if each["id"] != more:
            given = body_of(api.post(f"jobs/{each['id']}/workers/{worker.id}"))
            worker.say(given, "failure", {**ERROR, "retry": False})
    assert body_of(api.get(f"workflows/{flow}/status"))["state"] == "failed"
    body_of(api.delete(f"workflows/{flow}"), 202)
    run_jobs()
    assert not Batch.objects.filter(pk=flow).exists()
