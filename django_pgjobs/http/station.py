"""The parts of a worker that the requests of a web process share: tasks, refusals, statistics.

The process claims for many workers over HTTP and holds nothing between requests but hints; what is
true is in the tables.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Collection
from typing import NamedTuple

from django_pgjobs.declaring.lacking import declaring_paths
from django_pgjobs.declaring.registry import discover_tasks_once
from django_pgjobs.declaring.remote import local_paths, remote_paths
from django_pgjobs.http.recording import Recording
from django_pgjobs.queries.claims import Group
from django_pgjobs.queries.jobs import Rescued
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.running.announcer import Announcer
from django_pgjobs.worker.running.outcome import Outcome
from django_pgjobs.worker.running.tally import Tally
from django_pgjobs.worker.safe_log import get_logger
from django_pgjobs.worker.turns.refusals import LoggedJobs, Refusals

logger = get_logger(__name__)

# For how many groups it is remembered where the last walk ended.
MOST_CURSORS = 10_000
# How long receivers of task_finished may take at the end of the process.
END_SECONDS = 3.0


class Declared(NamedTuple):
    """The paths of tasks, as of so many modules that were loaded."""

    modules: int = -1
    remote: frozenset[str] = frozenset()
    local: frozenset[str] = frozenset()
    with_control: list[str] = []


class Station:
    """The parts of the engine that requests share."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Know nothing, as a process that was forked: threads are its parent's."""
        self._lock = threading.Lock()
        self._announcer: Announcer | None = None
        self._ends_at_exit = False
        self._declared = Declared()
        self.refusals = Refusals()
        # The jobs of which was said that their outcomes cannot be written.
        self.unwritten = LoggedJobs()
        # Where walks through the lanes of groups ended.
        self.cursors: dict[Group, str] = {}
        self.tally = Tally()
        self.recording = Recording(self.tally)

    def remote_tasks(self) -> frozenset[str]:
        """Return the paths of the remote tasks that this process knows."""
        return self._known_tasks().remote

    def declaring_paths(self) -> list[str]:
        """Return the tasks that declare when their jobs start."""
        return self._known_tasks().with_control

    def _known_tasks(self) -> Declared:
        discover_tasks_once()
        modules = len(sys.modules)
        if self._declared.modules != modules:
            remote, local = frozenset(remote_paths()), frozenset(local_paths())
            self._declared = Declared(modules, remote, local, declaring_paths())
        return self._declared

    def paths_of_others(self, allowed: Collection[str]) -> frozenset[str]:
        """Return the tasks whose jobs are not for a worker that may run the *allowed* ones."""
        known = self._known_tasks()
        return known.local | known.remote.difference(allowed)

    def note_served(self, group: Group, lane: str) -> None:
        """Remember where a walk through the lanes of a group has ended."""
        if len(self.cursors) >= MOST_CURSORS:
            self.cursors = {}
        self.cursors[group] = lane

    def note_stored(self, attempt: Attempt, outcome: Outcome) -> None:
        """Tell who wants to know, in another thread, that an outcome is stored."""
        with self._lock:
            self._running_announcer().add(attempt, outcome)
        self._begin_recording()

    def note_doubtful(self, attempt: Attempt, outcome: Outcome) -> None:
        """Do the same if the database says that it is: the answer that said so was lost."""
        with self._lock:
            self._running_announcer().add_doubtful(attempt, outcome)

    def _running_announcer(self) -> Announcer:
        if self._announcer is None:
            self._end_with_process()
            self._announcer = Announcer(self._note_crash)
            self._announcer.start()
        return self._announcer

    def note_rescued(self, rescued: Collection[Rescued]) -> None:
        """Count attempts of lost workers that a request has taken back."""
        if rescued:
            self.tally.note_rescued(rescued)
            self._begin_recording()

    def _begin_recording(self) -> None:
        """See that what is counted is written, at the latest at the end of the process."""
        with self._lock:
            self._end_with_process()
        self.recording.begin()

    def _end_with_process(self) -> None:
        if not self._ends_at_exit:
            self._ends_at_exit = True
            atexit.register(self.end)

    def end(self) -> None:
        """Tell and write what is left; for the end of the process."""
        with self._lock:
            announcer, self._announcer = self._announcer, None
            self._ends_at_exit = False
        atexit.unregister(self.end)
        if announcer is not None:
            announcer.stop()
            announcer.join(END_SECONDS)
        self.recording.end()

    def _note_crash(self, role: str) -> None:
        logger.error("role=%s has crashed; task_finished is sent by a new one", role)
        self._announcer = None


station = Station()
os.register_at_fork(after_in_child=station.begin_anew)
