"""A whole worker: when it looks, listens and gives back, and what a lost connection leaves."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg import sql

from django_pgjobs.queries import workers
from tests import tasks
from tests.factories import count_jobs, get_job, get_worker, make_job, make_jobs, make_worker
from tests.helpers import wait_until
from tests.models import Effect
from tests.proxy import TcpProxy
from tests.worker import tasks as gate_tasks
from tests.worker.refusing import allow
from tests.worker.support import NEVER, Gate, ThreadedWorker, counted_round_trips

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., ThreadedWorker]
CLAIM = "status = 'running',\nclaim = pg_catalog.mod("
FINISH = "status = 'successful',"


def wait_until_listening(worker: ThreadedWorker) -> None:
    wait_until(lambda: get_worker(worker.id).listening)


def wait_until_done(*job_ids: int | str) -> None:
    wait_until(lambda: {get_job(job_id).status for job_id in job_ids} == {"successful"})


@pytest.mark.slow
def test_an_idle_worker_says_that_it_listens_and_a_notification_wakes_it(
    start_thread: Start,
) -> None:
    """The poll would come in an hour."""
    worker = start_thread(poll_interval=NEVER)
    for _ in range(3):
        wait_until_listening(worker)
        wait_until_done(tasks.add.enqueue(1, 2).id)


def test_a_worker_says_that_it_listens_before_it_looks_for_the_last_time(
    start_thread: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What commits in between notifies it, or is seen: the two are not one transaction."""
    said_in = []
    set_listening = workers.set_listening

    def noted(*args: Any, **kwargs: Any) -> None:
        said_in.append(len(counts["upkeep"]) - 1)
        set_listening(*args, **kwargs)

    monkeypatch.setattr(workers, "set_listening", noted)
    with counted_round_trips() as counts:
        wait_until_listening(start_thread(poll_interval=NEVER))
        [said] = said_in
        wait_until(lambda: len(counts["upkeep"]) > said + 1)
    alone, *looks = counts["upkeep"][said:]
    assert alone == 1
    assert set(looks) <= {2, 3}  # a look is so many statements


def test_a_plain_insert_wakes_an_idle_worker(start_thread: Start) -> None:
    """S1.7, S3.4: to run a job you insert a row."""
    wait_until_listening(start_thread(poll_interval=NEVER))
    wait_until_done(make_job())


@pytest.mark.slow
def test_a_busy_worker_takes_back_that_it_listens_and_is_not_notified(
    start_thread: Start, gate: Gate, open_connection: Callable[..., psycopg.Connection]
) -> None:
    """Busy workers do not listen, they poll by working."""
    worker = start_thread(concurrency=1)
    wait_until_listening(worker)
    gate_tasks.wait_at_gate.enqueue()
    gate.wait_entered()
    wait_until(lambda: not get_worker(worker.id).listening)
    listener = open_connection()
    listener.execute("LISTEN pgjobs")
    waiting = tasks.add.enqueue(1, 2)
    listener.execute("NOTIFY pgjobs, 'last'")
    heard = [notification.payload for notification in listener.notifies(timeout=15, stop_after=1)]
    assert heard == ["last"]
    gate.open()
    wait_until_done(waiting.id)
    wait_until_listening(worker)


def test_one_notification_per_statement_and_queue(
    start_thread: Start, open_connection: Callable[..., psycopg.Connection]
) -> None:
    make_worker(listening=True)
    listener = open_connection()
    listener.execute("LISTEN pgjobs")
    make_jobs(50, queue_name="mail")
    listener.execute("NOTIFY pgjobs, 'last'")
    heard = [notification.payload for notification in listener.notifies(timeout=15, stop_after=2)]
    assert heard == ["mail", "last"]


def test_without_listening_the_poll_finds_the_job(start_thread: Start) -> None:
    """S1.10, S5.17."""
    worker = start_thread(listen=False, poll_interval=0.1)
    wait_until_done(tasks.add.enqueue(1, 2).id)
    wait_until_done(tasks.add.enqueue(1, 2).id)
    assert not get_worker(worker.id).listening


@pytest.mark.slow
def test_an_idle_worker_runs_no_query(start_thread: Start) -> None:
    """Nothing but LISTEN, a slow poll and the lease."""
    with counted_round_trips() as counts:
        worker = start_thread(poll_interval=0.5)
        wait_until_listening(worker)
        # The gaps between two looks grow up to the poll interval.
        wait_until(lambda: sum(2**n * 0.01 for n in range(len(counts["upkeep"]))) > 4)
        began, before = time.monotonic(), {role: len(found) for role, found in counts.items()}
        wait_until(lambda: len(counts["upkeep"]) >= before["upkeep"] + 2)
        assert time.monotonic() - began > 0.4
        assert {role: len(counts[role]) for role in ("lease",)} == {"lease": before["lease"]}
        assert "pump" not in counts


def test_scheduled_jobs_run_when_they_are_due_and_not_at_the_next_poll(
    start_thread: Start,
) -> None:
    """S1.22: the look before told when the next one is due."""
    job_id = make_job(run_after=sql.SQL("now() + interval '0.6 s'"))
    worker = start_thread(poll_interval=NEVER)
    wait_until_listening(worker)
    wait_until_done(job_id)
    job = get_job(job_id)
    assert job.started_at >= job.run_after


def test_a_retry_runs_when_it_is_due_and_not_at_the_next_poll(start_thread: Start) -> None:
    """S2.26: no cron has to look for due retries."""
    start_thread(poll_interval=NEVER)
    job = tasks.fail.enqueue()
    wait_until(lambda: get_job(job.id).status == "failed")
    assert get_job(job.id).attempts == 3


