"""One worker process: builds the roles, waits for signals, and stops in good order.

Stopping: claim nothing more, give unstarted jobs back, wait for the running ones up to the
shutdown timeout, interrupt and give back what still runs, write the last outcomes, say
goodbye. The lease is kept until the end, so nobody takes jobs that are just being finished.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence

from django_pgjobs.conf import get_conf
from django_pgjobs.control import rate_limits
from django_pgjobs.exceptions import JobReleased
from django_pgjobs.queries import workers
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.cursor import name_schema
from django_pgjobs.queries.jobs import Rescued
from django_pgjobs.values.moments import logged_duration
from django_pgjobs.values.words import counted
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.claiming.completer import Completer
from django_pgjobs.worker.claiming.demand import Demand
from django_pgjobs.worker.claiming.filling import split
from django_pgjobs.worker.process.building import (
    build_connections,
    build_health,
    build_pump_and_upkeep,
    build_state,
)
from django_pgjobs.worker.process.ending import Ending
from django_pgjobs.worker.process.exit_status import EXIT_INTERRUPTED, EXIT_QUIT, EXIT_RESTART
from django_pgjobs.worker.process.farewell import Farewell
from django_pgjobs.worker.process.leases import LeaseKeeper
from django_pgjobs.worker.process.limits import ProcessLimits
from django_pgjobs.worker.process.overseer import Overseer
from django_pgjobs.worker.process.parent import Parent
from django_pgjobs.worker.process.pruner import Pruner
from django_pgjobs.worker.process.recorder import Recorder
from django_pgjobs.worker.process.registration import registration
from django_pgjobs.worker.process.scheduler import Scheduler
from django_pgjobs.worker.process.signal_pipe import SignalPipe
from django_pgjobs.worker.process.vitals import Vitals, marks_of
from django_pgjobs.worker.role import Role
from django_pgjobs.worker.running.announcer import Announcer
from django_pgjobs.worker.running.async_slots import AsyncSlots
from django_pgjobs.worker.running.calling import failure, settle, timeout_of
from django_pgjobs.worker.running.capacity import SlotCallbacks
from django_pgjobs.worker.running.job_log import log_outcome, log_start, log_stop
from django_pgjobs.worker.running.outcome import AT_SHUTDOWN, Outcome, left_running
from django_pgjobs.worker.running.slots import Slots
from django_pgjobs.worker.running.stacks import stack_of
from django_pgjobs.worker.running.tally import Tally
from django_pgjobs.worker.running.watchdog import Watchdog
from django_pgjobs.worker.safe_log import get_logger, oldest_call
from django_pgjobs.worker.state import Options

logger = get_logger("django_pgjobs.worker")

# How long interrupted jobs and the last outcomes have at the end of a shutdown.
LAST_SECONDS = 3.0
# The steps of a shutdown take at most this many times as long, if nothing answers.
LAST_STEPS = 5.5
END = (signal.SIGTERM, signal.SIGINT)


class WorkerProcess:
    """One worker process, from registration to goodbye."""

    def __init__(
        self, options: Options, pipe: SignalPipe, overseer: Overseer | None = None
    ) -> None:
        self._options = options
        self._pipe = pipe
        self._overseer = overseer or Overseer()
        self._ending = Ending(
            shutdown_timeout=options.shutdown_timeout,
            is_child=isinstance(overseer, Parent),
            on_asked=pipe.wake,
        )
        self._is_told_to_end = False
        self._limits = ProcessLimits(options)
        self._host = socket.gethostname()
        self.state = build_state(options, self._host)
        self._connections = build_connections(options)
        self._build_slots()
        self._build_roles()
        self._build_watchers()

    def _build_slots(self) -> None:
        callbacks = SlotCallbacks(self._begin, self._done, self._wants_more, self._crashed)
        self.slots = Slots(self._options, callbacks)
        self.async_slots = AsyncSlots(self._options, callbacks)

    def _build_roles(self) -> None:
        options, state, crash = self._options, self.state, self._crashed
        own = self._connections
        self.announcer = Announcer(crash, on_caught_up=self._wants_more)
        self.tally = Tally()
        self.completer = Completer(
            state, self.tally, self.announcer.add, on_doubt=self.announcer.add_doubtful
        )
        self._farewell = Farewell(state, self.completer)
        self.watchdog = Watchdog(
            [*own.values(), rate_limits.get_session().connection],
            grace=options.timeout_grace,
            is_running=self._is_running,
            on_stuck=self._stuck,
            on_look=self.async_slots.look,
            on_crash=crash,
        )
        self.pump, self.upkeep = build_pump_and_upkeep(
            state,
            own,
            Demand(state, self.slots, self.async_slots, lambda: self.announcer.is_behind),
            self.completer,
            dispatch=self._dispatch,
            take_back=self._take_back,
            on_interrupted=self.watchdog.expect_end,
            on_limit=self._ending.reach_limit,
            on_drained=self._drained,
            on_orders=lambda: self.leases.wake(),
            on_crash=crash,
        )
        self.leases = LeaseKeeper(
            state,
            own["lease"],
            register=self._register,
            on_rescued=self._note_rescued,
            on_danger=self.pump.give_up_all,
            on_change=self.upkeep.recall,
            on_stop=self._ending.dismiss,
            on_crash=crash,
        )

    def _build_watchers(self) -> None:
        own = self._connections
        self.pruner = Pruner(
            self._options,
            own["pruner"],
            is_leader=lambda: self.leases.is_leader,
            on_pruned=self.upkeep.look,
            worker=self.state.name,
            on_crash=self._crashed,
        )
        self.scheduler = Scheduler(self.state, on_crash=self._crashed)
        self.recorder = Recorder(
            self.tally,
            own["recorder"],
            retention=get_conf().STATISTICS_RETENTION_SECONDS,
            is_leader=lambda: self.leases.is_leader,
            on_crash=self._crashed,
        )
        self.vitals = Vitals(
            marks_of([self.pump, self.upkeep, self.leases, self.watchdog], own)
            | marks_of([self.pruner, self.scheduler, self.recorder], own)
            | {"the main thread": lambda: self._pipe.moved_at, "a log handler": oldest_call},
            farewell=self._farewell,
            tell_alive=self._overseer.tell_alive,
            on_crash=self._crashed,
        )
        parts = self.pump, self.leases, self.vitals, self.slots, self.async_slots
        self.health = build_health(self.state, own, *parts, self.tally.totals, self._crashed)

    # The life of the process

    def run(self) -> int:
        """Run until a signal, a limit or a crash; return the exit code.

        Raise psycopg.OperationalError if the database cannot be reached at the start.
        """
        self._register(self._connections["lease"])
        if self._options.schedules and self._options.drain:
            self.scheduler.fire_all()
        for role in self._roles():
            role.start()
        logger.info("ready   worker=%s", self.state.name)
        self._overseer.tell_ready()
        while not self._ending.reason:
            for number in self._pipe.wait(self._limits.seconds_to_look()):
                self._handle(number)
            self.leases.check_danger()
            self._check_own_limits()
        self._shut_down()
        for role in (self.vitals, *self.health):
            role.stop()
            role.join(LAST_SECONDS)
        return self._ending.code

    def _roles(self) -> list[Role]:
        roles: list[Role] = [self.leases, self.watchdog, self.announcer, self.pump, self.pruner]
        if self._options.schedules and not self._options.drain:
            roles.append(self.scheduler)
        return [self.vitals, *self.health, *roles, self.recorder, self.upkeep]

    def _register(self, connection: OwnConnection) -> None:
        row = registration(self.state, self._host)
        with connection.cursor() as cursor:
            self.state.worker_id = workers.register_worker(cursor, row)
        name_schema(connection.schema)

    def _handle(self, number: int) -> None:
        if number == signal.SIGQUIT or (number in END and self._is_told_to_end):
            self._leave_at_once(number)
        elif number in END:
            self._is_told_to_end = True
            if self._ending.reason:
                logger.info("stop    once more to give the jobs back at once")
            self.ask_to_stop(signal.Signals(number).name)
        elif number == signal.SIGHUP:
            self._ending.hang_up()
        elif number == signal.SIGUSR1:
            logger.info("quiet   SIGUSR1: no new jobs")
            self.state.stopping = True
            # It leaves the watch, and takes back that it listens.
            self.upkeep.wake()
        elif number == signal.SIGUSR2:
            faulthandler.dump_traceback(sys.stderr)

    def ask_to_stop(self, reason: str) -> None:
        """Let the worker stop in good order; safe from any thread."""
        self._ending.ask(reason)

    def ask_to_reload(self, reason: str) -> None:
        """Let the worker stop soon, to be started again; safe from any thread."""
        self._ending.reload(reason)

    def _drained(self, reason: str, began: float) -> None:
        """Stop when old jobs are deleted, too: perhaps no other worker ever prunes.

        The looks that say so *began* behind that, because it may have let jobs go.
        """
        if began > self.pruner.pruned_at:
            self._ending.reach_limit(reason)
        else:
            self.pruner.ask()

    def _crashed(self, role: str) -> None:
        self._farewell.loses_jobs = True
        self._ending.crash(role)

    def _check_own_limits(self) -> None:
        if self._limits.is_time_over():
            self._ending.reach_limit(f"{self._options.max_time:g} s are over")
        used = self._limits.excessive_memory()
        if used is not None:
            self._farewell.loses_jobs = True
            self._ending.reach_limit(f"{used} MiB of memory are in use")

    def _note_rescued(self, rescued: Sequence[Rescued]) -> None:
        self.tally.note_rescued(rescued)
        if rescued:
            # No notification tells of them.
            self.upkeep.look()

    # What the slots and the watchdog say

    def _begin(self, attempt: Attempt) -> None:
        log_start(attempt, self.state.name)
        timeout = timeout_of(attempt)
        if timeout is not None:
            self.watchdog.watch(attempt, timeout)

    def _wants_more(self) -> None:
        # Nothing else would wake the pump while the running jobs go on.
        self.pump.wake()

    def _done(self, attempt: Attempt, outcome: Outcome) -> bool:
        """Take over what an attempt came to; return False if it has ended before."""
        outcome = self._farewell.judge(outcome)
        # Before it is logged, because that may take for ever.
        is_first = self.pump.add_outcome(attempt, outcome)
        if is_first:
            log_outcome(attempt, outcome, self.state.name)
        return is_first

    def _dispatch(self, attempts: list[Attempt]) -> None:
        attempts = split(attempts, self._done, on_next=self.pump.note_move)
        for_loop = [attempt for attempt in attempts if attempt.is_async]
        if for_loop:
            self.async_slots.submit(for_loop)
            attempts = [attempt for attempt in attempts if not attempt.is_async]
        if attempts:
            self.slots.submit(attempts)

    def _take_back(self, claimed_before: float | None) -> list[Attempt]:
        taken = self.slots.buffer.take_back(claimed_before)
        return taken + self.async_slots.buffer.take_back(claimed_before)

    def _running(self) -> list[Attempt]:
        return [*list(self.slots.running), *list(self.async_slots.running)]

    def _is_running(self, attempt: Attempt) -> bool:
        return attempt in self.slots.running or attempt in self.async_slots.running

    def _stuck(self, attempt: Attempt) -> None:
        """Give up the process: an interrupted attempt does not end, or another one prevents it."""
        stuck = self.async_slots.obstacle_of(attempt) if attempt.is_async else attempt
        culprit = stuck or attempt
        where = stack_of(culprit)
        if stuck is not None and not self._end_stuck(stuck):
            # It has ended at this moment, so that what it held up can end, too.
            self.watchdog.expect_end(attempt)
            return
        self._ending.give_up(f"job {attempt.id} is stuck")
        logger.of(culprit).error(
            "task=%s %s: this process is given up, its other jobs go back. It is here:\n%s",
            culprit.row.task_path,
            "does not end" if stuck else "is not reached on the event loop",
            where,
        )

    def _end_stuck(self, attempt: Attempt) -> bool:
        reason = attempt.interrupted_by or JobReleased
        outcome = failure(attempt, reason(), self._options)
        settle(attempt, outcome)
        if outcome.interrupted:
            outcome = left_running(outcome.duration)
        return self._done(attempt, outcome)

    # The end

    def _shut_down(self) -> None:
        is_broken, timeout = self._ending.is_broken, self._ending.timeout
        self.state.stopping = True
        self._overseer.tell_stopping()
        # Every step may wait for ever, even for a line of the log.
        self.vitals.end_within(
            timeout + LAST_STEPS * LAST_SECONDS, self._ending.code or EXIT_RESTART
        )
        log_stop(self._ending.reason, self._running(), timeout)
        self.scheduler.stop()
        # Before it takes back: what a claim under way brings goes back as well.
        self.pump.recall(AT_SHUTDOWN)
        self._farewell.release(self._take_back(None))
        if not self._wait_until_empty(timeout):
            for attempt in self._running():
                attempt.interrupt(JobReleased)
            self._wait_until_empty(LAST_SECONDS)
        self._farewell.release(list(self.state.held.values()))
        for role in (self.pump, self.upkeep, self.pruner, self.watchdog):
            role.stop()
        self.slots.stop()
        self.async_slots.stop()
        # The announcer after the pump, which may have written what is to be announced.
        ended = [role.end(LAST_SECONDS) for role in (self.pump, self.announcer, self.scheduler)]
        self._farewell.take_steps(LAST_SECONDS, self._farewell.give_back_held)
        ended += [self.leases.end(LAST_SECONDS)]
        ended += [self.slots.join(0.5), self.async_slots.join(0.5)]
        if is_broken or self._farewell.loses_jobs:
            # Again, because it may be the role for it that crashed.
            self._farewell.take_steps(LAST_SECONDS, self._farewell.say_goodbye, self.leases.rescue)
        ended += [self.recorder.end(LAST_SECONDS)]
        logger.info(
            "stop    %s finished. %s. Bye.",
            counted(self.state.finished_jobs, "job"),
            logged_duration(self._limits.lived()),
        )
        if not all(ended):
            # A thread that cannot be ended would keep the interpreter from exiting cleanly.
            logging.shutdown()
            os._exit(self._ending.code)

    def _wait_until_empty(self, timeout: float) -> bool:
        """Wait until nothing is held; return whether that is so."""
        deadline = time.monotonic() + timeout
        while self.state.held:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            for number in self._pipe.wait(min(left, 0.05)):
                self._handle(number)
            self.leases.check_danger()
        return True

    def _leave_at_once(self, number: int) -> None:
        """Give everything back and end the process, whatever its threads are doing."""
        self.state.stopping = True
        code = EXIT_QUIT if number == signal.SIGQUIT else EXIT_INTERRUPTED
        held = counted(len(self.state.held), "job")
        self.vitals.end_within(2 * LAST_SECONDS, code)
        # First of all, because the log may take for ever.
        self._farewell.leave_everything(LAST_SECONDS)
        logger.warning("stop    %s: to be given back now: %s", signal.Signals(number).name, held)
        logging.shutdown()
        os._exit(code)
