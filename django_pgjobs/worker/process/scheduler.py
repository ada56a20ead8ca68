"""The scheduler: enqueues what is due, at the right time and not in every worker.

Nobody is elected. An *active* scheduler wakes when the next schedule is due. One that *follows*
looks a little later and takes only what is late, so it finds something only if nobody is active;
then it becomes active itself. An active one that wakes in vain, because another one was there
before, follows from then on; one that has just started may be the only one, so it does as if it
were active until then. That they never enqueue an occurrence twice does not depend on it.

It works on Django's connection of its thread, because an enqueue is the project's code as well;
without anything due for a while it has none.
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta

from django.db import Error as DatabaseError
from django.db import connections

from django_pgjobs.declaring.registry import list_task_paths
from django_pgjobs.queries import schedules as queries
from django_pgjobs.queries.database import job_cursor
from django_pgjobs.schedules.checking import check_planned
from django_pgjobs.schedules.firing import MAX_SCHEDULES, ScheduleTurn, fire_due
from django_pgjobs.schedules.jobs import Blocked
from django_pgjobs.schedules.syncing import sync_schedules
from django_pgjobs.worker.process.put_off import PutOff
from django_pgjobs.worker.process.schedule_log import ScheduleLog, log_sync
from django_pgjobs.worker.role import Role
from django_pgjobs.worker.running.housekeeping import drop_dead_connections
from django_pgjobs.worker.safe_log import get_logger
from django_pgjobs.worker.state import WorkerState

logger = get_logger(__name__)

# A follower takes what is late for so long, and looks so long after it was due, or longer.
LATE_SECONDS = 1.0
FOLLOW_SECONDS = (2.0, 3.0)
# The longest pause: rows may be written by SQL.
LONGEST_PAUSE = 30.0
# The shortest pause, also for one that always has more to do.
SHORTEST_PAUSE = 0.01
# How soon an active one looks again for a due schedule that somebody has locked: longer each time.
FIRST_PASSED_OVER, LAST_PASSED_OVER = 0.01, 2.0
# How long it waits after an error of the database; doubled each time.
FIRST_RETRY, LAST_RETRY = 1.0, 30.0
# How soon rows of declared schedules are written that somebody had locked.
SYNC_SECONDS = 5.0
# If nothing is due for longer the connection is closed; it is opened again so long before.
IDLE_SECONDS, CONNECT_SECONDS = 10.0, 1.0
UNDECLARED_SECONDS = 60.0
# How often an active one retries schedules that could not be planned.
BROKEN_SECONDS = 60.0
# How often each scheduler checks whether schedules are planned too late, how soon it goes on with
# that, and how far the server's clock must be put back for a check at once. Followers check, too:
# if all are planned too late, nobody is active.
CHECK_SECONDS, CHECK_PAUSE, CLOCK_STEP = 3600.0, 0.05, 5.0


class Scheduler(Role):
    """Enqueues the occurrences of schedules that are due."""

    name = "scheduler"

    def __init__(self, state: WorkerState, *, on_crash: Callable[[str], None]) -> None:
        super().__init__(on_crash)
        self._state = state
        self._is_active = False
        # Until it has woken in vain: then another one is active.
        self._may_be_alone = True
        self._is_synced = False
        self._sync_at = 0.0
        # The worker id under which it has synced: if that was lost, its schedules may have been
        # retired.
        self._synced_as = state.worker_id
        # The tasks that are here, and how many modules were loaded when they were listed.
        self._tasks: list[str] = []
        self._module_count = 0
        self._retry = FIRST_RETRY
        self.put_off = PutOff()
        # How many schedules a turn takes.
        self._size = MAX_SCHEDULES
        # When something is expected to be due by the server's clock, as the last turn has told.
        self._expects_at: datetime | None = None
        self._passed_over = FIRST_PASSED_OVER
        # When the first of the full turns in a row was.
        self._full_since: datetime | None = None
        self._broken_at = 0.0
        # The schedule after which the check goes on; None: it has seen all.
        self._check_at = 0.0
        self._check_after: str | None = None
        # How far the server's clock was ahead of this process's at least.
        self._least_ahead = float("-inf")
        self._log = ScheduleLog()
        self._undeclared_at = time.monotonic() + UNDECLARED_SECONDS
        self._undeclared: set[str] = set()

    def run(self) -> None:
        try:
            while not self.stop_requested:
                pause = self._take_turn()
                if pause > IDLE_SECONDS:
                    self._close()
                # Nothing wakes it but the end.
                if not self.stop_requested:
                    self.wait(pause)
        finally:
            self._close()

    def fire_all(self) -> None:
        """Enqueue all that is due, once: for a process that drains and will not stay."""
        self._is_active = True
        while self._take_turn() <= SHORTEST_PAUSE and not self.stop_requested:
            pass
        self._close()

    def _take_turn(self) -> float:
        """Enqueue what is due; return the seconds until the next turn."""
        try:
            drop_dead_connections()
            self._sync()
            self._retry_broken()
            pause = self._fire()
            due_at = time.monotonic() + pause
            pause = min(pause, self._check_planned())
            self._retire()
            pause = min(pause, max(SHORTEST_PAUSE, due_at - time.monotonic()))
            pause = self._no_later_than_retries(pause)
        except Blocked as error:
            self._note_blocked(error)
            return SHORTEST_PAUSE
        except DatabaseError as error:
            logger.warning("schedules are not looked at: %s", str(error).strip())
            self._close()
            self._retry = min(LAST_RETRY, 2 * self._retry)
            return self._retry
        self._retry = FIRST_RETRY
        return pause

    def _no_later_than_retries(self, pause: float) -> float:
        """Return a pause that ends when something that was put off is to be tried again."""
        retry_at = self.put_off.retry_at
        if not self._is_synced:
            retry_at = min(retry_at, self._sync_at)
        wait = retry_at - time.monotonic()
        return pause if wait >= pause else max(SHORTEST_PAUSE, wait)

    def _note_blocked(self, error: Blocked) -> None:
        """Leave a schedule alone for a while, or find it by taking one at a time."""
        if error.name is None:
            self._size = 1
            return
        pause = self.put_off.note_blocked(error.name, time.monotonic())
        logger.warning("schedule=%s is put off for %g s: %s", error.name, pause, error)

    def _sync(self) -> None:
        now = time.monotonic()
        if self._state.worker_id != self._synced_as:
            self._synced_as = self._state.worker_id
            self._is_synced, self._sync_at = False, 0.0
        if self._is_synced or now < self._sync_at:
            return
        synced = sync_schedules()
        log_sync(synced)
        self._is_synced = not synced.locked
        self._sync_at = now + SYNC_SECONDS

    def _find_tasks(self) -> list[str]:
        """Return the paths of the tasks that are here."""
        # Looking through all modules takes a while, and tasks come with modules.
        if len(sys.modules) != self._module_count:
            self._module_count = len(sys.modules)
            self._tasks = list_task_paths()
        return self._tasks

    def _retry_broken(self) -> None:
        """Retry schedules that could not be planned: at the start, then while active.

        Another release, or a process that lacked something, may have marked them.
        """
        now = time.monotonic()
        if now < self._broken_at or (self._broken_at and not self._is_active):
            return
        self._broken_at = now + BROKEN_SECONDS
        # Perhaps a task was made without a new module.
        self._module_count = 0
        with job_cursor() as cursor:
            queries.retry_broken(cursor, self._find_tasks())

    def _fire(self) -> float:
        now = time.monotonic()
        expects_at, self._expects_at = self._expects_at, None
        late = 0.0 if self._is_early else LATE_SECONDS
        turn = fire_due(
            late=late,
            excluded=self.put_off.names_at(now),
            tasks=self._find_tasks(),
            max_schedules=self._size,
            since=self._full_since,
            on_move=self.note_move,
        )
        self._size = min(MAX_SCHEDULES, 10 * self._size)
        self.put_off.note_unknown(turn.unknown, now)
        self.put_off.note_enqueued(row.schedule for row in turn.occurrences)
        self._log.note(turn)
        self._note_clock(turn.read_at, asked_at=now)
        self._full_since = (self._full_since or turn.read_at) if turn.is_full else None
        has_some = turn.taken > len(turn.unknown)
        expects_some = bool(expects_at and turn.read_at and turn.read_at >= expects_at)
        is_in_vain = expects_some and not turn.is_passed_over
        self._is_active = has_some or (self._is_active and not is_in_vain)
        self._may_be_alone = self._may_be_alone and not is_in_vain
        if turn.is_full or turn.unknown:
            # There may be nothing more, which does not mean that another one is active.
            return SHORTEST_PAUSE
        return self._pause(turn)

    @property
    def _is_early(self) -> bool:
        """Does it take what is due at once? A follower leaves time for the one that is active."""
        return self._is_active or self._may_be_alone

    def _pause(self, turn: ScheduleTurn) -> float:
        """Return how long to wait, and note when something is expected to be due."""
        wait, longest = turn.wait, LONGEST_PAUSE
        if not turn.is_passed_over:
            self._passed_over = FIRST_PASSED_OVER
        elif self._is_early:
            # Another one may be taking it just now, or a person holds it for long.
            longest = self._passed_over
            wait = math.inf if wait is None else wait
            self._passed_over = min(LAST_PASSED_OVER, 2 * longest)
        else:
            wait = 0.0
        if wait is not None and not self._is_early:
            wait = max(0.0, wait) + random.uniform(*FOLLOW_SECONDS)
        elif wait is not None and wait > IDLE_SECONDS:
            # It has no connection meanwhile, and is to have one when something is due.
            longest = min(longest, wait - CONNECT_SECONDS)
        if wait is None:
            return longest
        if turn.read_at and (turn.is_passed_over or wait <= longest):
            self._expects_at = turn.read_at + timedelta(seconds=min(wait, longest))
        # The server has counted since it was asked, however late its answer came. A millisecond
        # more, because a wait may end a little early.
        return max(SHORTEST_PAUSE, min(turn.asked_at + wait + 0.001 - time.monotonic(), longest))

    def _check_planned(self) -> float:
        """Look at some schedules if it is time; return how soon there is more to do."""
        now = time.monotonic()
        if self._check_after is None:
            if now < self._check_at:
                return LONGEST_PAUSE
            self._check_at = now + CHECK_SECONDS
            self._check_after = ""
        moved, self._check_after = check_planned(self._find_tasks(), self._check_after)
        for name in moved:
            logger.warning("schedule=%s was planned too late; it is due earlier", name)
        if self._check_after is None and not moved:
            return LONGEST_PAUSE
        return CHECK_PAUSE

    def _note_clock(self, read_at: datetime | None, asked_at: float) -> None:
        """Have all schedules checked soon if the server's clock was put back."""
        if read_at is None:
            return
        # This process may have stood still since it asked: it knows bounds.
        most = read_at.timestamp() - asked_at
        if most < self._least_ahead - CLOCK_STEP:
            logger.warning("the server's clock was put back by %.0f s", self._least_ahead - most)
            self._check_at = 0.0
        self._least_ahead = read_at.timestamp() - time.monotonic()

    def _retire(self) -> None:
        """Retire schedules that no worker has declared for two looks."""
        now = time.monotonic()
        if now < self._undeclared_at:
            return
        self._undeclared_at = now + UNDECLARED_SECONDS
        with job_cursor() as cursor:
            undeclared = set(queries.list_undeclared(cursor))
            for name in queries.retire_schedules(cursor, sorted(undeclared & self._undeclared)):
                logger.warning("schedule=%s is retired: no worker declares it any more", name)
        self._undeclared = undeclared

    def _close(self) -> None:
        connections.close_all()