@pytest.mark.slow
def test_claimed_jobs_that_no_slot_begins_go_back(start_thread: Start, gate: Gate) -> None:
    """S4.15: short jobs are claimed ahead, and are not hoarded behind a long one."""
    quick = make_jobs(40, "tests.tasks.add")
    gate_tasks.wait_at_gate.enqueue()
    behind = make_jobs(40, "tests.tasks.add")
    start_thread(concurrency=1)
    gate.wait_entered()
    wait_until(lambda: count_jobs(status="running") == 1)
    rows = [get_job(job_id) for job_id in behind]
    assert {(row.status, row.attempts) for row in rows} == {("ready", 0)}
    assert "given back: no slot became free" in {row.note for row in rows}
    gate.open()
    wait_until(lambda: count_jobs(status="successful") == 81)
    assert {get_job(job_id).attempts for job_id in [*quick, *behind]} == {1}


def test_a_claim_whose_answer_is_lost_goes_back_and_is_made_again(
    start_proxied: Start, proxy: TcpProxy, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker never heard of the jobs; their attempts do not count."""
    lost = proxy.cut_on(CLAIM, when="after")
    jobs = make_jobs(3)
    start_proxied()
    lost.wait()
    wait_until_done(*jobs)
    assert {(job.attempts, len(job.worker_ids)) for job in map(get_job, jobs)} == {(1, 1)}
    assert "jobs of a claim whose answer was lost" in caplog.text


def test_a_claim_that_never_arrived_is_made_again(start_proxied: Start, proxy: TcpProxy) -> None:
    lost = proxy.cut_on(CLAIM, when="before")
    job_id = make_job()
    start_proxied()
    lost.wait()
    wait_until_done(job_id)


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_outcome_whose_connection_breaks_is_written_once(
    start_proxied: Start, proxy: TcpProxy, when: Any
) -> None:
    """The job does not stay running, and does not run again."""
    lost = proxy.cut_on(FINISH, when=when)
    job = tasks.record.enqueue("once")
    worker = start_proxied()
    lost.wait()
    wait_until_done(job.id)
    wait_until(lambda: not worker.runner.state.held)
    assert Effect.objects.filter(key="once").count() == 1
    assert get_job(job.id).attempts == 1


def test_jobs_that_end_during_an_outage_are_finished_after_it(
    start_proxied: Start, proxy: TcpProxy, gate: Gate
) -> None:
    """The worker goes on."""
    job = gate_tasks.wait_at_gate.enqueue([1])
    start_proxied()
    gate.wait_entered()
    proxy.refuse()
    proxy.cut()
    gate.open()
    proxy.accept()
    wait_until_done(job.id)
    assert get_job(job.id).result == [1]
    wait_until_done(tasks.add.enqueue(1, 2).id)


def of(job_id: int, *statuses: str) -> str:
    """Return the condition that a job takes one of these statuses."""
    quoted = ", ".join(f"'{status}'" for status in statuses)
    return f"NEW.id = {job_id} AND NEW.status IN ({quoted})"


def test_an_outcome_that_the_server_refuses_fails_alone(
    drain: Start, refuse: Callable[..., None]
) -> None:
    """The others of its batch are written as they are."""
    jobs = make_jobs(20)
    refuse(of(jobs[7], "successful"))
    drain(concurrency=1)
    assert count_jobs(status="successful") == 19
    refused = get_job(jobs[7])
    assert refused.status == "failed"
    assert "could not be written" in refused.errors[0]["message"]
    assert refused.errors[0]["attempt"] == 1


@pytest.mark.slow
def test_an_outcome_that_cannot_be_written_at_all_does_not_hold_up_the_worker(
    drain: Start, refuse: Callable[..., None]
) -> None:
    """At its end the job is left to rescue, everything else goes on."""
    jobs = make_jobs(20)
    refuse(of(jobs[7], "successful", "failed"))
    drain(concurrency=1)
    assert count_jobs(status="successful") == 19
    assert get_job(jobs[7]).status == "running"


@pytest.mark.slow
def test_an_outcome_that_could_not_be_written_at_all_is_written_when_the_server_lets_it(
    start_thread: Start, refuse: Callable[..., None]
) -> None:
    """A trigger that was wrong for a minute leaves no job running, and fails none."""
    job_id = int(tasks.add.enqueue(1, 2).id)
    refuse(of(job_id, "successful", "failed"))
    worker = start_thread()
    wait_until(lambda: worker.runner.state.unwritable == {job_id})
    allow()
    wait_until_done(job_id)
    job = get_job(job_id)
    assert (job.status, job.result, job.attempts, job.errors) == ("successful", 3, 1, [])
    wait_until(lambda: not worker.runner.state.unwritable)


@pytest.mark.slow
def test_a_failing_claim_does_not_spoil_the_outcomes_that_travel_with_it(
    start_thread: Start, refuse: Callable[..., None], gate: Gate
) -> None:
    """The statement that failed was not theirs."""
    poison = make_job()
    refuse(of(poison, "running"))
    job = gate_tasks.wait_at_gate.using(priority=1).enqueue([1])
    start_thread(concurrency=1)
    gate.wait_entered()
    gate.open()
    wait_until(lambda: get_job(job.id).status != "running")
    assert (get_job(job.id).status, get_job(job.id).result) == ("successful", [1])
    assert get_job(poison).status == "ready"
