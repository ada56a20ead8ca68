"""What a worker over HTTP is kept from: what is not its own, and what is over."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from django.db import connection

from django_pgjobs.http import access as access_module
from django_pgjobs.http import beating, reporting
from django_pgjobs.http.access import known_tokens
from django_pgjobs.http.looking import looks
from django_pgjobs.http.members import recent_members
from django_pgjobs.http.views import workers as workers_module
from django_pgjobs.models import Token
from django_pgjobs.queries import jobs
from tests.factories import get_job, get_worker, make_token
from tests.helpers import execute
from tests.http import tasks
from tests.http.support import ONLY_WSGI, Api, problem_of
from tests.http.test_rules_repeats import JOBS, crossed
from tests.http.workers import Remote, body_of

pytestmark = pytest.mark.usefixtures("hold")

# A trigger of the project that objects.
OBJECTION = "P0001"
OBJECTING = """
CREATE FUNCTION object_to_updates() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'a trigger objects'; END $$;
CREATE TRIGGER object_to_updates BEFORE UPDATE ON pgjobs_job_live
    FOR EACH ROW EXECUTE FUNCTION object_to_updates();
"""


def let_pass(seconds: float) -> None:
    """Let so much time pass for what runs."""
    execute(
        "UPDATE pgjobs_job_live SET last_attempted_at = last_attempted_at - make_interval(secs"
        " => %s) WHERE status = 'running'",
        seconds,
    )


# Other workers


def test_a_worker_says_nothing_of_what_another_one_runs(api: Api) -> None:
    """Both are of one token."""
    tasks.resize.enqueue(1)
    owner, other = Remote(api, "owner"), Remote(api, "other")
    [given] = owner.claim()
    name = given["assignment"]
    told = other.beat(given, progress={name: {"done": 5}})
    assert told["cancel"] == [{"assignment": name, "reason": "lost"}]
    assert get_job(int(given["job"])).progress is None
    assert get_worker(other.id).named_at in (None, {}, "{}")
    assert owner.beat(given, progress={name: {"done": 5}})["cancel"] == []
    assert get_job(int(given["job"])).progress["done"] == 5


def test_only_what_was_asked_about_is_answered(api: Api) -> None:
    """Progress of what is over needs no answer."""
    worker = Remote(api)
    assert worker.beat(progress={"forged": {"done": 5}})["cancel"] == []


def test_nobody_says_goodbye_for_the_worker_of_another_token(api: Api) -> None:
    job_id = int(tasks.resize.enqueue(1).id)
    worker = Remote(api)
    [given] = worker.claim()
    stranger = Api(make_token("stranger"))
    answer = stranger.delete(f"workers/{worker.id}")
    assert (answer.status_code, problem_of(answer)) == (404, "worker-gone")
    assert get_worker(worker.id).ended_at is None
    assert get_job(job_id).status == "running"
    assert worker.finish(given) == {"status": "stored"}


def test_a_goodbye_gives_back_more_than_one_page(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers_module, "MAX_NAMED", 2)
    ids = [int(tasks.resize.enqueue(number).id) for number in range(5)]
    worker = Remote(api)
    worker.claim(5)
    assert api.delete(f"workers/{worker.id}").status_code == 204
    assert [(get_job(each).status, get_job(each).attempts) for each in ids] == [("ready", 0)] * 5


def test_a_goodbye_leaves_what_somebody_has_locked_to_the_rescue(
    api: Api, open_connection: Callable[..., psycopg.Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends all the same."""
    monkeypatch.setattr(reporting, "PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(workers_module, "MAX_NAMED", 2)
    locked, free = (int(tasks.resize.enqueue(number).id) for number in range(2))
    worker = Remote(api)
    worker.claim(5)
    other = open_connection(autocommit=False)
    other.execute("SELECT FROM pgjobs_job_live WHERE id = %s FOR UPDATE", [locked])
    assert api.delete(f"workers/{worker.id}").status_code == 204
    other.rollback()
    assert (get_job(locked).status, get_job(free).status) == ("running", "ready")
    assert get_worker(worker.id).ended_at is not None
    with connection.cursor() as cursor:
        assert jobs.rescue_jobs(cursor, max_jobs=10, default_max_losses=3)
    looks.begin_anew()
    assert {int(each["job"]) for each in Remote(api).claim(5)} == {locked, free}


# Tokens that were narrowed


@pytest.mark.parametrize(
    "narrowed", [{"queues": ["python"]}, {"tasks": [tasks.convert.module_path]}], ids=str
)
def test_what_a_token_has_lost_since_is_not_given(api: Api, narrowed: dict[str, Any]) -> None:
    job_id = int(tasks.resize.enqueue(1).id)
    api = Api(make_token("narrowed"))
    worker = Remote(api)
    Token.objects.filter(name="narrowed").update(**narrowed)
    known_tokens.forget()
    recent_members.forget()
    assert worker.claim(5) == []
    assert worker.claim(5, held=[]) == []
    answer = api.post(f"jobs/{job_id}/workers/{worker.id}")
    assert (answer.status_code, problem_of(answer)) == (404, "not-found")
    job = get_job(job_id)
    # It was left alone, not claimed and given back.
    assert (job.status, job.claim, job.note) == ("ready", 0, "")


def test_a_token_that_expires_is_not_remembered_for_longer(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_module, "CACHED_SECONDS", 7200.0)
    execute("UPDATE pgjobs_token SET expires_at = now() + interval '1 hour'")
    assert api.get("token").status_code == 200
    execute("UPDATE pgjobs_token SET expires_at = now()")
    assert api.get("token").status_code == 200
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + 3601.0)
    monkeypatch.setattr(access_module, "time", later)
    assert api.get("token").status_code == 401


