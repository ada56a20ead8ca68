"""The recorder: writes what its process has run; in the leader what waits and came in, too."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import psycopg
import pytest
from django.db import connection

from django_pgjobs.models import QueueSample, Statistic
from django_pgjobs.queries import statistics
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.process import recorder as module
from django_pgjobs.worker.process.recorder import Recorder
from django_pgjobs.worker.running import tally as tally_module
from django_pgjobs.worker.running.outcome import Kind, Outcome
from django_pgjobs.worker.running.tally import Tally
from tests import tasks
from tests.factories import make_jobs
from tests.helpers import wait_until
from tests.worker.support import ThreadedWorker
from tests.worker.test_tally import attempt

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., ThreadedWorker]


@pytest.fixture
def tally() -> Tally:
    made = Tally()
    made.note([(attempt("mail"), Outcome(Kind.DONE, ended_at=time.monotonic() - 120))])
    return made


@pytest.fixture
def start(own: OwnConnection, tally: Tally) -> Iterator[Callable[..., Recorder]]:
    """Start a recorder: `start(is_leader=True)`."""
    started: list[Recorder] = []
    crashes: list[str] = []

    def start_one(*, is_leader: bool = False, retention: float | None = 86400.0) -> Recorder:
        made = Recorder(
            tally,
            own,
            retention=retention,
            is_leader=lambda: is_leader,
            on_crash=crashes.append,
        )
        started.append(made)
        made.start()
        return made

    yield start_one
    for made in started:
        made.stop()
        assert made.join(15)
    assert not crashes


def counted(**conditions: Any) -> int:
    rows = Statistic.objects.filter(**conditions).values_list("successful", flat=True)
    return sum(rows)


def test_what_is_over_is_written(start: Callable[..., Recorder]) -> None:
    """S1.15."""
    start()
    wait_until(lambda: counted(queue_name="mail") == 1)
    assert not QueueSample.objects.exists()


def test_the_leader_measures_and_adds_up(start: Callable[..., Recorder], tally: Tally) -> None:
    make_jobs(3, queue_name="fax")
    with connection.cursor() as cursor:
        statistics.write_statistics(cursor, [statistics.Minute(28_000_000, {("old", "a"): cell()})])
    start(is_leader=True, retention=None)
    wait_until(lambda: QueueSample.objects.filter(queue_name="fax", ready=3).exists())
    wait_until(lambda: Statistic.objects.filter(queue_name="old", period="day").exists())


def cell() -> statistics.Cell:
    return statistics.Cell([1, 0, 0, 0])


def test_what_is_too_old_goes(start: Callable[..., Recorder]) -> None:
    with connection.cursor() as cursor:
        statistics.write_statistics(cursor, [statistics.Minute(28_000_000, {("old", "a"): cell()})])
    start(is_leader=True)
    wait_until(lambda: not Statistic.objects.filter(queue_name="old").exists())


def test_what_is_counted_is_written_at_the_end(
    start: Callable[..., Recorder], tally: Tally
) -> None:
    recorder = start()
    wait_until(lambda: counted() == 1)
    tally.note([(attempt("mail"), Outcome(Kind.DONE))])
    recorder.stop()
    assert recorder.join(15)
    assert counted(queue_name="mail") == 2


def test_what_cannot_be_written_is_written_later(
    start: Callable[..., Recorder], own: OwnConnection
) -> None:
    refused = mock.Mock(side_effect=psycopg.errors.LockNotAvailable("no"))
    with mock.patch.object(statistics, "write_statistics", refused):
        recorder = start()
        wait_until(lambda: refused.called)
    recorder.wake()
    wait_until(lambda: counted(queue_name="mail") == 1)


def test_what_may_be_written_is_not_written_again(tally: Tally, own: OwnConnection) -> None:
    """The connection broke before the answer: rather too few are counted than too many."""
    recorder = Recorder(tally, own, retention=None, is_leader=lambda: False, on_crash=print)
    broken = mock.Mock(side_effect=psycopg.OperationalError("gone"))
    with mock.patch.object(statistics, "write_statistics", broken):
        recorder._take_turn()
    assert (broken.call_count, tally.is_empty) == (1, True)


def test_a_server_that_takes_no_writes_any_more_has_not_written(
    tally: Tally, own: OwnConnection
) -> None:
    """A primary that became a standby: the minute is for the next one."""
    recorder = Recorder(tally, own, retention=None, is_leader=lambda: False, on_crash=print)
    own.open().execute("SET default_transaction_read_only = on")
    assert not recorder._attempt(recorder._write)
    assert not tally.is_empty
    assert recorder._attempt(recorder._write)
    assert counted(queue_name="mail") == 1


def test_a_session_that_was_ended_may_have_written(tally: Tally, own: OwnConnection) -> None:
    recorder = Recorder(tally, own, retention=None, is_leader=lambda: False, on_crash=print)
    ended = mock.Mock(side_effect=psycopg.errors.AdminShutdown("ended"))
    with mock.patch.object(statistics, "write_statistics", ended):
        assert not recorder._attempt(recorder._write)
    assert tally.is_empty


def test_a_long_outage_is_written_in_pages(own: OwnConnection) -> None:
    tally = Tally()
    for minutes in (3, 4, 5):
        ended_at = time.monotonic() - 60 * minutes
        tally.note([(attempt("mail"), Outcome(Kind.DONE, ended_at=ended_at))])
    recorder = Recorder(tally, own, retention=None, is_leader=lambda: False, on_crash=print)
    write = mock.Mock(wraps=statistics.write_statistics)
    with (
        mock.patch.object(statistics, "write_statistics", write),
        mock.patch.object(tally_module, "MAX_WRITTEN", 2),
    ):
        recorder._write()
    assert (write.call_count, counted(queue_name="mail")) == (2, 3)


def test_without_a_server_nothing_is_lost(tally: Tally, own: OwnConnection) -> None:
    recorder = Recorder(tally, own, retention=None, is_leader=lambda: False, on_crash=print)
    with mock.patch.object(own, "open", side_effect=psycopg.OperationalError("no server")):
        recorder._take_turn()
    assert not tally.is_empty


def test_an_idle_process_asks_nothing(own: OwnConnection) -> None:
    idle = Recorder(Tally(), own, retention=None, is_leader=lambda: False, on_crash=print)
    with mock.patch.object(own, "cursor") as cursor:
        idle._take_turn()
    assert not cursor.called


@pytest.mark.slow
def test_a_worker_counts_all_that_it_runs(drain: Start) -> None:
    """Atomic jobs too, and attempts that are repeated."""
    tasks.add.enqueue_many([(1, 2)] * 5)
    tasks.record_atomic.enqueue("x")
    tasks.fail.enqueue()
    drain()
    rows = {
        row.task_path.rpartition(".")[2]: (row.successful, row.failed, row.retried, sum(row.runs))
        for row in Statistic.objects.filter(enqueued=0)
    }
    assert rows == {"add": (5, 0, 0, 5), "record_atomic": (1, 0, 0, 1), "fail": (0, 1, 2, 3)}


class Steered:
    """A recorder in the leader whose steps are noted, by a clock of the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000.0
        self.took = 0.0
        self.steps: list[str] = []
        self.connection = mock.MagicMock()
        self.tally = mock.Mock(is_empty=True)
        self.recorder = Recorder(
            self.tally, self.connection, retention=None, is_leader=lambda: True, on_crash=print
        )
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)

    def note_steps(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Only note what a turn does; measuring takes its time."""
        for name in ("set_clock", "write", "measure", "roll_up", "prune"):
            monkeypatch.setattr(self.recorder, f"_{name}", lambda name=name: self.note(name))

    def note(self, name: str) -> None:
        self.steps.append(name)
        if name == "measure":
            self.now += self.took

    def turn(self, at: float) -> list[str]:
        """Take a turn so long after the beginning; return its steps but those of each."""
        self.now = 1_000.0 + at
        self.steps = []
        self.recorder._take_turn()
        return [step for step in self.steps if step in ("measure", "prune")]


@pytest.fixture
def steered(monkeypatch: pytest.MonkeyPatch) -> Steered:
    return Steered(monkeypatch)


def test_measuring_takes_a_hundredth_of_the_time(
    steered: Steered, monkeypatch: pytest.MonkeyPatch
) -> None:
    steered.note_steps(monkeypatch)
    steered.took = 3.0
    assert "measure" in steered.turn(0)
    assert "measure" not in steered.turn(60)
    assert "measure" not in steered.turn(299)
    assert "measure" in steered.turn(301)


def test_pruning_is_for_once_an_hour(steered: Steered, monkeypatch: pytest.MonkeyPatch) -> None:
    steered.note_steps(monkeypatch)
    found = [at for at in (0, 60, 3_540, 3_601, 3_660, 7_300) if "prune" in steered.turn(at)]
    assert found == [0, 3_601, 7_300]


@pytest.mark.parametrize(("seconds", "is_believed"), [(0.9, True), (1.1, False)])
def test_a_clock_that_answers_slowly_is_not_believed(
    steered: Steered, monkeypatch: pytest.MonkeyPatch, seconds: float, is_believed: bool
) -> None:
    def answer(cursor: Any) -> datetime:
        steered.now += seconds
        return datetime(2026, 5, 1, tzinfo=UTC)

    monkeypatch.setattr(tally_module, "get_now", answer)
    steered.recorder._set_clock()
    assert steered.tally.set_clock.called is is_believed


def test_what_is_more_than_a_page_is_done_in_pages(steered: Steered) -> None:
    page = statistics.PAGE
    take = mock.Mock(side_effect=[page, page, 3])
    steered.recorder._in_pages(take)
    assert take.call_count == 3
    stopped = mock.Mock(side_effect=lambda cursor: steered.recorder.stop() or page)
    steered.recorder._in_pages(stopped)
    assert stopped.call_count == 1


def test_a_broken_connection_is_closed(steered: Steered) -> None:
    step = mock.Mock(side_effect=psycopg.OperationalError("gone"))
    assert steered.recorder._attempt(step) is False
    assert steered.connection.close_if_broken.called


def test_between_turns_there_is_no_connection(tally: Tally) -> None:
    own = mock.MagicMock()
    recorder = Recorder(tally, own, retention=None, is_leader=lambda: False, on_crash=print)
    closed: list[bool] = []

    def wait(timeout: float | None) -> None:
        closed.append(own.close.called)
        recorder.stop_requested = True

    with mock.patch.object(recorder, "wait", wait), mock.patch.object(recorder, "_set_clock"):
        recorder.run()
    assert closed == [True]


def test_samples_are_pruned_where_statistics_stay(own: OwnConnection) -> None:
    QueueSample.objects.create(measured_at=datetime.now(UTC) - timedelta(days=40))
    recorder = Recorder(Tally(), own, retention=None, is_leader=lambda: True, on_crash=print)
    with mock.patch.object(recorder, "_measure"):
        recorder._take_turn()
    assert not QueueSample.objects.exists()
