"""Heartbeats: what keeps the jobs of a worker over HTTP, and what is lost without them."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from django_pgjobs import cancel
from django_pgjobs.http.station import station
from django_pgjobs.models import Statistic
from django_pgjobs.queries import jobs, workers
from tests.factories import get_job, get_worker, make_running_job, make_worker
from tests.http import tasks
from tests.http.support import Api, problem_of
from tests.http.workers import Remote, body_of


def let_pass(seconds: float, worker_id: int | None = None) -> None:
    """Let what runs have begun so long ago, and a worker have named its jobs so long ago."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgjobs_job_live SET last_attempted_at"
            " = last_attempted_at - make_interval(secs => %s) WHERE status = 'running'",
            [seconds],
        )
        cursor.execute(
            "UPDATE pgjobs_worker SET named_at = (SELECT jsonb_object_agg(key,"
            " value::numeric - %s::numeric) FROM jsonb_each(named_at)) WHERE id = %s",
            [seconds, worker_id],
        )


def test_s2_20_a_heartbeat_renews_the_lease_of_three_intervals(api: Api) -> None:
    worker = Remote(api)
    before = get_worker(worker.id)
    beat = worker.beat()
    assert beat == {"cancel": [], "lease_seconds": 180.0, "quiet": False, "stop": False}
    row = get_worker(worker.id)
    assert (row.lease_expires_at - row.heartbeat_at).total_seconds() == pytest.approx(180)
    assert row.lease_expires_at > before.lease_expires_at


def test_s2_20_a_lease_that_is_over_stays_so(api: Api) -> None:
    worker = Remote(api)
    tasks.resize.enqueue(1)
    [given] = worker.claim()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgjobs_worker SET lease_expires_at = now() - interval '1 s'")
    assert problem_of(worker.post("heartbeat", {"assignments": []})) == "worker-gone"
    assert problem_of(worker.post("claim")) == "worker-gone"
    with connection.cursor() as cursor:
        jobs.rescue_jobs(cursor, max_jobs=10, default_max_losses=3)
    assert problem_of(worker.say(given, "result", {"result": 1})) == "lost"
    assert get_job(int(given["job"])).lost_count == 1


def test_s2_20_one_that_is_not_named_for_three_intervals_is_lost_alone(api: Api) -> None:
    """S2.20."""
    for number in range(3):
        tasks.resize.enqueue(number)
    worker = Remote(api)
    named, silent, new = worker.claim(3)
    assert worker.beat(named, silent)["cancel"] == []
    let_pass(179, worker.id)
    assert worker.beat(named)["cancel"] == []
    let_pass(2, worker.id)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgjobs_job_live SET last_attempted_at = now() WHERE id = %s", [new["job"]]
        )
    assert worker.beat(named)["cancel"] == []
    job = get_job(int(silent["job"]))
    assert (job.status, job.lost_count, job.attempts, job.worker_id) == ("ready", 1, 1, None)
    assert job.errors[0]["exception_class"] == "django_pgjobs.exceptions.WorkerLost"
    for each in (named, new):
        assert get_job(int(each["job"])).worker_id == worker.id
    assert problem_of(worker.say(silent, "result")) == "lost"
    assert [each["job"] for each in worker.claim(5)] == [silent["job"]]


def test_naming_an_attempt_that_is_over_keeps_no_new_one_of_the_job(api: Api) -> None:
    tasks.resize.enqueue(1)
    worker = Remote(api)
    [old] = worker.claim()
    worker.say(old, "release")
    [new] = worker.claim()
    assert new["job"] == old["job"]
    let_pass(181, worker.id)
    assert worker.beat(old)["cancel"] == [{"assignment": old["assignment"], "reason": "lost"}]
    assert get_job(int(new["job"])).status == "ready"
    assert problem_of(worker.say(new, "result")) == "lost"


def test_a_heartbeat_of_one_assignment_names_it_and_renews_the_lease(api: Api) -> None:
    tasks.resize.enqueue(1)
    tasks.resize.enqueue(2)
    worker = Remote(api)
    first, second = worker.claim(2)
    let_pass(181)
    assert body_of(worker.say(first, "heartbeat")) == {"cancel": None, "lease_seconds": 180.0}
    # It says nothing of the other; that is for the heartbeat of all.
    assert get_job(int(second["job"])).worker_id == worker.id
    worker.beat()
    assert get_job(int(second["job"])).status == "ready"
    assert get_job(int(first["job"])).worker_id == worker.id


