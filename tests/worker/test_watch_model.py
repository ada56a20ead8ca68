"""The watch for new jobs: what a worker does next, and that together they leave no job lying."""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import pytest

from django_pgjobs.queries.notifications import EVERYTHING, ORDERS
from django_pgjobs.worker.state import WorkerState
from django_pgjobs.worker.turns.turn import Turn
from django_pgjobs.worker.upkeep import watch
from django_pgjobs.worker.upkeep.watch import (
    CHANNELS,
    NOTHING,
    Watch,
    WatchFacts,
    WatchStep,
    next_step,
)
from tests.worker.support import NEVER, make_options


def known(**changes: Any) -> WatchFacts:
    given: dict[str, Any] = {
        "is_on_watch": False,
        "hears": ORDERS,
        "waits": True,
        "is_busy": False,
        "is_partial": False,
        "may_take": False,
        "may_park": False,
    }
    return WatchFacts(**(given | changes))


@pytest.mark.parametrize(
    ("facts", "step"),
    [
        ({"may_take": True}, WatchStep.TAKE),
        ({"may_park": True}, WatchStep.HEAR_NOTHING),
        ({"may_park": True, "hears": NOTHING}, WatchStep.PARK),
        ({"hears": NOTHING}, WatchStep.HEAR_ORDERS),
        ({}, None),
        ({"waits": False, "may_take": True}, None),
        ({"waits": False, "hears": NOTHING}, WatchStep.HEAR_ORDERS),
        ({"is_on_watch": True}, WatchStep.HEAR_EVERYTHING),
        ({"is_on_watch": True, "hears": EVERYTHING}, None),
        ({"is_on_watch": True, "hears": EVERYTHING, "is_busy": True}, WatchStep.LEAVE),
        ({"is_on_watch": True, "hears": EVERYTHING, "is_partial": True}, WatchStep.LEAVE),
        ({"is_partial": True, "may_take": True}, WatchStep.HEAR_EVERYTHING),
        ({"is_partial": True, "hears": EVERYTHING}, None),
        ({"is_partial": True, "hears": EVERYTHING, "waits": False}, None),
    ],
)
def test_the_next_step_follows_from_what_is_known(facts: dict[str, Any], step: WatchStep) -> None:
    assert next_step(known(**facts)) is step


# The duty


@dataclass
class WatchOfIdleWorker:
    """The duty of a worker that waits for news; what the server answers is given."""

    outlook: Any = field(
        default_factory=lambda: mock.Mock(
            waits_for_news=True, has_room=True, has_full_queue=False, waited_at=0.0
        )
    )

    def __post_init__(self) -> None:
        self.state = WorkerState(make_options(poll_interval=NEVER), "test:1")
        own = mock.Mock(listens=True, schema="public")
        self.look = mock.Mock(due_at=lambda now: math.inf)
        self.heard = 0
        self.duty = Watch(
            self.state,
            self.outlook,
            own,
            self.look,
            others=[self.look],
            on_orders=lambda: None,
            on_hearing=self._note_hearing,
        )

    def _note_hearing(self) -> None:
        self.heard += 1

    def act(self, *rows: tuple[bool, bool]) -> int:
        """Do what is due; return how many statements that were."""
        turn = Turn(1)
        self.duty.plan(turn)
        turn.receive([list(rows)] * len(turn.sends))
        return len(turn.sends)

    def hold(self, seconds: float) -> None:
        """Hold a job for so long already."""
        attempt: Any = mock.Mock(claimed_at=time.monotonic() - seconds)
        self.state.held[1] = attempt
        self.duty.observe(time.monotonic())

    def seconds_to_next(self) -> float:
        now = time.monotonic()
        return self.duty.due_at(now) - now


def test_a_worker_with_jobs_asks_for_the_watch_soon_after_it_was_left() -> None:
    watch_of = WatchOfIdleWorker()
    watch_of.hold(1.0)
    watch_of.act((False, False))
    assert watch_of.seconds_to_next() > watch.AGAIN_SECONDS / 2
    watch_of.duty.note_left()
    assert watch_of.seconds_to_next() <= watch.YIELD_SECONDS


