"""Who looks after schedules, and how often: fifty schedulers in simulated time."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from django_pgjobs.schedules.checking import Checked
from django_pgjobs.schedules.firing import ScheduleTurn
from django_pgjobs.schedules.jobs import Blocked
from django_pgjobs.schedules.syncing import Synced
from django_pgjobs.worker.process import scheduler as scheduler_module
from django_pgjobs.worker.process.put_off import FIRST_BLOCKED
from django_pgjobs.worker.process.scheduler import (
    FOLLOW_SECONDS,
    LATE_SECONDS,
    LONGEST_PAUSE,
    SYNC_SECONDS,
    Scheduler,
)
from django_pgjobs.worker.state import WorkerState
from tests.worker.support import make_options

COUNT = 50
BEGIN = datetime(2026, 5, 1, tzinfo=UTC)


class World:
    """A schedule that is due every second, and schedulers that sleep as long as they say."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, count: int = COUNT) -> None:
        self.now, self.next_at, self.every = 0.0, 1.0, 1.0
        self.turns: Counter[int] = Counter()
        # How late each occurrence was, and who had it.
        self.lateness: list[float] = []
        self.owners: list[int] = []
        self.taking = 0
        # Does each turn take as many as it may?
        self.has_many = False
        # How long a question is under way to the server, and its answer back.
        self.asking, self.answering = 0.0, 0.0
        clock = SimpleNamespace(monotonic=lambda: self.now)
        monkeypatch.setattr(scheduler_module, "time", clock)
        monkeypatch.setattr(scheduler_module, "fire_due", self.fire)
        monkeypatch.setattr(scheduler_module, "sync_schedules", lambda: Synced([], [], [], [], []))
        monkeypatch.setattr(Scheduler, "_retire", lambda scheduler: None)
        monkeypatch.setattr(scheduler_module, "check_planned", lambda *given: Checked([], None))
        monkeypatch.setattr(Scheduler, "_retry_broken", lambda scheduler: None)
        self.schedulers = {
            number: Scheduler(WorkerState(make_options(), f"test:{number}"), on_crash=print)
            for number in range(count)
        }
        self.alarms = [(number / count, number) for number in self.schedulers]
        heapq.heapify(self.alarms)

    def fire(self, *, late: float, excluded: Collection[str], **options: Any) -> ScheduleTurn:
        """Be the table: one schedule."""
        turn = ScheduleTurn(asked_at=self.now)
        self.now += self.asking
        turn.read_at = BEGIN + timedelta(seconds=self.now)
        while self.next_at <= self.now - late:
            turn.taken = 1
            turn.is_full = self.has_many
            self.lateness.append(self.now - self.next_at)
            self.owners.append(self.taking)
            self.next_at += self.every
        turn.wait = self.next_at - self.now
        self.now += self.answering
        return turn

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while self.alarms[0][0] <= end:
            self.now, number = heapq.heappop(self.alarms)
            if number not in self.schedulers:
                continue
            self.taking = number
            self.turns[number] += 1
            pause = self.schedulers[number]._take_turn()
            heapq.heappush(self.alarms, (self.now + pause, number))
        self.now = end


@pytest.mark.slow
def test_one_of_fifty_does_the_work_and_is_on_time(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.run(10)
    settled = len(world.lateness)
    world.turns.clear()
    world.run(300)
    assert len(set(world.owners[settled:])) == 1
    assert max(world.lateness[settled:]) < 0.1
    active = world.owners[-1]
    assert world.turns[active] <= 2 * 300 + 10
    # The others look now and then, and not at every occurrence.
    others = [world.turns[number] for number in world.schedulers if number != active]
    assert max(others) <= 300 / FOLLOW_SECONDS[0] + 10


@pytest.mark.slow
def test_full_turns_are_on_time(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.has_many = True
    world.run(60)
    assert max(world.lateness[10:]) < 0.1
    assert len(set(world.owners[10:])) == 1


@pytest.mark.slow
def test_after_its_death_another_one_takes_over(monkeypatch: pytest.MonkeyPatch) -> None:
    for count in (2, COUNT):
        world = World(monkeypatch, count=count)
        world.run(30)
        del world.schedulers[world.owners[-1]]
        before = len(world.lateness)
        world.run(30)
        assert max(world.lateness[before:]) < LATE_SECONDS + FOLLOW_SECONDS[1] + 1.1
        assert max(world.lateness[-10:]) < 0.1
        assert len(set(world.owners[-10:])) == 1


def test_one_that_starts_alone_is_on_time_from_the_beginning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, count=1)
    world.next_at = -0.3
    world.run(5)
    assert world.lateness[0] == 0.3
    assert max(world.lateness[1:]) < 0.1
    later = World(monkeypatch, count=1)
    later.run(5)
    assert max(later.lateness) < 0.1


@pytest.mark.parametrize(("asking", "answering"), [(4.0, 0.0), (0.0, 4.0)])
def test_an_occurrence_is_on_time_after_a_turn_in_which_the_server_stood_still(
    monkeypatch: pytest.MonkeyPatch, asking: float, answering: float
) -> None:
    world = World(monkeypatch, count=1)
    world.next_at = world.every = 10.0
    world.asking, world.answering = asking, answering
    world.run(1)
    world.asking = world.answering = 0.0
    world.run(30)
    assert max(world.lateness) < 0.1


def test_without_anything_due_soon_each_looks_twice_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, count=3)
    world.every = 3600.0
    world.run(10)
    assert sum(scheduler._is_active for scheduler in world.schedulers.values()) == 1
    world.turns.clear()
    world.run(3600)
    assert max(world.turns.values()) <= 122 + 2
    # And the one that is active is on time all the same.
    assert len(world.lateness) == 2
    assert max(world.lateness) < 0.1


