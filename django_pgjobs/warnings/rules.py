"""When load and failures are worth a warning: functions of facts alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple

from django_pgjobs.queries.queue_pages import QueueRow
from django_pgjobs.queries.signs import Backlog, Crew, Ended, FailingTask, RateLimitedQueue

# A queue whose workers are busy is as it should be, until a job waits for so many seconds.
BUSY_WAIT_SECONDS = 60.0
# A job that may run and waits longer than this is worth a warning, in seconds.
LONG_WAIT_SECONDS = 300.0
# Failures of so many seconds are set beside those of the day before.
RECENT_SECONDS = 900.0
BEFORE_SECONDS = 86_400.0
# The least failures of a task that are worth a warning: one that runs ten times a day may fail
# twice.
LEAST_FAILED = 10
# That is a tenth of its jobs at least, and twice the share of the day before; of a task that had
# fewer jobs than this the day before, half of them.
LEAST_SHARE = 0.1
RISE = 2.0
LEAST_BEFORE = 20
SHARE_WITHOUT_BEFORE = 0.5
# A backlog is looked at for so many seconds, and for so many of them at least.
GROWTH_SECONDS = 1_800.0
LEAST_GROWTH_SECONDS = 1_200.0
# It grows if so many jobs came to it, it is half as long again, and each third of the time had
# more jobs than the one before: a wave that is going down again is none. Nor is one that has begun
# to: less than this part of the most that there were is left.
LEAST_GROWTH = 100
GROWTH = 1.5
PARTS = 3
STILL = 0.9
# A transaction that keeps dead rows from being removed for longer is worth a warning, and a batch
# to which more jobs may come; so are so many dead rows, where there are many beside the live ones.
OLD_TRANSACTION_SECONDS = 600.0
UNSEALED_SECONDS = 86_400.0
MANY_DEAD_ROWS = 50_000


class WaitingQueue(NamedTuple):
    """Jobs of a queue that may run; no live worker takes them where it *is_unserved*.

    *is_full*: as many of its jobs run as its settings allow.
    """

    queue_name: str
    ready: int
    waiting_since: datetime | None
    is_unserved: bool = False
    is_paused: bool = False
    is_full: bool = False

    @property
    def is_served(self) -> bool:
        """Do live workers take jobs of it?"""
        return not self.is_unserved and not self.is_paused


class BusyQueue(NamedTuple):
    """A queue that waits for workers that have no free slot."""

    queue_name: str
    ready: int
    slots: int
    seconds: float


class Growth(NamedTuple):
    """A backlog: how many jobs were ready *seconds* ago, and now."""

    queue_name: str
    before: int
    now: int
    seconds: float


def waiting_of(rows: Iterable[QueueRow]) -> list[WaitingQueue]:
    """Return what waits in queues; at least one job where some wait that nobody takes."""
    return [
        WaitingQueue(
            row.name,
            max(row.size.ready if row.size else 0, int(row.is_unserved)),
            row.waiting_since,
            row.is_unserved,
            row.paused_at is not None,
            row.max_running is not None
            and row.size is not None
            and row.size.running >= row.max_running,
        )
        for row in rows
    ]


def without_vain(row: WaitingQueue, vain: RateLimitedQueue | None) -> WaitingQueue:
    """Return *row* without the jobs that wait in vain: they wait for no slot and may not run."""
    if vain is None or not row.is_served:
        return row
    ready = max(0, row.ready - vain.jobs)
    since = (vain.others_since or row.waiting_since) if ready else None
    return row._replace(ready=ready, waiting_since=since)


def busy_queues(
    waiting: Iterable[WaitingQueue], crews: Sequence[Crew], now: datetime
) -> list[BusyQueue]:
    """Return the queues whose workers have no free slot while a job waits too long."""
    found = []
    for row in waiting:
        takers = [crew for crew in crews if crew.takes(row.queue_name) and not crew.is_quiet]
        slots = sum(crew.slots for crew in takers)
        if not takers or row.is_paused or row.waiting_since is None or not row.ready:
            continue
        seconds = (now - row.waiting_since).total_seconds()
        if seconds > BUSY_WAIT_SECONDS and all(crew.running >= crew.slots for crew in takers):
            found.append(BusyQueue(row.queue_name, row.ready, slots, seconds))
    return sorted(found, key=lambda queue: -queue.seconds)


def late_queues(waiting: Iterable[WaitingQueue], now: datetime) -> Iterator[str]:
    """Yield the queues in which workers let a job wait for too long."""
    for row in waiting:
        since = row.waiting_since
        is_late = since is not None and (now - since).total_seconds() > LONG_WAIT_SECONDS
        if is_late and row.is_served:
            yield row.queue_name


def is_rising(task: FailingTask, before: Ended) -> bool:
    """Do more jobs of a task fail than did *before*, in a day?"""
    if task.failed < LEAST_FAILED:
        return False
    share = share_of(task.failed, task.successful)
    if before.failed + before.successful < LEAST_BEFORE:
        return share >= SHARE_WITHOUT_BEFORE
    return share >= max(LEAST_SHARE, RISE * share_of(before.failed, before.successful))


def share_of(failed: int, successful: int) -> float:
    """Return which part of the jobs failed."""
    return failed / (failed + successful) if failed else 0.0


def growth_of(queue_name: str, backlog: Backlog, now: int) -> Growth | None:
    """Return how a backlog, of *now* jobs by now, grew; None if it did not."""
    ready, seconds = backlog.ready, backlog.seconds
    if len(ready) < PARTS or seconds < LEAST_GROWTH_SECONDS or backlog.is_cut:
        return None
    size = len(ready) / PARTS
    means = [_mean(ready[round(part * size) : round((part + 1) * size)]) for part in range(PARTS)]
    is_steady = all(earlier < later for earlier, later in pairwise(means))
    first, last = ready[0], ready[-1]
    least = max(first + LEAST_GROWTH, GROWTH * first, STILL * max(ready))
    grew = is_steady and min(last, now) >= least
    return Growth(queue_name, first, now, seconds) if grew else None


def _mean(numbers: Sequence[int]) -> float:
    return sum(numbers) / len(numbers)