def test_a_heartbeat_tells_what_was_cancelled_and_lost(api: Api) -> None:
    ids = [int(tasks.resize.enqueue(number).id) for number in range(3)]
    worker = Remote(api)
    given = worker.claim(3)
    cancel(ids[0])
    worker.finish(given[1])
    told = {each["assignment"]: each["reason"] for each in worker.beat(*given)["cancel"]}
    assert told == {given[0]["assignment"]: "cancelled", given[1]["assignment"]: "lost"}
    assert body_of(worker.say(given[0], "heartbeat"))["cancel"] == "cancelled"
    assert body_of(worker.say(given[0], "release")) == {"status": "cancelled"}
    assert get_job(ids[0]).status == "cancelled"


def test_what_fails_after_it_was_cancelled_is_cancelled(api: Api) -> None:
    job_id = int(tasks.resize.enqueue(1).id)
    worker = Remote(api)
    [given] = worker.claim()
    cancel(job_id)
    body = body_of(worker.say(given, "failure", {"error": {"type": "Interrupted"}}))
    assert body == {"status": "cancelled"}
    assert get_job(job_id).status == "cancelled"


def test_what_is_released_after_it_was_cancelled_is_cancelled(api: Api) -> None:
    job_id = int(tasks.resize.enqueue(1).id)
    worker = Remote(api)
    [given] = worker.claim()
    cancel(job_id)
    assert body_of(worker.say(given, "release", {"delay": 5})) == {"status": "cancelled"}
    assert get_job(job_id).status == "cancelled"


def test_a_cancelled_job_that_its_worker_no_longer_holds_is_not_given_again(api: Api) -> None:
    """It was told to end it, and did so without a word."""
    ids = [int(tasks.resize.enqueue(number).id) for number in range(2)]
    worker = Remote(api)
    [given] = worker.claim()
    cancel(ids[0])
    [told] = worker.beat(given)["cancel"]
    assert told == {"assignment": given["assignment"], "reason": "cancelled"}
    assert [int(each["job"]) for each in worker.claim(held=[])] == [ids[1]]
    job = get_job(ids[0])
    assert (job.status, job.attempts, len(job.errors)) == ("cancelled", 1, 0)


def test_s2_32_the_server_ends_an_attempt_that_takes_too_long(api: Api) -> None:
    job_id = int(tasks.bill.enqueue(1).id)
    worker = Remote(api)
    [given] = worker.claim()
    assert (given["timeout"], given["seconds_left"]) == (60.0, 60.0)
    let_pass(59)
    assert worker.beat(given)["cancel"] == []
    let_pass(2)
    [told] = worker.beat(given)["cancel"]
    assert told["reason"] == "timed_out"
    job = get_job(job_id)
    assert (job.status, job.attempts, job.lost_count) == ("ready", 1, 0)
    assert job.errors[0]["exception_class"] == "django_pgjobs.exceptions.JobTimeout"
    assert job.due_at is not None
    assert problem_of(worker.say(given, "result")) == "lost"


def test_a_heartbeat_rescues_what_another_worker_has_lost(api: Api) -> None:
    job_id = int(tasks.resize.enqueue(1).id)
    lost, worker = Remote(api), Remote(api)
    lost.claim()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgjobs_worker SET lease_expires_at = now() WHERE id = %s", [lost.id])
    worker.beat()
    job = get_job(job_id)
    assert (job.status, job.lost_count) == ("ready", 1)
    assert get_worker(lost.id).lost


