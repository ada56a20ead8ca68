"""The announcer: sends `task_finished` once an outcome is stored.

Receivers are the project's code, so they run in a thread of their own: not in the pump, which
they could block, and not in the slot, which has gone on to the next job by then.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

from django_pgjobs import client
from django_pgjobs.results import result_of_row
from django_pgjobs.signals import has_receivers, task_finished
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.housekeeping import clean_connections, close_connections
from django_pgjobs.worker.outcome import Kind, Outcome
from django_pgjobs.worker.role import Role
from django_pgjobs.worker.run import send_to_receivers

logger = logging.getLogger(__name__)


class Announcer(Role):
    """Sends task_finished for finished jobs, as long as anybody listens."""

    name = "announcer"

    def __init__(self, on_crash: Any) -> None:
        super().__init__(on_crash)
        self._finished: deque[tuple[Attempt, Outcome]] = deque()

    def add(self, attempt: Attempt, outcome: Outcome) -> None:
        """Announce a stored outcome, if it is final and anybody wants to know."""
        failed = outcome.kind is not Kind.DONE
        if outcome.status is not None and has_receivers(task_finished, failed=failed):
            self._finished.append((attempt, outcome))
            self.wake()

    def run(self) -> None:
        while True:
            while self._finished:
                self._announce(*self._finished.popleft())
            if self.stop_requested:
                break
            self.wait(None)
        close_connections()

    def _announce(self, attempt: Attempt, outcome: Outcome) -> None:
        if attempt.task is None and outcome.kind is Kind.DONE:
            return
        try:
            row = client.get_row(attempt.id, backend=attempt.row.backend)
            if row is None:
                return
            result = result_of_row(row, attempt.row.backend)
            if outcome.exception is None:
                send_to_receivers(task_finished, attempt, result)
                return
            # Receivers such as Django's own log what sys.exc_info() says.
            try:
                raise outcome.exception
            except BaseException:
                send_to_receivers(task_finished, attempt, result)
        except Exception:
            logger.exception("job=%s task_finished could not be sent", attempt.id)
        finally:
            clean_connections(attempt.id)
