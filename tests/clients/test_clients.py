"""What both clients do."""

from __future__ import annotations

import signal
from collections.abc import Callable

import psycopg
import pytest
from django.db.models.functions import Now

from tests.clients.server import Server
from tests.clients.support import RemoteWorker
from tests.helpers import wait_until
from tests.http_proxy import HttpProxy
from tests.process.support import Journal

pytestmark = pytest.mark.process

AT_GATE = {"done": 1.0, "total": 2.0, "message": "at the gate"}
Start = Callable[..., RemoteWorker]


def wait_for(server: Server, job: int, status: str, worker: RemoteWorker) -> None:
    """Wait for the status of a job."""
    wait_until(
        lambda: server.row(job).status == status,
        message=lambda: f"{server.row(job)}\n{worker.output()}",
    )


def test_a_job_runs_with_its_arguments_and_its_result_is_stored(
    server: Server, start: Start
) -> None:
    """S2.7: claim, work, report."""
    job = server.enqueue("add", 1, second=2)
    worker = start()
    wait_for(server, job, "successful", worker)
    assert server.row(job).result == {"sum": 3}
    # And one that comes while it waits.
    later = server.enqueue("add", 5)
    wait_for(server, later, "successful", worker)
    assert server.row(later).result == {"sum": 5}


def test_many_jobs_run_once_each_and_are_reported_together(
    server: Server, proxy: HttpProxy, start: Start, journal: Journal
) -> None:
    jobs = [server.enqueue("note", journal.folder, f"job {n}") for n in range(300)]
    worker = start(slots=20)
    for job in jobs:
        wait_for(server, job, "successful", worker)
    assert sorted(journal.lines()) == sorted(f"job {n}" for n in range(300))
    reports = [asked for asked in proxy.asked if asked.path.endswith("/results")]
    assert len(reports) < 300


def test_an_exception_is_reported_and_the_server_decides(server: Server, start: Start) -> None:
    job = server.enqueue("fail", 1)
    worker = start()
    wait_for(server, job, "successful", worker)
    assert server.row(job).result == 2
    [error] = server.row(job).errors
    assert error["exception_class"] == "ValueError" and error["message"] == "not yet"
    assert "not yet" in error["traceback"]


def test_a_task_may_ask_for_another_attempt_or_for_none(server: Server, start: Start) -> None:
    again, never = server.enqueue("wait_and_see"), server.enqueue("discard")
    worker = start()
    wait_for(server, again, "successful", worker)
    wait_for(server, never, "failed", worker)
    assert server.row(again).attempts == 2
    [error] = server.row(again).errors
    assert (error["exception_class"], error["message"]) == ("ValueError", "not yet")
    assert "later" in error["traceback"] and "not yet" in error["traceback"]
    assert server.row(never).attempts == 1


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("lost", ["/claim", "/results", "/workers"])
def test_a_lost_answer_loses_and_repeats_nothing(
    server: Server, proxy: HttpProxy, start: Start, journal: Journal, lost: str, when: str
) -> None:
    """S2.6: the claim is repeated with what is held, and gets the same jobs."""
    jobs = [server.enqueue("note", journal.folder, f"job {n}") for n in range(3)]
    rule = proxy.lose(lost, when=when, times=2)
    worker = start()
    for job in jobs:
        wait_for(server, job, "successful", worker)
    rule.wait()
    assert sorted(journal.lines()) == ["job 0", "job 1", "job 2"]
    assert [server.row(job).attempts for job in jobs] == [1, 1, 1]


@pytest.mark.parametrize("status", [404, 429, 502, 503])
def test_it_waits_for_a_server_that_is_down(
    server: Server, proxy: HttpProxy, start: Start, status: int
) -> None:
    """S2.2: nothing is lost by an outage; a 404 is not the server's but a proxy's."""
    rule = proxy.answer("/", status, times=4)
    worker = start()
    rule.wait()
    job = server.enqueue("add", 1)
    wait_for(server, job, "successful", worker)
    wait_until(lambda: rule.left == 0)
    assert f"{status} is no answer of pgjobs. Is http://" in worker.output()


@pytest.mark.parametrize("status", [401, 403])
def test_what_a_proxy_refuses_is_no_refused_token(
    server: Server, proxy: HttpProxy, start: Start, journal: Journal, status: int
) -> None:
    """As a firewall says of too many requests; only the API knows whether a token is good."""
    worker = start()
    first = server.enqueue("note", journal.folder, "first")
    wait_for(server, first, "successful", worker)
    rule = proxy.answer("/", status, times=4)
    second = server.enqueue("note", journal.folder, "second")
    wait_for(server, second, "successful", worker)
    assert rule.left == 0
    assert journal.lines() == ["first", "second"]


