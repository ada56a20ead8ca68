"""Claims and turns that are planned and never sent."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from unittest import mock

from django_pgjobs.queries.claims import ClaimedRow, Group, Lane, Ready
from django_pgjobs.queries.cursor import statement
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.claimer import Claimer
from django_pgjobs.worker.completer import Completer
from django_pgjobs.worker.event_loop import AsyncSlots
from django_pgjobs.worker.executor import Slots
from django_pgjobs.worker.look import Look
from django_pgjobs.worker.outcome import Kind, Outcome
from django_pgjobs.worker.pump import Pump
from django_pgjobs.worker.state import WorkerState
from django_pgjobs.worker.turn import Turn
from tests.worker.keyed import KEYED
from tests.worker.support import make_attempt_of, make_options

NAMES = (
    "hold_keyed_claim",
    "await_keyed_claim",
    "list_heads",
    "claim_jobs",
    "list_ready_lanes",
    "wake_for_keys",
    "finish_successful",
    "release_unheld_jobs",
)


def plain(*lanes: Lane) -> list[Ready]:
    """Return what a scan lists of lanes without keys."""
    return [Ready(lane.backend, lane.queue_name, None, 0, 0, False) for lane in lanes]


def keyed(*groups: Group, **columns: Any) -> list[Ready]:
    """Return what a scan lists of jobs with keys."""
    given = {"boost": 0, "is_limited": False} | columns
    return [Ready(*group, lowest=group.urgency, **given) for group in groups]


def claimed(
    claimer: Claimer,
    rows: list[ClaimedRow],
    *,
    wanted: int,
    from_heads: bool,
    held: bool = True,
    seconds: float = 0.0,
) -> None:
    """Let the claimer plan a claim that comes back with *rows*."""
    claimer.note_claimed(
        rows, claimer.plan(wanted, from_heads=from_heads), held=held, seconds=seconds
    )


def ignore(*_: Any) -> None:
    """Do nothing; for callbacks that nobody calls here."""


class Claiming:
    """A claimer with slots that were never started, so that the test sets what they do."""

    def __init__(self, **options: Any) -> None:
        self.options = make_options(**({"concurrency": 4} | options))
        self.state = WorkerState(self.options, "test:1")
        callbacks: dict[str, Callable[..., None]] = {
            "on_start": ignore,
            "on_done": ignore,
            "on_empty": ignore,
            "on_crash": ignore,
        }
        self.slots = Slots(self.options, **callbacks)
        self.async_slots = AsyncSlots(self.options, **callbacks)
        self.claimer = Claimer(self.state, self.slots, self.async_slots)

    def run(self, count: int, *, seconds_ago: float = 0.0) -> None:
        """Let that many slots have begun a job *seconds_ago*."""
        for number in range(count):
            attempt = make_attempt_of(number + 1)
            attempt.started_at = time.monotonic() - seconds_ago
            self.slots.running.add(attempt)

    def buffer(self, count: int) -> list[Attempt]:
        """Let that many claimed jobs wait for a slot."""
        waiting = [make_attempt_of(100 + number) for number in range(count)]
        self.slots.buffer.extend(waiting)
        return waiting


Make = Callable[..., Claiming]


class Planning:
    """A pump without a connection, whose turns are planned and never sent."""

    def __init__(self, **options: Any) -> None:
        self.claiming = Claiming(**options)
        state = self.claiming.state
        self.completer = Completer(state, on_stored=ignore)
        connection: Any = None
        self.look = Look(
            state,
            self.claiming.claimer,
            connection,
            detailed_paths=[],
            wants_details=lambda: False,
        )
        self.pump = Pump(
            state,
            connection,
            self.claiming.claimer,
            self.completer,
            dispatch=ignore,
            take_back=lambda deadline: [],
            on_interrupted=ignore,
            on_limit=ignore,
            on_crash=ignore,
            look=self.look,
        )

    def know_of_keys(self) -> None:
        """Let the worker know of jobs with keys, and of no others."""
        self.claiming.claimer.note_lanes(keyed(KEYED))

    def finish(self, job_id: int, *, stored: bool = False, **columns: Any) -> None:
        """Let the outcome of a job wait to be written, or to be noted if it is *stored*."""
        outcome = Outcome(Kind.DONE, ended_at=time.monotonic() - 1, stored=stored)
        self.completer.add(make_attempt_of(job_id, **columns), outcome)

    def plan(self) -> dict[str, Any]:
        """Return the statements of the next turn, in order: their parameters by name."""
        turn = Turn(1)
        self.pump._turn = turn
        self.pump._plan(turn, time.monotonic())
        seen: dict[str, Any] = {}
        by_text = {statement(name): name for name in NAMES}

        class Cursor:
            rowcount = 0
            adapters = mock.Mock()

            def execute(self, query: Any, params: Any = None, /) -> None:
                seen[by_text.get(query, "other")] = params

            def fetchall(self) -> list[Any]:
                return []

        for send in turn.sends:
            send(Cursor())
        return seen

    def answer(self) -> None:
        """Let the turn that was planned come back, with nothing found."""
        turn = self.pump._turn
        turn.holds = turn.walks
        self.pump._note_answers(turn)
