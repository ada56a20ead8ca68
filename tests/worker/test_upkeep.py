"""The upkeep beside the pump: what one of them has under way while the other acts."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any
from unittest import mock

import pytest
from django.db import connections

import django_pgjobs.worker
from django_pgjobs import cancel
from django_pgjobs.queries import claims, jobs
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.claiming import pace
from django_pgjobs.worker.claiming.errands import Errands
from django_pgjobs.worker.claiming.pump import Pump
from django_pgjobs.worker.process.leases import LeaseKeeper
from django_pgjobs.worker.process.pruner import Pruner
from django_pgjobs.worker.running.announcer import Announcer
from django_pgjobs.worker.running.watchdog import Watchdog
from django_pgjobs.worker.turns import sending
from django_pgjobs.worker.upkeep import cancels, look
from django_pgjobs.worker.upkeep.upkeep import Upkeep
from tests import tasks
from tests.factories import get_job, get_worker, make_jobs
from tests.helpers import ROOT, WAIT_SECONDS, wait_until
from tests.proxy import TcpProxy
from tests.worker import tasks as gate_tasks
from tests.worker.support import NEVER, Gate, ThreadedWorker, counted_round_trips
from tests.worker.test_pump import CLAIM
from tests.worker.test_reconnects import end_session_of

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., ThreadedWorker]
During = Callable[[Callable[[], None]], None]


@pytest.fixture
def during_next_claim(monkeypatch: pytest.MonkeyPatch) -> During:
    """Act between the server's answer to the pump's next turn and what the pump does with it."""
    round_trip = OwnConnection.round_trip

    def arrange(act: Callable[[], None]) -> None:
        waiting = [act]

        def round_trip_and_act(self: OwnConnection, sends: Any) -> Any:
            answers = round_trip(self, sends)
            if self.role == "pump" and waiting:
                waiting.pop()()
                connections.close_all()  # those of the pump's thread
            return answers

        monkeypatch.setattr(OwnConnection, "round_trip", round_trip_and_act)

    return arrange


class WatchedLock:
    """A lock that tells when somebody has to wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.is_waited_for = threading.Event()

    def acquire(self, timeout: float = -1) -> bool:
        if self._lock.acquire(blocking=False):
            return True
        self.is_waited_for.set()
        return self._lock.acquire(timeout=timeout)

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def test_a_claim_whose_answer_is_on_its_way_is_not_taken_for_lost(
    start_thread: Start, during_next_claim: During, caplog: pytest.LogCaptureFixture
) -> None:
    worker = start_thread(poll_interval=NEVER)
    wait_until(lambda: get_worker(worker.id).listening)
    lock: Any = WatchedLock()
    worker.runner.state.claiming = lock

    def lose_an_earlier_one() -> None:
        worker.runner.pump.outlook.note_lost()
        worker.runner.upkeep.wake()
        assert lock.is_waited_for.wait(15)

    during_next_claim(lose_an_earlier_one)
    job = tasks.add.enqueue(1, 2)
    wait_until(lambda: get_job(job.id).status == "successful")
    assert "gave back" not in caplog.text