# Orders


def test_a_quiet_worker_is_given_no_job_by_its_id(api: Api) -> None:
    job_id = int(tasks.resize.enqueue(1).id)
    worker = Remote(api)
    for column in ("quiet_requested_at", "stop_requested_at"):
        execute(f"UPDATE pgjobs_worker SET {column} = now()")
        answer = api.post(f"jobs/{job_id}/workers/{worker.id}")
        assert (answer.status_code, problem_of(answer)) == (409, "not-next")
        execute(f"UPDATE pgjobs_worker SET {column} = NULL")
    body_of(api.post(f"jobs/{job_id}/workers/{worker.id}"))


@ONLY_WSGI
def test_who_becomes_quiet_while_it_waits_is_given_nothing(api: Api, settings: Any) -> None:
    """What is known of a worker may be a second old; who waits is asked for again."""
    settings.PGJOBS = {**settings.PGJOBS, "HTTP_MAX_WAITING": 0}
    worker = Remote(api)
    assert worker.claim() == []
    execute("UPDATE pgjobs_worker SET quiet_requested_at = now()")
    job_id = int(tasks.resize.enqueue(1).id)
    assert worker.claim(wait=25) == []
    assert get_job(job_id).claim == 0
    execute("UPDATE pgjobs_worker SET quiet_requested_at = NULL")
    assert len(worker.claim(wait=25)) == 1


# What it says


def test_of_two_reports_of_an_assignment_the_first_counts(api: Api) -> None:
    job_id = int(tasks.convert.enqueue().id)
    worker = Remote(api)
    [given] = worker.claim()
    name = given["assignment"]
    results = [
        {"assignment": name, "error": {"type": "E"}, "retry": False},
        {"assignment": name, "result": 1},
    ]
    body = body_of(api.post("results", {"results": results}))
    assert [each["status"] for each in body["results"]] == ["failed", "lost"]
    assert get_job(job_id).status == "failed"


def test_a_retry_that_is_denied_has_no_time(api: Api) -> None:
    tasks.convert.enqueue()
    worker = Remote(api)
    [given] = worker.claim()
    body = {"error": {"type": "E"}, "retry": False, "retry_after": 5}
    answer = worker.say(given, "failure", body)
    assert (answer.status_code, problem_of(answer)) == (422, "invalid")
    assert get_job(int(given["job"])).status == "running"


# Rows in which something is wrong


def test_progress_that_the_server_refuses_costs_no_heartbeat(api: Api) -> None:
    tasks.resize.enqueue(1)
    worker = Remote(api)
    [given] = worker.claim()
    report = {given["assignment"]: {"done": 5}}
    with crossed(10, JOBS, when="NEW.progress IS NOT NULL", code=OBJECTION):
        assert worker.beat(given, progress=report)["cancel"] == []
        assert body_of(worker.say(given, "progress", {"progress": {"done": 5}}))
    assert get_job(int(given["job"])).progress is None
    worker.beat(given, progress=report)
    assert get_job(int(given["job"])).progress["done"] == 5