def test_what_a_heartbeat_rescues_is_counted_and_logged(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    gone = make_worker(lease_seconds=-1)
    for task_path, max_losses in (("a.again", 2), ("a.last", 1)):
        make_running_job(gone, task_path=task_path, max_losses=max_losses)
    Remote(api).beat()
    station.end()
    counted = Statistic.objects.filter(lost__gt=0).order_by("task_path")
    assert [(row.task_path, row.lost, row.failed) for row in counted] == [
        ("a.again", 1, 0),
        ("a.last", 1, 1),
    ]
    logged = {record.levelname for record in caplog.records if "rescue" in record.getMessage()}
    assert logged == {"WARNING", "ERROR"}
    # A web process has taken them back, which is no worker.
    assert " worker=" not in caplog.text


def test_a_worker_over_http_is_never_the_leader(api: Api) -> None:
    Remote(api)
    ours = make_worker()
    with connection.cursor() as cursor:
        renewal = workers.renew_lease(cursor, ours, lease=60)
    assert renewal is not None
    assert renewal.is_leader


def test_orders_in_the_row_are_told(api: Api) -> None:
    tasks.resize.enqueue(1)
    worker = Remote(api)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgjobs_worker SET quiet_requested_at = now()")
    beat = worker.beat()
    assert (beat["quiet"], beat["stop"]) == (True, False)
    assert worker.claim() == []
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgjobs_worker SET quiet_requested_at = NULL, stop_requested_at = now()"
        )
    assert worker.beat()["stop"]
    assert worker.claim() == []


def test_progress_is_stored_with_the_job(api: Api) -> None:
    job_id = int(tasks.resize.enqueue(1).id)
    worker = Remote(api)
    [given] = worker.claim()
    report = {"done": 3, "total": 10, "message": "third"}
    assert body_of(worker.say(given, "progress", {"progress": report})) == {"status": "stored"}
    stored = get_job(job_id).progress
    assert {key: stored[key] for key in report} == report
    worker.beat(given, progress={given["assignment"]: {"done": 4}})
    assert get_job(job_id).progress["done"] == 4


def test_progress_that_stands_still_is_told_by_its_own_pauses(api: Api) -> None:
    """S2.32: it says how often it usually changes, and to say the same again is no change."""
    job_id = int(tasks.resize.enqueue(1).id)
    worker = Remote(api)
    [given] = worker.claim()

    def say(done: int, *, after: float) -> dict[str, Any]:
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE pgjobs_job_live SET last_attempted_at = last_attempted_at"
                " - make_interval(secs => %(after)s), progress = (progress::jsonb ||"
                " jsonb_build_object('changed_at', (progress ->> 'changed_at')::timestamptz"
                " - make_interval(secs => %(after)s)))::json",
                {"after": after},
            )
        report = {"done": done, "total": 9}
        body_of(worker.say(given, "progress", {"progress": report}))
        return dict(get_job(job_id).progress)

    assert 400 <= say(1, after=400)["longest_pause"] < 430
    assert 900 <= say(2, after=900)["longest_pause"] < 930
    changed = say(3, after=50)
    assert 900 <= changed["longest_pause"] < 930
    same = say(3, after=500)
    assert (same["done"], same["longest_pause"]) == (3, changed["longest_pause"])
    assert same["changed_at"] < changed["changed_at"]


def test_progress_of_an_attempt_that_is_over_hides_none(api: Api) -> None:
    job_id = int(tasks.resize.enqueue(1).id)
    worker = Remote(api)
    [old] = worker.claim()
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgjobs_job SET status = 'ready', worker_id = NULL, claim = claim + 1"
        )
    [new] = worker.claim(held=[old["assignment"]])
    said = {new["assignment"]: {"done": 2}, old["assignment"]: {"done": 1}}
    worker.beat(new, old, progress=said)
    assert get_job(job_id).progress["done"] == 2


# More digits than Python reads as a number.
LONG = f'{{"{"9" * 5_000}": 9999999999}}'


def test_odd_values_of_what_was_named_harm_nobody(api: Api) -> None:
    tasks.resize.enqueue(1)
    worker = Remote(api)
    [given] = worker.claim()
    for odd in ("[1]", '"x"', '{"a": 1e400, "5": "y", "6": null}', "null", LONG):
        with connection.cursor() as cursor:
            cursor.execute("UPDATE pgjobs_worker SET named_at = %s", [odd])
        assert worker.beat(given)["cancel"] == []


def test_a_client_may_name_all_that_it_can_hold(api: Api) -> None:
    """As many as its slots, and outcomes that it has not reported yet."""
    remote = Remote(api)
    names = [{"assignment": f"{number}"} for number in range(1_500)]
    told = remote.beat(*names)
    assert {each["reason"] for each in told["cancel"]} == {"lost"}
    assert remote.claim(held=[each["assignment"] for each in names]) == []