def test_a_worker_with_a_long_job_leaves_the_watch_once() -> None:
    """Idle processes come first; but if there are none it goes on watching."""
    watch_of = WatchOfIdleWorker()
    watch_of.act((True, False))
    watch_of.act()
    assert watch_of.duty.hears_of_jobs
    watch_of.hold(watch.LONG_SECONDS)
    assert watch_of.seconds_to_next() <= 0
    watch_of.act()
    assert not watch_of.duty.hears_of_jobs
    assert 0 < watch_of.seconds_to_next() <= watch.YIELD_SECONDS
    watch_of.duty.begin_anew()
    watch_of.act((True, False))
    watch_of.act()
    assert watch_of.duty.hears_of_jobs
    assert watch_of.seconds_to_next() == math.inf


def test_a_worker_that_was_deaf_asks_what_it_has_missed() -> None:
    """Its pump may have claimed meanwhile, and somebody cancelled that job."""
    watch_of = WatchOfIdleWorker()
    watch_of.act((False, False))
    watch_of.act()
    assert watch_of.heard == 0
    watch_of.hold(0.0)
    watch_of.act()
    assert watch_of.heard == 1


def test_a_worker_that_takes_all_there_is_stays_on_watch() -> None:
    """However often it is told of jobs."""
    watch_of = WatchOfIdleWorker()
    watch_of.act((True, False))
    watch_of.act()
    watch_of.outlook.waits_for_news = False
    watch_of.outlook.claimed, watch_of.outlook.claimed_until_dry = 5, 5
    watch_of.outlook.waited_at = time.monotonic() - watch.STUCK_SECONDS / 2
    assert watch_of.seconds_to_next() > 0
    watch_of.outlook.claimed, watch_of.outlook.waited_at = 6, time.monotonic()
    assert watch_of.seconds_to_next() > 0
    watch_of.outlook.waited_at = 0.0
    assert watch_of.seconds_to_next() <= 0


def test_a_worker_with_room_of_one_kind_only_leaves_the_watch() -> None:
    """Another one may have room of the other kind, too."""
    watch_of = WatchOfIdleWorker()
    watch_of.act((True, False))
    watch_of.act()
    watch_of.outlook.waited_at = time.monotonic()
    watch_of.outlook.waits_for_news = watch_of.outlook.has_room = False
    assert 0 < watch_of.seconds_to_next() < 2 * watch.FULL_SECONDS
    watch_of.outlook.waited_at -= watch.FULL_SECONDS
    watch_of.act()
    assert not watch_of.duty.hears_of_jobs
    assert watch_of.seconds_to_next() == math.inf, "nor does it ask for it"


# A model of all of them


@dataclass(eq=False)
class ModelWorker:
    room: int
    held: int = 0
    is_on_watch: bool = False
    began_with_jobs: bool = False
    hears: frozenset[str] = ORDERS
    may_take: bool = True
    is_parked: bool = False
    is_frozen: bool = False
    # The pump knows of jobs; it has claimed some since it waited last; a look is due; the row says
    # that enqueues are to notify.
    knows: bool = False
    has_claimed: bool = False
    looks: bool = True
    has_said: bool = False
    # Its jobs run for long.
    is_slow: bool = False
    heard: set[str] = field(default_factory=set)

    @property
    def waits(self) -> bool:
        return self.held < self.room and not self.knows

    @property
    def known(self) -> WatchFacts:
        return WatchFacts(
            is_on_watch=self.is_on_watch,
            hears=self.hears,
            waits=self.waits,
            is_busy=(not self.waits and (self.has_claimed or self.held == self.room))
            or (self.is_slow and self.held > 0 and not self.began_with_jobs),
            is_partial=False,
            may_take=self.may_take,
            may_park=not self.held,
        )