def test_the_upkeep_hears_while_the_return_of_a_lost_claim_waits_for_the_next_one(
    start_thread: Start, gate: Gate, during_next_claim: During, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim may be under way for long: in a wait for its turn, on a dead connection."""
    monkeypatch.setattr(cancels, "CANCEL_SECONDS", NEVER)
    worker = start_thread(poll_interval=NEVER, concurrency=2)
    running = gate_tasks.wait_at_gate.enqueue()
    gate.wait_entered()
    wait_until(lambda: get_worker(worker.id).listening)
    lock: Any = WatchedLock()
    worker.runner.state.claiming = lock
    listed = threading.Event()
    heard: list[bool] = []
    send = jobs.send_cancel_listing

    def list_cancelled(cursor: Any, **params: Any) -> None:
        listed.set()
        send(cursor, **params)

    def cancel_meanwhile() -> None:
        worker.runner.pump.outlook.note_lost()
        worker.runner.upkeep.wake()
        assert lock.is_waited_for.wait(15)
        listed.clear()
        assert cancel(running.id)
        heard.append(listed.wait(5))

    monkeypatch.setattr(jobs, "send_cancel_listing", list_cancelled)
    during_next_claim(cancel_meanwhile)
    tasks.add.enqueue(1, 2)
    wait_until(lambda: heard)
    assert heard == [True]
    wait_until(lambda: get_job(running.id).status == "cancelled")


def test_a_cancel_of_a_job_whose_claim_is_under_way_arrives(
    start_thread: Start, gate: Gate, during_next_claim: During, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker does not hold the job yet when it is told of it."""
    monkeypatch.setattr(cancels, "CANCEL_SECONDS", NEVER)
    worker = start_thread(poll_interval=NEVER)
    wait_until(lambda: get_worker(worker.id).listening)
    gate_tasks.wait_at_gate.enqueue()
    gate.wait_entered()
    wait_until(lambda: get_worker(worker.id).listening)
    job_ids: list[str] = []
    # A look for another reason may come before the request, and says nothing of it.
    asked, listed, learnt = threading.Event(), threading.Event(), threading.Event()
    send, wait = jobs.send_cancel_listing, Upkeep.wait

    def cancel_it() -> None:
        wait_until(lambda: job_ids)
        assert cancel(job_ids[0])
        asked.set()
        assert learnt.wait(15)

    def wait_with_answer(self: Upkeep, timeout: float | None) -> None:
        if listed.is_set():
            learnt.set()
        wait(self, timeout)

    def list_cancelled(cursor: Any, **params: Any) -> None:
        if asked.is_set():
            listed.set()
        send(cursor, **params)

    during_next_claim(cancel_it)
    monkeypatch.setattr(jobs, "send_cancel_listing", list_cancelled)
    monkeypatch.setattr(Upkeep, "wait", wait_with_answer)
    job_ids.append(gate_tasks.wait_at_gate.enqueue().id)
    wait_until(lambda: get_job(job_ids[0]).status == "cancelled")


def test_a_drain_does_not_end_before_a_lost_claim_has_been_given_back(
    start_proxied: Start, proxy: TcpProxy
) -> None:
    lost = proxy.cut_on(CLAIM, when="after")
    job_ids = make_jobs(3)
    worker = start_proxied(drain=True)
    lost.wait()
    assert worker.join() == 0
    assert {get_job(job_id).status for job_id in job_ids} == {"successful"}


def test_a_connection_that_died_while_the_pump_rested_is_replaced_without_a_failure(
    start_thread: Start, caplog: pytest.LogCaptureFixture
) -> None:
    worker = start_thread(poll_interval=NEVER)
    wait_until(lambda: get_worker(worker.id).listening)
    end_session_of("pump")
    job = tasks.add.enqueue(1, 2)
    wait_until(lambda: get_job(job.id).status == "successful")
    assert "statement failed" not in caplog.text


def test_a_drain_ends_when_the_last_job_does_and_not_at_the_next_poll(
    start_thread: Start, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    send = claims.send_lane_listing

    def count_and_send(cursor: Any, **params: Any) -> None:
        looks.append(1)
        send(cursor, **params)

    monkeypatch.setattr(claims, "send_lane_listing", count_and_send)
    monkeypatch.setattr(look, "FIRST_GAP_SECONDS", NEVER)
    gate_tasks.wait_at_gate.enqueue()
    worker = start_thread(drain=True, poll_interval=NEVER)
    gate.wait_entered()
    wait_until(lambda: len(looks) == 2)  # one that found the job, one after its claim
    gate.open()
    assert worker.join() == 0


def test_a_look_that_a_busy_pump_asks_for_wakes_nobody() -> None:
    """The pump wakes the upkeep when it waits for news."""
    errands = Errands()
    with mock.patch.object(errands, "wake") as wake:
        errands.look_by(1.0)
    assert errands.take_look_time() == 1.0
    assert not wake.called


def test_the_docs_name_the_roles_and_the_calls_between_them() -> None:
    """As docs/design.md and the docstring of the package have them."""
    page = (ROOT / "docs/design.md").read_text()
    picture = page.partition("## Threads\n")[2].partition("\n## ")[0]
    roles = (Pump, Upkeep, LeaseKeeper, Pruner, Announcer, Watchdog)
    listed = django_pgjobs.worker.__doc__ or ""
    assert [role.name for role in roles if f"\n    {role.name} " not in listed] == []
    calls = re.findall(r"`(pump|errands)\.(\w+)\(", picture)
    assert len(calls) >= 7
    owners = {"pump": Pump, "errands": Errands}
    assert [call for call in calls if not hasattr(owners[call[0]], call[1])] == []
    files = re.findall(r"`worker/(\w+\.py)`", picture)
    folder = ROOT / "django_pgjobs/worker"
    assert [name for name in files if not (folder / name).exists()] == []


def test_looks_that_stops_of_their_process_made_long_hold_up_the_next_one_briefly(
    start_thread: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "MOST_SECONDS", 0.1)
    monkeypatch.setattr(sending, "time", clock := mock.Mock(monotonic=mock.Mock(return_value=0.0)))
    clock.monotonic.side_effect = itertools.count(step=3_600.0)
    with counted_round_trips() as counts:
        start_thread(poll_interval=0.05, listen=False)
        wait_until(lambda: len(counts.get("upkeep", ())) > 1)
    job = tasks.add.enqueue(1, 2)
    wait_until(lambda: get_job(job.id).status == "successful", timeout=WAIT_SECONDS / 3)