@pytest.mark.slow
@pytest.mark.parametrize("status", [404, 200])
def test_an_address_at_which_nothing_of_pgjobs_answers_ends_it(
    proxy: HttpProxy, start: Start, status: int
) -> None:
    """A proxy may say 404 for a while; that for seconds, and from the start on, is a wrong URL."""
    proxy.answer("/", status, times=1000)
    worker = start()
    assert worker.wait() == 1
    assert worker.output().count(f"{status} is no answer of pgjobs. Is http://") == 7
    assert 'include("django_pgjobs.http.urls"), such as https://' in worker.output()


def test_what_cannot_be_stored_now_is_said_again(
    server: Server,
    proxy: HttpProxy,
    start: Start,
    journal: Journal,
    open_connection: Callable[..., psycopg.Connection],
) -> None:
    """Somebody has locked the row; the job is the program's for as long, and holds up no other."""
    job = server.enqueue("hold", journal.folder, "a")
    worker = start(slots=1)
    journal.wait_for("start a 1")
    locked = open_connection(autocommit=False)
    locked.execute("SELECT FROM pgjobs_job WHERE id = %s FOR UPDATE", [job])
    journal.open_gate()
    proxy.wait_for("/results", 200)
    for _ in range(5):
        wait_for(server, server.enqueue("add", 1), "successful", worker)
    assert server.row(job).status == "running"
    reports = [asked.body["results"] for asked in proxy.asked if asked.path.endswith("/results")]
    [first] = reports[0]
    names = [[each["assignment"] for each in report] for report in reports]
    assert any(first["assignment"] not in each for each in names), "it rests between its tries"
    locked.rollback()
    wait_for(server, job, "successful", worker)
    assert server.row(job).attempts == 1


def test_orders_of_people_are_followed(server: Server, proxy: HttpProxy, start: Start) -> None:
    worker = start()
    wait_until(lambda: server.workers() == 1)
    server.order(quiet_requested_at=Now())
    proxy.wait_for("/heartbeat", 200)
    proxy.wait_for("/heartbeat", 200)
    job = server.enqueue("add", 1)
    proxy.wait_for("/heartbeat", 200)
    assert server.row(job).status == "ready"
    server.order(quiet_requested_at=None)
    wait_for(server, job, "successful", worker)
    server.order(stop_requested_at=Now())
    assert worker.wait() == 0
    assert server.workers() == 0


def test_a_job_that_is_cancelled_ends(server: Server, start: Start, journal: Journal) -> None:
    job = server.enqueue("hold", journal.folder, "a")
    worker = start()
    journal.wait_for("start a 1")
    server.cancel(job)
    wait_for(server, job, "cancelled", worker)
    assert journal.count("cancelled a 1: cancelled") == 1


def test_progress_is_told(server: Server, start: Start, journal: Journal) -> None:
    job = server.enqueue("hold", journal.folder, "a")
    worker = start()
    wait_until(
        lambda: AT_GATE.items() <= (server.row(job).progress or {}).items(), message=worker.output
    )
    journal.open_gate()
    wait_for(server, job, "successful", worker)


def test_the_last_progress_is_told_with_the_end(server: Server, start: Start) -> None:
    job = server.enqueue("progress_last")
    worker = start()
    wait_for(server, job, "successful", worker)
    said = server.row(job).progress or {}
    assert (said["done"], said["message"]) == (2, "printed")


def test_progress_that_is_refused_stops_no_heartbeat(
    server: Server, proxy: HttpProxy, start: Start, journal: Journal
) -> None:
    job = server.enqueue("progress_strangely", journal.folder)
    worker = start()
    wait_until(lambda: proxy.count("/heartbeat", 422), message=worker.output)
    claim = server.row(job).claim
    proxy.wait_for("/heartbeat", 200)
    journal.open_gate()
    wait_for(server, job, "successful", worker)
    # It has neither ended for want of heartbeats nor been given a second time.
    assert server.row(job).claim == claim


def test_a_job_past_its_timeout_ends(server: Server, start: Start, journal: Journal) -> None:
    job = server.enqueue("hold", journal.folder, "a", timeout=0.5)
    start()
    journal.wait_for("cancelled a 1: timed_out")
    wait_until(lambda: server.row(job).errors)
    journal.open_gate()