@pytest.mark.parametrize(("wait", "is_closed"), [(5.0, False), (60.0, True), (None, True)])
def test_it_has_no_connection_while_nothing_is_due_soon(
    monkeypatch: pytest.MonkeyPatch, wait: float | None, is_closed: bool
) -> None:
    scheduler = Scheduler(WorkerState(make_options(), "test:1"), on_crash=print)
    closed = []
    monkeypatch.setattr(scheduler, "_close", lambda: closed.append(True))
    monkeypatch.setattr(
        scheduler_module, "fire_due", lambda **options: ScheduleTurn(taken=1, wait=wait)
    )
    monkeypatch.setattr(scheduler_module, "sync_schedules", lambda: Synced([], [], [], [], []))
    for name in ("_retry_broken", "_retire"):
        monkeypatch.setattr(scheduler, name, lambda: None)
    monkeypatch.setattr(scheduler_module, "check_planned", lambda *given: Checked([], None))

    def end(pause: float) -> None:
        assert bool(closed) is is_closed
        assert pause <= LONGEST_PAUSE
        scheduler.stop()

    monkeypatch.setattr(scheduler, "wait", end)
    scheduler.run()
    assert closed


def test_what_was_put_off_is_tried_again_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, count=1)
    [scheduler] = world.schedulers.values()
    tries = iter([Blocked("x", "somebody has locked it")])

    def fire(**options: Any) -> ScheduleTurn:
        for error in tries:
            raise error
        return ScheduleTurn()

    monkeypatch.setattr(scheduler_module, "fire_due", fire)
    scheduler._take_turn()
    assert scheduler._take_turn() <= FIRST_BLOCKED
    assert scheduler._expects_at is None
    locked = Synced([], [], [], [], ["y"])
    monkeypatch.setattr(scheduler_module, "sync_schedules", lambda: locked)
    other = Scheduler(WorkerState(make_options(), "test:1"), on_crash=print)
    assert other._take_turn() <= SYNC_SECONDS


@pytest.mark.slow
@pytest.mark.parametrize("way", [0.0, 0.02])
def test_two_that_are_active_become_one(monkeypatch: pytest.MonkeyPatch, way: float) -> None:
    """Wherever the server is."""
    world = World(monkeypatch)
    world.asking = world.answering = way
    for scheduler in world.schedulers.values():
        scheduler._is_active = True
    world.run(60)
    active = [each for each in world.schedulers.values() if each._is_active]
    assert len(active) == 1
    assert max(world.lateness) < 4


def test_full_turns_say_since_when_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = Scheduler(WorkerState(make_options(), "test:1"), on_crash=print)
    told = []

    def fire(*, since: datetime | None, **options: Any) -> ScheduleTurn:
        told.append(since)
        minutes = timedelta(minutes=len(told))
        return ScheduleTurn(is_full=len(told) in (1, 2, 4), read_at=BEGIN + minutes)

    monkeypatch.setattr(scheduler_module, "fire_due", fire)
    for _ in range(5):
        scheduler._fire()
    first, fourth = BEGIN + timedelta(minutes=1), BEGIN + timedelta(minutes=4)
    assert told == [None, first, first, None, fourth]
