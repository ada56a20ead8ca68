"""The health of a worker: is it live, and is it ready?

A worker is *live* if its parts move. One that is not will end by itself soon (`vitals`); this tells
of it earlier. Without a database it is still live, because a restart would not help. It is not live
if it knows of jobs, has free slots and the lease, and claims nothing, even if all of its parts seem
to wait for something; nor if a job blocks its event loop while others wait for it.

It is *ready* if it may claim jobs: it has its lease, reached the database when it last tried, and
is not stopping.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import django_pgjobs
from django_pgjobs.metrics.cells import Cells
from django_pgjobs.metrics.of_worker import WorkerFacts, describe_worker, named_queues
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.claiming.outlook import Outlook
from django_pgjobs.worker.process.leases import LeaseKeeper
from django_pgjobs.worker.process.vitals import Vitals
from django_pgjobs.worker.role import Role
from django_pgjobs.worker.running.capacity import Capacity
from django_pgjobs.worker.safe_log import get_logger
from django_pgjobs.worker.state import WorkerState
from django_pgjobs.worker.stillness import LOOK_SECONDS, WAITS, Stillness

logger = get_logger(__name__)

# A worker is not live if a part stands still for longer: more than an answer of the server may take
# (ANSWER_SECONDS), and less than ends the process (STILL_SECONDS).
LIVE_SECONDS = 45.0


class HealthUnusable(Exception):
    """The address or the file for signs of life cannot be used."""


class Health(Role):
    """Checks once a second whether the worker is live, and touches the file if so."""

    name = "health"

    def __init__(
        self,
        state: WorkerState,
        connections: Mapping[str, OwnConnection],
        slots: Mapping[str, Capacity],
        *,
        outlook: Outlook,
        leases: LeaseKeeper,
        vitals: Vitals,
        totals: Callable[[], Cells],
        on_crash: Callable[[str], None],
    ) -> None:
        super().__init__(on_crash)
        self._state = state
        self._connections = connections
        self._slots = slots
        self._outlook = outlook
        self._leases = leases
        self._vitals = vitals
        self._totals = totals
        self._claiming = Stillness()
        self._beginning = {kind: Stillness() for kind in slots}
        self._file = SignFile(state.options.health_file) if state.options.health_file else None

    def run(self) -> None:
        while not self.stop_requested:
            self._claiming.look(self._mark_of_claims())
            for kind, each in self._slots.items():
                self._beginning[kind].look(each.mark)
            if self._file is not None and not self.find_still():
                self._file.touch()
            self.wait(LOOK_SECONDS)
        if self._file is not None:
            self._file.remove()

    def find_still(self) -> str:
        """Return what stands still, empty if the worker is live; safe from any thread."""
        still = self._vitals.name_still(LIVE_SECONDS)
        for kind, stillness in self._beginning.items():
            if not still and stillness.seconds > LIVE_SECONDS:
                still = f"the {kind}, which a job blocks,"
        if not still and self._claiming.seconds > LIVE_SECONDS:
            still = "the pump, which knows of jobs and claims none,"
        return f"{still} stands still" if still else ""

    def find_unready(self) -> str:
        """Return why the worker may not claim jobs, empty if it may; safe from any thread."""
        state = self._state
        if state.stopping:
            return "it takes no jobs any more"
        if state.quiet:
            return "it was asked to claim nothing"
        if not state.worker_id:
            return "it is not registered yet"
        if time.monotonic() >= state.danger_at:
            return "its lease may be over: it was not renewed in time"
        return "the database cannot be reached" if self._leases.is_failing else ""

    def describe(self) -> bytes:
        """Return the metrics of the worker; safe from any thread."""
        state, options = self._state, self._state.options
        facts = WorkerFacts(
            name=state.name,
            version=django_pgjobs.__version__,
            queues=named_queues(options.queues, options.excluded_queues),
            slots={kind: (each.most, each.most - each.free) for kind, each in self._slots.items()},
            renewed_at=time.time() - (time.monotonic() - self._leases.renewed_at),
            is_live=not self.find_still(),
            is_ready=not self.find_unready(),
            opened={role: each.opened for role, each in self._connections.items()},
        )
        return describe_worker(facts, self._totals())

    def _mark_of_claims(self) -> float:
        """Return a mark that stays the same while there is something to claim and nothing is."""
        # A worker that runs something may know of jobs that have to wait for that.
        is_waiting = self._state.held or not self._outlook.has_room or self._outlook.is_idle
        return WAITS if is_waiting or self.find_unready() else self._outlook.claimed_at


class SignFile:
    """A file that is touched as a sign of life, for probes that can run a command only.

    Raise HealthUnusable if it cannot be written. It is removed at the end, and what is left of a
    process that was killed is old.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._has_failed = False
        try:
            self._create()
        except OSError as error:
            raise HealthUnusable(f"the file of --health-file cannot be written: {error}") from error

    def touch(self) -> None:
        """Say that the process lives; an error is logged once."""
        try:
            try:
                os.utime(self._path, follow_symlinks=False)
            except FileNotFoundError:
                self._create()
            self._has_failed = False
        except OSError as error:
            if not self._has_failed:
                logger.warning("the file of --health-file cannot be touched: %s", error)
            self._has_failed = True

    def remove(self) -> None:
        """Say that the process does not live any more."""
        with suppress(OSError):
            self._path.unlink()

    def _create(self) -> None:
        """Put a new file in its place, so that what was there, a link say, is not written to."""
        number, name = tempfile.mkstemp(prefix=f".{self._path.name}.", dir=self._path.parent)
        try:
            with os.fdopen(number, "w") as file:
                file.write(f"{os.getpid()}\n")
                os.fchmod(number, 0o644)
            os.replace(name, self._path)
        except BaseException:
            os.unlink(name)
            raise