def test_a_job_that_cannot_be_let_go_keeps_nobody_from_the_others(api: Api) -> None:
    due, other = (int(tasks.resize.enqueue(number).id) for number in range(2))
    execute("UPDATE pgjobs_job_live SET due_at = now() WHERE id = %s", due)
    worker = Remote(api)
    with crossed(10, JOBS, when=f"OLD.id = {due}", code=OBJECTION):
        assert [int(each["job"]) for each in worker.claim(5)] == [other]
    looks.begin_anew()
    assert [int(each["job"]) for each in worker.claim(5)] == [due]


def test_an_attempt_that_is_late_and_locked_is_ended_at_the_next_heartbeat(
    api: Api, open_connection: Callable[..., psycopg.Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not told that it ended before it has."""
    monkeypatch.setattr(reporting, "PATIENCE_SECONDS", 0.1)
    job_id = int(tasks.bill.enqueue(1).id)
    worker = Remote(api)
    [given] = worker.claim()
    let_pass(100)
    other = open_connection(autocommit=False)
    other.execute("SELECT FROM pgjobs_job_live WHERE id = %s FOR UPDATE", [job_id])
    assert worker.beat(given)["cancel"] == []
    assert get_job(job_id).status == "running"
    other.rollback()
    [told] = worker.beat(given)["cancel"]
    assert told["reason"] == "timed_out"
    assert get_job(job_id).status == "ready"


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_rescue_that_fails_costs_no_lease_but_a_loss_is_told(
    api: Api, monkeypatch: pytest.MonkeyPatch, is_lost: bool
) -> None:
    lost, worker = Remote(api, "lost"), Remote(api)
    execute("UPDATE pgjobs_worker SET lease_expires_at = now() WHERE id = %s", lost.id)

    def fail(*_: Any, **__: Any) -> Any:
        if is_lost:
            raise psycopg.OperationalError("the connection was lost")
        raise psycopg.errors.RaiseException("a trigger objects")

    monkeypatch.setattr(psycopg.errors.RaiseException, "sqlstate", OBJECTION)
    monkeypatch.setattr(beating.jobs, "rescue_jobs", fail)
    answer = worker.post("heartbeat", {"assignments": []})
    assert answer.status_code == (503 if is_lost else 200)
    monkeypatch.undo()
    worker.beat()
    assert get_worker(lost.id).lost


@pytest.mark.parametrize("column", ["revoked_at", "expires_at"])
def test_whose_token_ends_while_it_waits_is_given_nothing(
    api: Api, settings: Any, column: str
) -> None:
    """A request that waits was let in before; a token that has ended is good for 5 s at most."""
    settings.PGJOBS = {**settings.PGJOBS, "HTTP_MAX_WAITING": 0}
    worker = Remote(api)
    assert worker.claim() == []
    execute(f"UPDATE pgjobs_token SET {column} = now()")
    job_id = int(tasks.resize.enqueue(1).id)
    assert problem_of(worker.post("claim", {"wait": 25})) == "worker-gone"
    assert get_job(job_id).claim == 0


def test_what_was_claimed_for_nobody_goes_back_uncounted(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row of another task slips through, because it was not among those to be left alone."""
    from django_pgjobs.http.station import station
    from tests.tasks import add

    local = int(add.using(queue_name="node", priority=9).enqueue(1, 2).id)
    mine = int(tasks.resize.enqueue(1).id)
    worker = Remote(api)
    monkeypatch.setattr(station, "paths_of_others", lambda allowed: frozenset())
    given = worker.claim(1)
    assert {int(each["job"]) for each in given} <= {mine}
    job = get_job(local)
    assert (job.status, job.attempts) == ("ready", 0)
    assert "the token or the worker is not for it" in job.note


def test_s2_20_an_outcome_of_a_row_that_nothing_may_change_is_said_again(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    """Told "lost", its worker would forget it, and the next claim would give it once more."""
    tasks.resize.enqueue(1)
    worker = Remote(api)
    [given] = worker.claim()
    execute(OBJECTING)
    try:
        results = [{"assignment": given["assignment"], "result": 1}]
        body = body_of(api.post("results", {"results": results}))
        assert [each["status"] for each in body["results"]] == ["later"]
        assert problem_of(worker.say(given, "result", {"result": 1})) == "unavailable"
        errors = [record for record in caplog.records if record.levelname == "ERROR"]
        assert len(errors) == 1, "said once, however often it is tried"
    finally:
        execute("DROP FUNCTION object_to_updates() CASCADE")
    assert get_job(int(given["job"])).status == "running"
    assert worker.finish(given, 1) == {"status": "stored"}