class Model:
    """Workers, the server's locks, and jobs that never end by themselves."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.ready = 0
        self.workers = [self.new_worker() for _ in range(chance.randint(1, 6))]

    def new_worker(self) -> ModelWorker:
        return ModelWorker(self.chance.randint(1, 3), is_slow=self.chance.random() < 0.5)

    # What happens to them

    def enqueue(self) -> None:
        self.ready += self.chance.choice((1, 1, 1, 2, 5))
        if any(worker.has_said for worker in self.workers):
            self.tell("jobs", EVERYTHING)

    def finish(self) -> None:
        for worker in self.workers:
            if worker.held and not worker.is_frozen:
                worker.held -= 1
                worker.began_with_jobs = worker.began_with_jobs and worker.held > 0
                return

    def kill(self) -> None:
        gone = self.workers.pop(self.chance.randrange(len(self.workers)))
        self.workers.append(self.new_worker())
        self.free(gone)

    def freeze(self) -> None:
        """One at most, and not the one on watch: jobs are left to the poll then."""
        for worker in self.workers:
            worker.is_frozen = False
        frozen = self.chance.choice(self.workers)
        frozen.is_frozen = not frozen.is_on_watch

    # What they do

    def act(self, worker: ModelWorker) -> bool:
        """Let a worker do one thing; return whether there was something to do."""
        if worker.is_frozen:
            return False
        for action in (self.end_park, self.hear, self.claim, self.say, self.step, self.look):
            if action(worker):
                return True
        return False

    def hear(self, worker: ModelWorker) -> bool:
        heard, worker.heard = worker.heard, set()
        if "left" in heard and worker.held:
            worker.may_take = True
        if "jobs" in heard:
            worker.knows = worker.looks = True
        return bool(heard)

    def claim(self, worker: ModelWorker) -> bool:
        room = worker.room - worker.held
        if worker.waits:
            worker.has_claimed = False
        if not (worker.knows and room):
            return False
        taken = min(room, self.ready)
        self.ready -= taken
        worker.held += taken
        worker.knows = taken == room
        worker.has_claimed = worker.has_claimed or bool(taken)
        return True

    def say(self, worker: ModelWorker) -> bool:
        """A worker that hears says so, and looks after it; one that does not takes it back."""
        says = worker.waits and worker.hears == EVERYTHING
        if worker.has_said == says:
            return False
        worker.has_said, worker.looks = says, worker.looks or says
        return True

    def step(self, worker: ModelWorker) -> bool:
        step = next_step(worker.known)
        if step in CHANNELS:
            worker.may_take = worker.may_take or worker.hears == NOTHING
            worker.hears = CHANNELS[step]
            worker.looks = worker.looks or worker.hears == EVERYTHING
        elif step is WatchStep.LEAVE:
            self.free(worker)
            worker.hears, worker.may_take = ORDERS, True
            self.tell("left", ORDERS)
        elif step is not None:
            worker.is_on_watch = not any(other.is_on_watch for other in self.workers)
            worker.began_with_jobs = worker.held > 0
            worker.may_take = False
            worker.is_parked = step is WatchStep.PARK and not worker.is_on_watch
        return step is not None and not worker.is_parked

    def look(self, worker: ModelWorker) -> bool:
        if not (worker.looks and worker.waits):
            return False
        worker.looks, worker.knows = False, self.ready > 0
        return True

    def end_park(self, worker: ModelWorker) -> bool:
        """Its time is up."""
        is_parked, worker.is_parked = worker.is_parked, False
        return is_parked and worker.is_on_watch

    # The server

    def tell(self, word: str, channels: frozenset[str]) -> None:
        for worker in self.workers:
            if worker.hears >= channels:
                worker.heard.add(word)

    def free(self, worker: ModelWorker) -> None:
        if not worker.is_on_watch:
            return
        worker.is_on_watch = False
        # The wait of a frozen one has ended soon after.
        parked = [other for other in self.workers if other.is_parked and not other.is_frozen]
        if parked:
            other = self.chance.choice(parked)
            other.is_on_watch, other.is_parked, other.began_with_jobs = True, False, False

    def settle(self) -> None:
        """Let all act until nothing is left to do."""
        for _ in range(1_000):
            if not sum(self.act(worker) for worker in self.workers):
                return
        raise AssertionError("they never come to rest")


@pytest.mark.parametrize("seed", range(40))
def test_no_job_lies_while_a_worker_has_nothing_to_do(seed: int) -> None:
    """Whatever happens in whatever order, and with one of them frozen that is not on watch."""
    chance = random.Random(seed)
    for _ in range(20):
        model = Model(chance)
        events = [model.enqueue, model.enqueue, model.finish, model.finish, model.kill]
        for _ in range(60):
            if chance.random() < 0.3:
                chance.choice([*events, model.freeze])()
            else:
                model.act(chance.choice(model.workers))
        model.settle()
        idle = [w for w in model.workers if not (w.held or w.is_frozen)]
        assert not (model.ready and idle)
        # A second later those that have something to do have asked again.
        for worker in model.workers:
            worker.may_take = True
        model.settle()
        with_room = [w for w in model.workers if w.held < w.room and not w.is_frozen]
        assert not (model.ready and with_room)
        assert len([w for w in model.workers if w.hears == EVERYTHING]) <= 1
