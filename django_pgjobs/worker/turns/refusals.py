"""Jobs that the server refuses to change, and unknown tasks: left alone for a while.

A trigger or a CHECK of the project may raise for a row, a value in it may be corrupt. The job stays
as it is, with a note where that can be written, and is met again when the time is over. The jobs of
a task wait for a shorter time than a job: after each such pause others of them come up, and not the
same ones again, so that sound jobs behind them have their turn.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import psycopg

from django_pgjobs.queries import jobs
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.errors import Trouble, trouble_of
from django_pgjobs.values import notes
from django_pgjobs.values.words import counted
from django_pgjobs.worker.safe_log import get_logger
from django_pgjobs.worker.turns.careful import in_pages

logger = get_logger(__name__)

# How long a job is left alone the first time; that doubles up to the second.
JOB_SECONDS = (60.0, 600.0)
# The first time where what its change waited for was locked for too long.
LOCKED_SECONDS = 1.0
# After so many jobs of a task that are refused, all of its jobs are left alone for so long.
PATH_LIMIT = 10
TASK_SECONDS = 10.0
# How long the jobs of a task that is not here are left to others; then it is tried and told again.
UNKNOWN_SECONDS = 60.0
# How many jobs, and how many tasks, are remembered; beyond that the oldest are tried again before
# their time.
MOST_KNOWN = 10_000
# How many refused jobs one pass looks for before other work goes on.
PATIENCE = 100
# A refused job is logged again if it is refused after this time.
FORGET_SECONDS = 3600.0

T = TypeVar("T")


class LoggedJobs:
    """Jobs that were logged: each is logged once, however often it is met."""

    def __init__(self) -> None:
        # When each was met, the one that was met last at the end.
        self._met_at: dict[int, float] = {}

    def is_new(self, job_id: int) -> bool:
        """Note that a job was met; return whether that is news."""
        now = time.monotonic()
        last = self._met_at.pop(job_id, -math.inf)
        if len(self._met_at) >= MOST_KNOWN:
            del self._met_at[next(iter(self._met_at))]
        self._met_at[job_id] = now
        return last + FORGET_SECONDS < now


class RefusedJob(NamedTuple):
    """A refused job: until when it is left alone, how long that is, and its task.

    Without a task it counts no more towards the pause of all jobs of its task.
    """

    until: float
    wait: float
    task_path: str


class Refusals:
    """What a process leaves alone now: such jobs, the tasks of many of them, and unknown tasks.

    The pump meets them when it claims, the upkeep when it promotes; a web process in any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told = LoggedJobs()
        # Read without the lock, so never changed: whoever holds it puts another one in its place.
        self._jobs: dict[int, RefusedJob] = {}
        # Until when.
        self._paths: dict[str, float] = {}

    def passed_over(self) -> list[int]:
        """Return the jobs to leave alone now."""
        now, jobs = time.monotonic(), self._jobs
        return [job_id for job_id, refused in jobs.items() if refused.until > now]

    def passed_over_paths(self) -> list[str]:
        """Return the tasks whose jobs are to be left alone now."""
        now, paths = time.monotonic(), self._paths
        return [path for path, until in paths.items() if until > now]

    def note_unknown(self, paths: Sequence[str]) -> None:
        """Leave the jobs of tasks that are not here to others; say so once for each pause."""
        if not paths:
            return
        unknown = Counter(paths)
        with self._lock:
            new = unknown.keys() - self.passed_over_paths()
            self._pass_over_paths(unknown, UNKNOWN_SECONDS)
        for path in new:
            some = counted(unknown[path], "job")
            what = (
                "task=%s is unknown here, its jobs wait (%s just now): deploy its code, or load "
                "it: as tasks.py of an app in INSTALLED_APPS, or by PGJOBS['TASK_MODULES']"
            )
            logger.error(what, path, some)

    def _pass_over_paths(self, paths: Iterable[str], seconds: float) -> None:
        now = time.monotonic()
        known = {path: until for path, until in self._paths.items() if until > now}
        known |= dict.fromkeys(paths, now + seconds)
        self._paths = dict(list(known.items())[-MOST_KNOWN:])

    def in_pages(
        self,
        connection: OwnConnection,
        act: Callable[[int, list[int]], Sequence[T]],
        *,
        size: int,
        find: Callable[[list[int]], Mapping[int, str]],
        take_found: Callable[[], Sequence[T]] | None = None,
    ) -> Iterator[Sequence[T]]:
        """Yield pages as `careful.in_pages` does, around the jobs to leave alone, and note more.

        *find* returns the job with its task, or "" if a refusal is not to count against that.
        """
        paths: dict[int, str] = {}

        def find_and_note(passed_over: list[int]) -> list[int]:
            found = find(passed_over)
            paths.update(found)
            return list(found)

        def leave(job_id: int, error: psycopg.Error) -> None:
            self._leave_alone(connection, job_id, error, paths[job_id])

        return in_pages(
            connection,
            act,
            size=size,
            find=find_and_note,
            on_refused=leave,
            take_found=take_found,
            known=self.passed_over(),
            patience=PATIENCE,
        )

    def _leave_alone(
        self, connection: OwnConnection, job_id: int, error: psycopg.Error, task_path: str
    ) -> None:
        """Leave a job alone from now on; say so in the log and in its row."""
        reason = str(error).strip()
        with self._lock:
            level = logging.ERROR if self._told.is_new(job_id) else logging.DEBUG
            is_one_of_many = self._note(job_id, error, task_path)
        # Not under the lock, which others need: a log may take for ever.
        logger.log(level, "job=%s the server refuses it, it is passed over: %s", job_id, reason)
        if is_one_of_many:
            logger.log(level, "task=%s the server refuses its jobs: all of them wait", task_path)
        note = notes.refused(notes.PASSED_OVER, reason)
        try:
            connection.round_trip([lambda cursor: jobs.send_note(cursor, job_id, note)])
        except psycopg.Error as refusal:
            if not trouble_of(refusal).spares_rest:
                raise

    def _note(self, job_id: int, error: psycopg.Error, task_path: str) -> bool:
        """Note a refused job; return whether all jobs of its task are left alone for it."""
        now = time.monotonic()
        former = self._jobs.get(job_id)
        is_locked = trouble_of(error) is Trouble.LOCKED
        first = LOCKED_SECONDS if is_locked else JOB_SECONDS[0]
        wait = min(max(2 * former.wait, first), JOB_SECONDS[1]) if former else first
        known = {
            known_id: refused
            for known_id, refused in self._jobs.items()
            if refused.until > now - FORGET_SECONDS and known_id != job_id
        }
        if len(known) >= MOST_KNOWN:
            del known[next(iter(known))]
        known[job_id] = RefusedJob(now + wait, wait, "" if is_locked else task_path)
        of_task = [
            known_id
            for known_id, refused in known.items()
            if refused.task_path == task_path and refused.until > now
        ]
        is_one_of_many = bool(task_path) and len(of_task) >= PATH_LIMIT
        if is_one_of_many:
            self._pass_over_paths([task_path], TASK_SECONDS)
            for known_id in of_task:  # the next pause is for others
                known[known_id] = known[known_id]._replace(task_path="")
        self._jobs = known
        return is_one_of_many