def test_after_two_heartbeats_that_failed_it_cancels_its_work(
    server: Server, proxy: HttpProxy, start: Start, journal: Journal
) -> None:
    """S2.21: before the server gives the jobs to somebody else."""
    job = server.enqueue("hold", journal.folder, "a")
    worker = start()
    journal.wait_for("start a 1")
    rule = proxy.answer("/heartbeat", 503, times=1)
    wait_until(lambda: rule.left == 0)
    proxy.wait_for("/heartbeat", 200)
    assert not any(line.startswith("cancelled") for line in journal.lines())
    rule = proxy.answer("/heartbeat", 503, times=1e9)
    journal.wait_for("cancelled a 1: silence")
    assert proxy.count("/heartbeat", 503) >= 3
    rule.end()
    # It is given back, uncounted.
    journal.open_gate()
    wait_for(server, job, "successful", worker)
    assert server.row(job).attempts == 1


def test_a_worker_that_was_given_up_begins_anew(
    server: Server, start: Start, journal: Journal
) -> None:
    job = server.enqueue("hold", journal.folder, "a")
    worker = start(slots=2)
    journal.wait_for("start a 1")
    server.forget_workers()
    journal.wait_for("cancelled a 1: lost")
    # It begins again, by another worker: given back, or lost, whatever came first.
    wait_until(lambda: sum(line.startswith("start a") for line in journal.lines()) == 2)
    journal.open_gate()
    wait_for(server, job, "successful", worker)
    assert "404 There is no such worker: Register anew" in worker.output()
    assert worker.output().count("Registered as worker ") == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_jobs_end_and_says_goodbye(
    server: Server, proxy: HttpProxy, start: Start, journal: Journal, number: int
) -> None:
    job = server.enqueue("hold", journal.folder, "a")
    worker = start(slots=2)
    journal.wait_for("start a 1")
    worker.process.send_signal(number)
    other = server.enqueue("add", 1)
    journal.open_gate()
    assert worker.wait() == 0, worker.output()
    assert server.row(job).status == "successful"
    assert server.workers() == 0
    # A heartbeat may be under way beside it.
    assert [asked.method for asked in proxy.asked].count("DELETE") == 1
    # Taken by the claim that waited at the signal, and given back; or not taken.
    assert server.row(other).status in ("ready", "successful")


@pytest.mark.parametrize("grace", [0, 0.2])
def test_what_does_not_end_is_given_back(
    server: Server, start: Start, journal: Journal, grace: float
) -> None:
    ended = server.enqueue("hold", journal.folder, "a")
    ignored = server.enqueue("ignore", journal.folder, "b")
    worker = start(slots=2, grace=grace)
    journal.wait_for("start a 1", "start b")
    assert worker.stop() == 0
    assert journal.count("cancelled a 1: shutdown") == 1
    assert [server.row(job).status for job in (ended, ignored)] == ["ready", "ready"]


def test_a_token_that_is_of_no_use_ends_it(server: Server, start: Start) -> None:
    worker = start(token=f"pgj_{'x' * 43}")
    assert worker.wait() == 1
    assert "401 No valid token: This token" in worker.output()
    assert "Traceback" not in worker.output() and "    at " not in worker.output()


def test_jobs_end_with_the_token_they_were_claimed_with(
    server: Server, start: Start, journal: Journal
) -> None:
    """Nobody would take their results, and others get them."""
    server.enqueue("hold", journal.folder, "a")
    worker = start()
    journal.wait_for("start a 1")
    server.revoke_token()
    journal.wait_for("cancelled a 1: shutdown")
    assert worker.wait() == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once(
    server: Server, start: Start, journal: Journal, number: int
) -> None:
    """The same or the other one."""
    server.enqueue("ignore", journal.folder, "a")
    worker = start()
    journal.wait_for("start a")
    worker.process.send_signal(signal.SIGTERM)
    wait_until(lambda: "Stopping: 1 " in worker.output(), message=worker.output)
    worker.process.send_signal(number)
    assert worker.wait() == -number


@pytest.mark.parametrize(
    "task", ["make_large", "make_strange", "fail_strangely", "fail_silently", "ask_strangely"]
)
def test_an_outcome_that_cannot_be_stored_is_a_failure(
    server: Server, start: Start, task: str
) -> None:
    """And holds up no other one."""
    job = server.enqueue(task)
    others = [server.enqueue("add", n) for n in range(3)]
    worker = start(slots=4)
    for other in others:
        wait_for(server, other, "successful", worker)
    wait_until(lambda: server.row(job).errors, message=worker.output)
