"""The lease: the time-bounded right of a worker to run the jobs it claimed.

One row per worker covers all of its jobs. The server's clock decides when a lease is over;
whoever lets it run out has lost for good, because an expired lease is never renewed. The
worker enters the table anew, under another id.

What each side knows, with a lease of 60 seconds:

    0 s    renewed: the server counts 60 s from when it ran the statement, the worker counts
           60 s from before it sent it, so the worker's idea ends first
    20 s   the next renewal is due; a thread that does nothing else sends it
    40 s   two renewals failed: the worker interrupts its own jobs, and claims no others
    60 s   over: any other worker returns the jobs (rescue), and their claims rise, so that
           late writes of this one match no row

Nobody has to be elected for the rescue. A renewal tells when the earliest lease of another
worker ends, and each worker looks again at that time; when several do, rows are skipped that
another one has locked.

A renewal also brings what people ask of the worker: in its row to claim nothing for now (quiet), to
go on, to stop; in rows of their own to tell where a job is. A notification lets it come at once.

A worker without jobs has nothing to lose: it keeps no connection between renewals that are far
apart. Once it has had a job for a second it renews, and keeps the connection from then on, so that
a server that is full later takes no lease from it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import psycopg

from django_pgjobs.queries import jobs, stacks, workers
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.errors import Trouble, trouble_of
from django_pgjobs.values import notes
from django_pgjobs.worker.role import Role
from django_pgjobs.worker.running.job_log import log_rescue
from django_pgjobs.worker.running.stacks import stack_of
from django_pgjobs.worker.safe_log import get_logger
from django_pgjobs.worker.state import WorkerState
from django_pgjobs.worker.turns.careful import in_pages
from django_pgjobs.worker.turns.refusals import LoggedJobs

logger = get_logger(__name__)

RESCUE_BATCH = 1_000
RETRY_SECONDS = 1.0
# How long a job is left alone that the server refuses to rescue. Trying many of them takes longer
# than a pass may last, and those behind them would never have their turn.
REFUSED_SECONDS = 60.0
# A worker without jobs keeps no connection for a pause that is longer, ...
IDLE_SECONDS = 10.0
# ... and looks so often whether it has some.
HELD_SECONDS = 1.0


class LeaseKeeper(Role):
    """Renews the worker's lease, notices its loss, and rescues the jobs of lost workers."""

    name = "lease"

    def __init__(
        self,
        state: WorkerState,
        connection: OwnConnection,
        *,
        register: Callable[[OwnConnection], None],
        on_rescued: Callable[[Sequence[jobs.Rescued]], None],
        on_danger: Callable[[], None],
        on_change: Callable[[], None],
        on_stop: Callable[[], None],
        on_crash: Callable[[str], None],
    ) -> None:
        super().__init__(on_crash)
        self._state = state
        self._connection = connection
        self._register = register
        self._on_rescued = on_rescued
        self._on_danger = on_danger
        # Called when it may claim jobs again, or may not any more.
        self._on_change = on_change
        self._on_stop = on_stop
        self._is_endangered = False
        # By time.monotonic().
        self.renewed_at = 0.0
        self._note_renewed(time.monotonic())
        self._is_woken = False
        # Did it renew because it had jobs?
        self._had_jobs = False
        # Jobs that the server refused to rescue.
        self._told = LoggedJobs()
        # Until when they are left alone.
        self._passed_over: dict[int, float] = {}
        self.is_leader = False
        # Is there trouble with the database, as far as the last turn knows?
        self.is_failing = False

    def run(self) -> None:
        while not self.stop_requested:
            pause = self._take_turn()
            self.check_danger()
            self._rest(pause)
        self._end()

    def _rest(self, pause: float) -> None:
        """Wait for the next turn; without a connection if there is nothing to lose."""
        if pause <= IDLE_SECONDS or self._state.held or self._had_jobs:
            self._had_jobs = False
            self.wait(pause)
            return
        self._connection.close()
        until, self._is_woken = time.monotonic() + pause, False
        while not (self._is_woken or self._had_jobs) and (left := until - time.monotonic()) > 0:
            self.wait(min(left, HELD_SECONDS))
            self._had_jobs = bool(self._state.held)

    def _sleep(self, timeout: float | None) -> None:
        self._is_woken = self._wake.wait(timeout)
        self._wake.clear()

    def _take_turn(self) -> float:
        """Renew the lease and look after others; return the seconds until the next turn."""
        failing = "lease not renewed"
        try:
            renewal = self._renew()
            if renewal is None:
                return 0.0
            failing = "lease renewed, but those of others not cut"
            self._cut_leases()
            self._tell_where()
            failing = "lease renewed, but lost workers not looked after"
            pause = self._rescue_if_lost(renewal)
            self.is_failing = False
            return pause
        except psycopg.Error as error:
            self.is_failing = True
            logger.warning("worker=%s %s: %s", self._state.name, failing, str(error).strip())
            self._connection.close_if_broken()
            return min(RETRY_SECONDS, self._state.options.lease / 10)

    def _renew(self) -> workers.Renewal | None:
        """Renew the lease and do what is asked for; None: it was lost."""
        lease = self._state.options.lease
        asked_at = time.monotonic()
        with self._connection.cursor() as cursor:
            renewal = workers.renew_lease(cursor, self._state.worker_id, lease=lease)
        if renewal is None:
            self._begin_anew()
            return None
        was_in_danger = time.monotonic() >= self._state.danger_at
        self._note_renewed(asked_at)
        if was_in_danger:
            self._on_change()
        self.is_leader = renewal.is_leader
        self._obey(renewal)
        return renewal

    def _rescue_if_lost(self, renewal: workers.Renewal) -> float:
        is_any_lost = renewal.next_expiry is not None and renewal.next_expiry <= 0
        if (renewal.is_leader or is_any_lost) and not self.rescue(self._connection):
            return 0.0
        pause = self._state.options.lease / 3
        if renewal.next_expiry is not None and renewal.next_expiry > 0:
            pause = min(pause, renewal.next_expiry + 0.01)
        return pause

    def _cut_leases(self) -> None:
        """Cut leases of others that end later than they can; an error in this costs us no lease."""
        try:
            with self._connection.cursor() as cursor:
                workers.cut_leases(cursor, self._state.worker_id)
        except psycopg.Error as error:
            if not trouble_of(error).spares_rest:
                raise
            logger.error("worker=%s cannot cut leases: %s", self._state.name, str(error).strip())

    def _tell_where(self) -> None:
        """Answer people who ask where a job is; an error in this costs us no lease."""
        try:
            with self._connection.cursor() as cursor:
                for job_id, claim in stacks.list_wanted(cursor, self._state.worker_id):
                    attempt = self._state.held.get(job_id)
                    is_ours = attempt is not None and attempt.claim == claim
                    text = stack_of(attempt) if attempt is not None and is_ours else ""
                    stacks.write_stack(cursor, job_id, claim, text)
        except psycopg.Error as error:
            if not trouble_of(error).spares_rest:
                raise
            logger.error("worker=%s cannot tell where: %s", self._state.name, str(error).strip())

    def _obey(self, renewal: workers.Renewal) -> None:
        """Do what somebody asked for in the worker's row."""
        if renewal.is_quiet != self._state.quiet:
            self._state.quiet = renewal.is_quiet
            said = "quiet   no new jobs" if renewal.is_quiet else "resume  takes jobs again"
            logger.info("%s: asked in the table, worker=%s", said, self._state.name)
            self._on_change()
        if renewal.is_stopping:
            self._on_stop()

    def _begin_anew(self) -> None:
        logger.error(
            "worker=%s lost its lease: its jobs may run elsewhere; it enters anew",
            self._state.name,
        )
        self._on_danger()
        asked_at = time.monotonic()
        self._register(self._connection)
        self._note_renewed(asked_at)
        self._on_change()

    def _note_renewed(self, asked_at: float) -> None:
        self.renewed_at = asked_at
        self._state.danger_at = asked_at + self._state.options.lease * 2 / 3
        self._is_endangered = False

    def check_danger(self) -> None:
        """Interrupt our jobs when two renewals were missed; safe from any thread.

        The main thread asks as well, because a renewal may wait for its answer meanwhile.
        """
        now = time.monotonic()
        if now >= self._state.danger_at and not self._is_endangered:
            self._is_endangered = True
            silent = now - self.renewed_at
            logger.error("worker=%s no lease for %.0f s: ends its jobs", self._state.name, silent)
            self._on_danger()

    def rescue(self, connection: OwnConnection) -> bool:
        """Rescue what is lost; return False if the lease is to be renewed before the rest.

        An error in this costs us no lease.
        """
        try:
            if not self._rescue_jobs(connection):
                return False
            with connection.cursor() as cursor:
                lost = workers.end_lost_workers(cursor)
            for worker_id, name in lost:
                logger.warning("worker #%s %s is lost: its lease ran out", worker_id, name)
        except psycopg.Error as error:
            if not trouble_of(error).spares_rest:
                raise
            reason = str(error).strip()
            logger.error("worker=%s cannot rescue: %s", self._state.name, reason)
        return True

    def _rescue_jobs(self, connection: OwnConnection) -> bool:
        until = time.monotonic() + self._state.options.lease / 3

        def is_over() -> bool:
            return time.monotonic() > until

        # Each statement takes a cursor of its own, and with it a deadline of its own.
        def rescue(size: int, passed_over: list[int]) -> list[jobs.Rescued]:
            if is_over():
                return []
            with connection.cursor() as cursor:
                return jobs.rescue_jobs(
                    cursor,
                    max_jobs=size,
                    default_max_losses=self._state.options.max_losses,
                    passed_over=passed_over,
                )

        def find(passed_over: list[int]) -> list[int]:
            with connection.cursor() as cursor:
                return jobs.find_lost_job(cursor, passed_over=passed_over)

        def note(job_id: int, error: psycopg.Error) -> None:
            if trouble_of(error) is Trouble.REFUSED:
                self._passed_over[job_id] = time.monotonic() + REFUSED_SECONDS
            self._note_refused(connection, job_id, str(error).strip())

        pages = in_pages(
            connection,
            rescue,
            size=RESCUE_BATCH,
            find=find,
            on_refused=note,
            known=self._left_alone(),
        )
        for rescued in pages:
            self._on_rescued(rescued)
            for job in rescued:
                log_rescue(job, self._state.name)
        return not is_over()

    def _left_alone(self) -> list[int]:
        """Return the jobs that the server has just refused to rescue."""
        now = time.monotonic()
        # A copy in one step: at the end of a worker two threads may rescue.
        known = list(self._passed_over.items())
        self._passed_over = {job_id: until for job_id, until in known if until > now}
        return list(self._passed_over)

    def _note_refused(self, connection: OwnConnection, job_id: int, reason: str) -> None:
        if not self._told.is_new(job_id):
            return
        logger.error("job=%s cannot be rescued, it is passed over: %s", job_id, reason)
        try:
            with connection.cursor() as cursor:
                jobs.send_note(cursor, job_id, notes.refused(notes.NOT_RESCUED, reason))
        except psycopg.Error as error:
            if not trouble_of(error).spares_rest:
                raise

    def _end(self) -> None:
        try:
            with self._connection.cursor() as cursor:
                workers.end_worker(cursor, self._state.worker_id)
        except psycopg.Error as error:
            logger.warning(
                "worker=%s could not say goodbye: %s", self._state.name, str(error).strip()
            )
        self._connection.close()
