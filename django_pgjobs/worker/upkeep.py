"""The upkeep: finds out where jobs are, and does all that is due now and then.

One loop, one connection, on which it also listens. It has a list of duties, each with its own due
time. What is due travels in one round trip; a duty that needs a transaction of its own before the
others *travels alone*, before them. Like those of the pump, its turns change nothing before they
are answered, so what a lost connection has swallowed is simply still due.

A LISTEN connection can die without a sign. TCP keepalives notice a dead peer, and each look
is a sign of life. After every reconnect there is a look, because what was sent in between is gone.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections import deque
from collections.abc import Callable, Sequence

import psycopg

from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.errors import Trouble, trouble_of
from django_pgjobs.queries.notifications import (
    CANCEL_CHANNEL,
    CONTROL_CHANNEL,
    WORKERS,
    listen,
    read_notifications,
)
from django_pgjobs.worker.duties import Duty
from django_pgjobs.worker.errands import Errands
from django_pgjobs.worker.pump import Pump
from django_pgjobs.worker.role import Role
from django_pgjobs.worker.safe_log import get_logger
from django_pgjobs.worker.sending import Sender
from django_pgjobs.worker.state import WorkerState
from django_pgjobs.worker.turn import Turn

logger = get_logger(__name__)

MAX_BACKOFF_SECONDS = 5.0
CROSSED_SECONDS = 0.005
# A worker that has jobs looks at its duties at least so often.
BEAT_SECONDS = 1.0


class Upkeep(Role):
    """Does the duties, when they are due and when a notification asks for it."""

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
        self._sender = Sender(connection, state.name)
        self._notifications: deque[psycopg.Notify] = deque()
        self._failures = 0

    def wake(self) -> None:
        self._errands.wake()

    def stop(self) -> None:
        super().stop()
        self._connection.cut()
