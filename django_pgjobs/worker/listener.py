"""The listener: notifications become wake-ups.

A LISTEN connection can die without a sign. TCP keepalives notice a dead peer; for everything
else the pump says when it found a job by polling that a notification should have announced,
and then the connection is asked for a sign of life. After every reconnect the pump looks once,
because what was sent in between is gone.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import psycopg

from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.notifications import (
    CANCEL_CHANNEL,
    CONTROL_CHANNEL,
    WORKERS,
    check_alive,
    listen,
)
from django_pgjobs.worker.pump import Pump
from django_pgjobs.worker.role import Role
from django_pgjobs.worker.safe_log import get_logger

logger = get_logger(__name__)

# How long to wait for notifications before looking whether one was missed; costs no query.
PATIENCE_SECONDS = 10.0
MAX_BACKOFF_SECONDS = 5.0


class Listener(Role):
    """Waits for NOTIFY on a connection of its own."""

    name = "listener"

    def __init__(
        self,
        connection: OwnConnection,
        pump: Pump,
        on_crash: Callable[[str], None],
        *,
        on_orders: Callable[[], None],
    ) -> None:
        super().__init__(on_crash)
        self._connection = connection
        self._pump = pump
        self._on_orders = on_orders
        self._failures = 0

    def stop(self) -> None:
        super().stop()
        self._connection.cut()

    def run(self) -> None:
        while not self.stop_requested:
            try:
                self._listen()
            except psycopg.Error as error:
                if self.stop_requested:
                    break
                self._pump.can_listen = False
                self._connection.close()
                self._failures += 1
                logger.warning("listening failed, polling meanwhile: %s", str(error).strip())
                pause = min(0.2 * 2 ** min(self._failures, 10), MAX_BACKOFF_SECONDS)
                self.wait(pause * random.uniform(0.5, 1))
        self._connection.close()

    def _listen(self) -> None:
        connection = self._connection.open()
        if not self._connection.is_direct:
            logger.warning(
                "the database is behind a pooler, where LISTEN does not work: polling instead. "
                "Set PGJOBS['WORKER_DATABASE'] to an alias with a direct connection."
            )
            self.stop_requested = True
            return
        with self._connection.deadline():
            listen(connection)
        self._failures = 0
        self._pump.can_listen = True
        self._pump.look_now()
        self._pump.look_for_cancelled()
        while not self.stop_requested:
            for notification in connection.notifies(timeout=PATIENCE_SECONDS):
                if notification.channel == CANCEL_CHANNEL:
                    self._pump.look_for_cancelled()
                elif notification.channel == CONTROL_CHANNEL:
                    self._note_control(notification.payload)
                else:
                    self._pump.notified(notification.payload)
            if self._pump.missed_notification:
                self._pump.missed_notification = False
                with self._connection.deadline():
                    check_alive(connection)

    def _note_control(self, subject: str) -> None:
        if subject == WORKERS:
            self._on_orders()
        else:
            self._pump.claim_again()
