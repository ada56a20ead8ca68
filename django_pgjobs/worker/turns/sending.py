"""Sending a turn: as one transaction, or each part in one of its own.

A turn that waits too long for a lock, or in which the server refuses something, is rolled back as a
whole. Then its parts are sent again, one by one, and each part works around the row to blame, so
that the others do not wait for it.
"""

from __future__ import annotations

import logging
import time

import psycopg

from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.errors import Trouble, trouble_of
from django_pgjobs.worker.safe_log import get_logger
from django_pgjobs.worker.turns.careful import MAX_CROSSED
from django_pgjobs.worker.turns.turn import Part, Turn

logger = get_logger(__name__)


class Sender:
    """Sends the turns of one worker, and hands on the answers."""

    def __init__(self, worker_name: str) -> None:
        self._worker_name = worker_name
        self._crossed = 0
        # Refusals that were logged since the last turn without one.
        self._complaints: set[str] = set()

    def send(self, turn: Turn, connection: OwnConnection) -> None:
        """Send a turn; raise psycopg.Error if nothing of it worked, or the connection is lost."""
        began = time.monotonic()
        try:
            answers = connection.round_trip(turn.sends)
        except psycopg.Error as error:
            self._crossed += trouble_of(error) is Trouble.CROSSED
            if not self._spares_rest(error):
                raise
            self._complain("a turn", error)
            self._send_apart(turn, connection)
        else:
            turn.elapsed = time.monotonic() - began
            turn.receive(answers)
            self._complaints.clear()
        finally:
            # They refer to the turn. In a circle with it, all that they hold, the jobs of a batch,
            # would wait for the garbage collector.
            turn.parts = []
        self._crossed = 0

    def _send_apart(self, turn: Turn, connection: OwnConnection) -> None:
        turn.was_apart = True
        unsolved: list[psycopg.Error] = []
        for part in turn.parts:
            try:
                self._send_part(part, connection)
            except psycopg.Error as error:
                if not self._spares_rest(error):
                    raise
                self._complain("a part of a turn", error)
                unsolved.append(error)
        if len(unsolved) == len(turn.parts):
            raise unsolved[0]

    def _send_part(self, part: Part, connection: OwnConnection) -> None:
        try:
            answers = connection.round_trip(part.sends)
        except psycopg.Error as error:
            if not self._spares_rest(error):
                raise
            part.on_refused(error)
        else:
            part.receive(answers)

    def _spares_rest(self, error: psycopg.Error) -> bool:
        trouble = trouble_of(error)
        return trouble.spares_rest or (trouble is Trouble.CROSSED and self._crossed >= MAX_CROSSED)

    def _complain(self, what: str, error: psycopg.Error) -> None:
        reason = str(error).strip()
        level = logging.DEBUG if reason in self._complaints else logging.WARNING
        self._complaints.add(reason)
        logger.log(level, "worker=%s %s was refused: %s", self._worker_name, what, reason)
