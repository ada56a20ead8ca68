"""The upkeep: finds out where jobs are, and does all that is due now and then.

One loop, one connection, on which it also listens. It has a list of duties, each with its own due
time. What is due travels in one round trip; a duty that needs a transaction of its own before the
others *travels alone*, before them. Like those of the pump, its turns change nothing before they
are answered, so what a lost connection has swallowed is simply still due.

A LISTEN connection can die without a sign. TCP keepalives notice a dead peer, and each look
is a sign of life. After every reconnect there is a look, because what was sent in between is gone.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable

import psycopg

from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.errors import Trouble, trouble_of
from django_pgjobs.queries.notifications import (
    BATCHES,
    CANCEL_CHANNEL,
    JOBS_CHANNEL,
    WATCH_CHANNEL,
    WORKERS,
    read_notifications,
)
from django_pgjobs.worker.backoff import Backoff
from django_pgjobs.worker.claiming.errands import Errands
from django_pgjobs.worker.claiming.pump import Pump
from django_pgjobs.worker.role import Role
from django_pgjobs.worker.safe_log import get_logger
from django_pgjobs.worker.state import WorkerState
from django_pgjobs.worker.turns.sending import Sender
from django_pgjobs.worker.turns.turn import Turn
from django_pgjobs.worker.upkeep.duties import Duties
from django_pgjobs.worker.upkeep.duty import Duty

logger = get_logger(__name__)

# After a turn in which something was refused, which may be due at once again.
REFUSED_SECONDS = 0.2
# How long after a notification the upkeep leaves the interpreter's lock to the pump.
HAND_OVER_SECONDS = 0.005
# A worker that has jobs looks at its duties at least so often.
BEAT_SECONDS = 1.0
# How many queues the pump is told of at a time. Anybody may send any names, and each is a place to
# claim from; where there are more of them the look knows which have jobs.
MOST_QUEUES = 50


class Upkeep(Role):
    """Does its duties when they are due, and hears notifications."""

    name = "upkeep"

    def __init__(
        self,
        state: WorkerState,
        connection: OwnConnection,
        pump: Pump,
        errands: Errands,
        duties: Duties,
        *,
        on_orders: Callable[[], None],
        on_crash: Callable[[str], None],
    ) -> None:
        super().__init__(on_crash)
        self._state = state
        self._connection = connection
        self._pump = pump
        self._errands = errands
        self._duties = duties
        self._on_orders = on_orders
        self._sender = Sender(state.name)
        self._backoff = Backoff(state.name, "upkeep")
        # Notifications that are not dealt with yet.
        self._heard: deque[psycopg.Notify] = deque()
        # Was it logged that there is a pooler?
        self._is_pooled = False

    def wake(self) -> None:
        self._errands.wake()

    def stop(self) -> None:
        super().stop()
        self._connection.cut()

    def look(self) -> None:
        """Look for jobs now; safe from any thread."""
        self._errands.look_by(0.0)
        self.wake()

    def recall(self) -> None:
        """Let the pump give back what nothing has begun, and look anew; safe from any thread."""
        self._pump.recall()
        self.look()

    # The loop

    def run(self) -> None:
        self._errands.open()
        try:
            while not self.stop_requested:
                try:
                    self._do_what_is_due()
                except psycopg.Error as error:
                    if not self.stop_requested:
                        self._back_off(error)
        finally:
            self._connection.close()
            self._errands.close()

    def _do_what_is_due(self) -> None:
        """Do what is due, or sleep until something is."""
        self._connect()
        self._hear()
        now = time.monotonic()
        self._duties.watch.observe(now)
        due = [duty for duty in self._duties if duty.due_at(now) <= now]
        sent = []
        for duty in due:
            if duty.travels_alone:
                with duty.lock as is_held:
                    if is_held:
                        sent.append(self._send(duty))
        together = [duty for duty in due if not duty.travels_alone]
        if together:
            sent.append(self._send(*together))
        self._backoff.note_success()
        if any(turn.was_apart for turn in sent):
            self.wait(REFUSED_SECONDS)
        elif not due:
            self.wait(self._seconds_to_sleep())

    def _send(self, *duties: Duty) -> Turn:
        turn = Turn(self._state.worker_id)
        for duty in duties:
            duty.plan(turn)
        self._sender.send(turn, self._connection)
        return turn

    def _seconds_to_sleep(self) -> float | None:
        now = time.monotonic()
        due = min(duty.due_at(now) for duty in self._duties)
        if self._state.held or not self._pump.outlook.is_idle:
            due = min(due, now + BEAT_SECONDS)
        return None if due == math.inf else max(0.0, due - now)

    def _sleep(self, timeout: float | None) -> None:
        listens = self._connection.listens
        self._errands.wait(timeout, self._connection.open().fileno() if listens else None)

    # The connection

    def _connect(self) -> None:
        own, listens = self._connection, self._state.options.listen
        # It may have been opened anew in the middle of a turn, to go on with the rest of that.
        if own.is_open and own.listens == (listens and own.is_direct):
            return
        own.open()
        if listens:
            if own.is_direct:
                self._heard.clear()
                own.listen(self._heard.append)
            elif not self._is_pooled:
                self._is_pooled = True
                logger.warning(
                    "the database is behind a pooler, where LISTEN does not work: polling instead. "
                    "Set PGJOBS['WORKER_DATABASE'] to an alias with a direct connection."
                )
        for duty in self._duties:
            duty.begin_anew()

    def _back_off(self, error: psycopg.Error) -> None:
        until = time.monotonic() + self._backoff.note_failure(error)
        if trouble_of(error) is not Trouble.CROSSED:
            self._connection.close()
        # The pump may wake it meanwhile.
        while not self.stop_requested and (left := until - time.monotonic()) > 0:
            self.wait(left)

    # What others say

    def _hear(self) -> None:
        if self._connection.listens:
            read_notifications(self._connection.open())
        queue_names = set()
        while self._heard:
            notification = self._heard.popleft()
            if notification.channel == JOBS_CHANNEL:
                queue_names.add(notification.payload)
            else:
                self._hear_order(notification)
        if queue_names:
            self._duties.look.note_news()
            if len(queue_names) + len(self._pump.outlook.offers) <= MOST_QUEUES:
                for queue_name in queue_names:
                    self._pump.offer(queue_name)
            # The pump needs the interpreter's lock to claim; nothing here is as urgent.
            self.wait(HAND_OVER_SECONDS)
        look_time = self._errands.take_look_time()
        if look_time is not None:
            self._duties.look.look_by(look_time)

    def _hear_order(self, notification: psycopg.Notify) -> None:
        if notification.channel == CANCEL_CHANNEL:
            self._duties.cancels.note_request()
        elif notification.channel == WATCH_CHANNEL:
            self._duties.watch.note_left()
        elif notification.payload == WORKERS:
            self._on_orders()
        elif notification.payload == BATCHES:
            self._duties.batches.note_news()
        else:
            self._pump.recall()
            self._duties.look.note_news()
