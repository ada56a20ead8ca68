"""A model of workers that wait for news: their threads, the server's locks and notifications.

Each thread is a generator, at whose yields others act: after it has decided what to send, after the
server has executed that, and after it has read the answer. It yields False if it has nothing to do.
Times are chances until all are to settle; then what takes a fraction of a second comes to pass, but
for the wait of a worker that parks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from django_pgjobs.queries.notifications import EVERYTHING, JOBS_CHANNEL, ORDERS
from django_pgjobs.worker.upkeep.watch import CHANNELS, NOTHING, WatchFacts, WatchStep, next_step

Steps = Iterator[bool]


@dataclass(eq=False)
class ModelWorker:
    """A worker: what the server knows of it, and what its threads know."""

    room: int
    # Its jobs run for long. It may not take all that others may, or was refused the watch.
    is_slow: bool = False
    is_partial: bool = False
    is_frozen: bool = False
    threads: list[Steps] = field(default_factory=list)

    # The server: it has the lock, or waits for it; listens; its row says that enqueues are to
    # notify; and what it was notified of.
    has_lock: bool = False
    is_parked: bool = False
    listens: frozenset[str] = ORDERS
    has_said: bool = False
    heard: set[str] = field(default_factory=set)

    # The watch. It may ask for it, or soon; it has been without jobs for long enough to park.
    is_on_watch: bool = False
    is_denied: bool = False
    began_with_jobs: bool = False
    hears: frozenset[str] = ORDERS
    may_take: bool = True
    takes_soon: bool = False
    is_settled: bool = True

    # The flag; None: unknown, a connection broke. Its row was locked a moment ago.
    says: bool | None = False
    was_locked: bool = False

    # The look: one is due; more follow before the poll interval is over; what the pump had claimed
    # at the last.
    looks: bool = True
    keeps_looking: bool = True
    claimed_at_look: int = 0

    # The pump: it was told of jobs, knows of some, and how many it has claimed, until it waited
    # last, too.
    held: int = 0
    is_told: bool = False
    knows: bool = False
    claimed: int = 0
    claimed_until_dry: int = 0

    @property
    def waits(self) -> bool:
        """Does it want jobs, and knows of none?"""
        return self.held < self.room and not (self.knows or self.is_told)

    @property
    def hears_of_all(self) -> bool:
        """Does every enqueue notify this worker, or another one that wakes it if need be?"""
        if self.hears == EVERYTHING:
            return bool(self.says)
        return self.is_denied

    def begin_gaps(self) -> None:
        """Look often again, unless it is told."""
        self.keeps_looking = self.keeps_looking or not self.hears_of_all

    def take_over(self) -> None:
        """Look at once and often after that."""
        self.looks = self.keeps_looking = True

    def begin_anew(self) -> None:
        """Note that the connection of the upkeep is new."""
        self.listens = self.hears = ORDERS
        self.is_parked = self.is_on_watch = self.is_denied = self.takes_soon = False
        self.heard = set()
        self.may_take = True
        self.says = None if self.says else self.says
        self.take_over()


class Model:
    """Workers, the server's locks, and jobs that never end by themselves."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        # Jobs that are committed; those of open transactions, and whether these notify.
        self.ready = 0
        self.open: list[tuple[int, bool]] = []
        self.has_long_transactions = chance.random() < 0.5
        self.settles = False
        self.workers = [self.new_worker() for _ in range(chance.randint(1, 6))]

    def new_worker(self) -> ModelWorker:
        """Return a worker that has just started."""
        worker = ModelWorker(self.chance.randint(1, 3), is_slow=self.chance.random() < 0.5)
        worker.threads = [self._pump(worker), self._upkeep(worker)]
        return worker

    def go_on(self, steps: int) -> None:
        """Let so many things happen, or be done by a worker, in any order."""
        often = [self.enqueue, self.finish, self.commit, self.end_park]
        seldom = [self.kill, self.cut, self.freeze, self.be_partial, self.poll]
        for _ in range(steps):
            if self.chance.random() < 0.2:
                self.chance.choice([*often, *often, *seldom])()
            else:
                self.act(self.chance.choice(self.workers))

    # What happens to them

    def enqueue(self) -> None:
        """Insert jobs; a trigger looks whether to notify at the commit."""
        notifies = any(worker.has_said for worker in self.workers)
        self.open.append((self.chance.choice((1, 1, 1, 2, 5)), notifies))
        if not self.has_long_transactions:
            self.commit()

    def commit(self) -> None:
        """Commit jobs."""
        if self.open:
            jobs, notifies = self.open.pop(self.chance.randrange(len(self.open)))
            self.ready += jobs
            if notifies:
                self._tell("jobs", EVERYTHING)

    def finish(self) -> None:
        """Let a job end; the pump may know what has waited for that."""
        running = [worker for worker in self.workers if worker.held and not worker.is_frozen]
        if running:
            worker = self.chance.choice(running)
            worker.held -= 1
            worker.is_told = worker.is_told or self.chance.random() < 0.3

    def kill(self) -> None:
        """Put a new worker in the place of one, whose jobs are lost."""
        gone = self.workers.pop(self.chance.randrange(len(self.workers)))
        self.workers.append(self.new_worker())
        self._free(gone)

    def cut(self) -> None:
        """Cut the connection of an upkeep, which makes a new one."""
        worker = self.chance.choice(self.workers)
        if not worker.is_frozen:
            worker.begin_anew()
            worker.threads[1] = self._upkeep(worker)
            self._free(worker)

    def freeze(self) -> None:
        """Freeze one at most, and not the one on watch: jobs are left to the poll then.

        If it parks, its time is up soon after.
        """
        for worker in self.workers:
            worker.is_frozen = False
        frozen = self.chance.choice(self.workers)
        if not frozen.has_lock:
            frozen.is_frozen, frozen.is_parked = True, False

    def be_partial(self) -> None:
        """Let one begin or end to go without the watch."""
        worker = self.chance.choice(self.workers)
        worker.is_partial = not worker.is_partial

    def poll(self) -> None:
        """Let the poll interval of a worker be over."""
        self.chance.choice(self.workers).looks = True

    def end_park(self) -> None:
        """Let the time of one that parks be up."""
        self.chance.choice(self.workers).is_parked = False

    # What they do

    def act(self, worker: ModelWorker) -> bool:
        """Let a thread of a worker do one thing; return whether there was something to do."""
        if worker.is_frozen:
            return False
        order = self.chance.sample(worker.threads, k=2)
        return any(next(thread) for thread in order)

    def settle(self) -> None:
        """Let all act until nothing is left to do, and transactions end.

        It may last for so long that the gaps between looks are the poll interval.
        """
        self.settles = True
        self._rest()
        while self.open:
            self.commit()
        if self.has_long_transactions:
            for worker in self.workers:
                worker.looks = worker.looks or worker.keeps_looking
        self._rest()
        self.settles = False
        if self.chance.random() < 0.5:
            for worker in self.workers:
                worker.keeps_looking = worker.keeps_looking and worker.is_frozen

    def _rest(self) -> None:
        for _ in range(1_000):
            if not sum(self.act(worker) for worker in self.workers):
                return
        raise AssertionError("they never come to rest")

    def _is_time(self) -> bool:
        """Is some time over?"""
        return self.settles or self.chance.random() < 0.5

    # The pump

    def _pump(self, worker: ModelWorker) -> Steps:
        while True:
            worker.knows, worker.is_told = worker.knows or worker.is_told, False
            room = worker.room - worker.held
            if worker.knows and room:
                yield True
                taken = min(room, self.ready)
                self.ready -= taken
                yield True
                worker.claimed += taken
                worker.held += taken
                yield True
                worker.knows = taken == room
            is_idle = not (worker.knows and room)
            if worker.waits:
                worker.claimed_until_dry = worker.claimed
            yield not is_idle

    # The upkeep

    def _upkeep(self, worker: ModelWorker) -> Steps:
        while True:
            if self._hear(worker):
                yield True
            self._observe(worker)
            due = self._due(worker)
            for duty in due:
                yield from duty(worker)
            if not due:
                yield False

    def _hear(self, worker: ModelWorker) -> bool:
        heard, worker.heard = worker.heard, set()
        if "left" in heard and worker.held:
            worker.takes_soon = True
        if "jobs" in heard:
            worker.begin_gaps()
            worker.is_told = worker.looks = True
        return bool(heard)

    def _observe(self, worker: ModelWorker) -> None:
        worker.began_with_jobs = worker.began_with_jobs and worker.held > 0
        worker.is_settled = not worker.held and (worker.is_settled or self._is_time())
        if worker.takes_soon and self._is_time():
            worker.takes_soon, worker.may_take = False, True

    def _due(self, worker: ModelWorker) -> list[Callable[[ModelWorker], Steps]]:
        says, looks = self._says_is_due(worker), self._look_is_due(worker)
        step = next_step(self._facts(worker))
        steps = step is not None and not (step is WatchStep.PARK and (says or looks))
        duties = [(says, self._say), (steps, self._step), (looks, self._look)]
        return [duty for is_due, duty in duties if is_due]

    def _says_is_due(self, worker: ModelWorker) -> bool:
        worker.was_locked = worker.was_locked and not self._is_time()
        if worker.was_locked or worker.says is None:
            return not worker.was_locked
        if not worker.waits:
            return worker.says and self._is_time()
        if worker.says:
            return worker.hears != EVERYTHING
        return worker.hears == EVERYTHING and self._is_time()

    def _say(self, worker: ModelWorker) -> Steps:
        says = worker.says is False
        yield True
        if not self.settles and self.chance.random() < 0.2:
            yield True
            worker.was_locked = worker.looks = True
        else:
            worker.has_said = says
            yield True
            worker.says = says
            if says:
                worker.take_over()
        yield True

    def _look_is_due(self, worker: ModelWorker) -> bool:
        has_claimed = worker.claimed != worker.claimed_at_look
        return worker.waits and (worker.looks or (has_claimed and self._is_time()))

    def _look(self, worker: ModelWorker) -> Steps:
        claimed = worker.claimed
        yield True
        found = self.ready > 0
        yield True
        if claimed != worker.claimed_at_look:
            worker.begin_gaps()
        worker.looks, worker.claimed_at_look = False, claimed
        worker.is_told = worker.is_told or found
        yield True

    # The watch

    def _facts(self, worker: ModelWorker) -> WatchFacts:
        return WatchFacts(
            is_on_watch=worker.is_on_watch,
            hears=worker.hears,
            waits=worker.waits,
            is_busy=self._is_busy(worker),
            is_partial=worker.is_partial,
            may_take=worker.may_take,
            may_park=worker.is_settled and not worker.held,
        )

    def _is_busy(self, worker: ModelWorker) -> bool:
        if worker.is_slow and worker.held and not worker.began_with_jobs and self._is_time():
            return True
        if worker.waits or not self._is_time():
            return False
        # One that has found nothing is stuck, but for a moment.
        has_found = worker.claimed != worker.claimed_until_dry
        return worker.held >= worker.room or has_found or not self.settles

    def _step(self, worker: ModelWorker) -> Steps:
        step = next_step(self._facts(worker))
        if step is None:
            return
        yield True
        if step in CHANNELS:
            yield from self._subscribe(worker, CHANNELS[step])
        elif step is WatchStep.LEAVE:
            yield from self._leave(worker)
        else:
            yield from self._take(worker, parks=step is WatchStep.PARK)
        yield True

    def _subscribe(self, worker: ModelWorker, channels: frozenset[str]) -> Steps:
        worker.listens = channels
        yield True
        worker.may_take = worker.may_take or worker.hears == NOTHING
        worker.hears = channels
        if channels == EVERYTHING:
            worker.take_over()

    def _leave(self, worker: ModelWorker) -> Steps:
        self._free(worker)
        yield True
        worker.listens -= {JOBS_CHANNEL}
        self._tell("left", ORDERS)
        yield True
        worker.is_on_watch, worker.hears = False, worker.hears - {JOBS_CHANNEL}
        worker.may_take, worker.takes_soon = False, True

    def _take(self, worker: ModelWorker, *, parks: bool) -> Steps:
        worker.has_lock = not any(other.has_lock for other in self.workers)
        worker.is_parked = parks and not worker.has_lock
        while worker.is_parked:
            yield False
        yield True
        worker.is_on_watch, worker.is_denied = worker.has_lock, not worker.has_lock
        worker.began_with_jobs = worker.held > 0
        worker.may_take = worker.takes_soon = False
        if worker.is_denied:
            worker.keeps_looking = False

    # The server

    def _tell(self, word: str, channels: frozenset[str]) -> None:
        for worker in self.workers:
            if worker.listens >= channels:
                worker.heard.add(word)

    def _free(self, worker: ModelWorker) -> None:
        if not worker.has_lock:
            return
        worker.has_lock = False
        parked = [other for other in self.workers if other.is_parked]
        if parked:
            other = self.chance.choice(parked)
            other.has_lock, other.is_parked = True, False
