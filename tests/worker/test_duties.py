"""Duties of the upkeep by themselves: when each is due again, whatever its answer was."""

from __future__ import annotations

import math
import time
from typing import Any
from unittest import mock

import psycopg
import pytest

from django_pgjobs.queries import batches
from django_pgjobs.worker.claiming import errands as errands_module
from django_pgjobs.worker.claiming.errands import Errands
from django_pgjobs.worker.state import WorkerState
from django_pgjobs.worker.turns.refusals import Refusals
from django_pgjobs.worker.turns.turn import Turn
from django_pgjobs.worker.upkeep.batches import Batches
from django_pgjobs.worker.upkeep.duty import Duty
from django_pgjobs.worker.upkeep.freed_keys import FreedKeys
from django_pgjobs.worker.upkeep.progress import Progress
from django_pgjobs.worker.upkeep.unheld import Unheld
from django_pgjobs.worker.upkeep.watch import SILENT_POLLS, SILENT_SECONDS, Watch
from tests.worker.support import NEVER, make_attempt_of, make_options, row_of_job


def plan(duty: Duty) -> tuple[Turn, dict[str, Any]]:
    """Let a duty plan; return the turn and what its first statement is given."""
    turn = Turn(1)
    duty.plan(turn)
    send, *_ = turn.sends
    return turn, getattr(send, "keywords", {})


def is_due(duty: Duty) -> bool:
    """Is it due now?"""
    now = time.monotonic()
    return duty.due_at(now) <= now


# Batches that nobody has counted


def make_batches() -> tuple[Batches, Any]:
    """Return the duty of a worker without jobs, whose look is not due, and its pump."""
    look: Any = mock.Mock(due_at=lambda now: math.inf)
    pump: Any = mock.Mock()
    return Batches(WorkerState(make_options(), "test:1"), pump, look), pump


def test_batches_are_listed_page_by_page_and_then_from_the_first_again() -> None:
    duty, pump = make_batches()
    full = list(range(1, batches.PAGE + 1))
    behind = []
    for ids in (full, [batches.PAGE + 7], full):
        assert is_due(duty)
        turn, given = plan(duty)
        behind.append(given["behind"])
        turn.receive([[(batch_id,) for batch_id in ids]])
        pump.settle.assert_called_with(ids)
        if len(ids) < batches.PAGE:
            assert 0 < duty.due_at(0.0) - time.monotonic() <= 1
            duty.note_news()
    assert behind == [0, batches.PAGE, 0]


def test_a_worker_without_jobs_lists_batches_only_with_its_looks_when_there_are_none() -> None:
    duty, pump = make_batches()
    turn, _ = plan(duty)
    turn.receive([[]])
    assert duty.due_at(0.0) == math.inf
    assert not pump.settle.called


# Keys that have become free


def test_keys_are_told_of_together_and_once() -> None:
    errands = Errands()
    duty = FreedKeys(errands)
    errands.note_ended([row_of_job(1, lane="a"), row_of_job(2, lane="b")])
    assert is_due(duty)
    turn, given = plan(duty)
    assert given["lanes"] == {"a", "b"}
    # Meanwhile.
    errands.note_ended([row_of_job(3, lane="c")])
    turn.receive([[]])
    assert not is_due(duty) and duty.due_at(0.0) < math.inf
    turn, given = plan(duty)
    assert given["lanes"] == {"c"}
    turn.receive([[]])
    assert duty.due_at(0.0) == math.inf


def test_keys_whose_turn_failed_are_told_of_again() -> None:
    errands = Errands()
    duty = FreedKeys(errands)
    errands.note_ended([row_of_job(1, lane="a")])
    plan(duty)
    assert plan(duty)[1]["lanes"] == {"a"}


def test_what_waits_for_an_upkeep_that_cannot_go_on_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The pump goes on meanwhile. What is forgotten, other workers find at their polls."""
    monkeypatch.setattr(errands_module, "MOST_WAITING", 3)
    errands = Errands()
    for number, key in enumerate("abcd"):
        errands.note_ended([row_of_job(1, lane=key)])
        errands.look_by(float(number))
    assert errands.take_freed() == {"b", "c", "d"}
    assert errands.take_look_time() == 1.0


def test_keys_of_turns_that_fail_again_and_again_do_not_add_up() -> None:
    errands = Errands()
    duty = FreedKeys(errands)
    for key in ("a", "b", "c"):
        errands.note_ended([row_of_job(1, lane=key)])
        turn, given = plan(duty)
        assert given["lanes"] == {"a"}
    turn.receive([[]])
    assert plan(duty)[1]["lanes"] == {"b", "c"}


# What tasks report


@pytest.mark.parametrize(
    ("error", "is_kept"),
    [(psycopg.errors.CheckViolation("no"), False), (psycopg.errors.LockNotAvailable("no"), True)],
)
def test_progress_that_could_not_be_written_is_tried_again_if_that_may_help(
    error: psycopg.Error, is_kept: bool
) -> None:
    """A second later, because what is locked stays so for a while."""
    own: Any = mock.Mock(round_trip=mock.Mock(side_effect=error))
    state = WorkerState(make_options(), "test:1")
    attempt = state.held[1] = make_attempt_of(1)
    attempt.progress = '{"done": 1}'
    duty = Progress(state, own)
    assert is_due(duty)
    turn, _ = plan(duty)
    turn.parts[0].on_refused(error)
    assert not is_due(duty)
    assert (duty.due_at(0.0) < math.inf) is is_kept


# Jobs that the table says we run


def test_a_worker_that_ends_gives_nothing_back_that_it_may_have_left_to_the_rescue() -> None:
    """But what a claim without an answer has taken, which nobody else knows of."""
    state = WorkerState(make_options(lease=60.0), "test:1")
    outlook: Any = mock.Mock(claim_lost_at=-math.inf)
    own: Any = None
    duty = Unheld(state, outlook, own, Refusals())
    assert duty.due_at(0.0) < math.inf
    state.stopping = True
    assert duty.due_at(0.0) == math.inf
    outlook.claim_lost_at = time.monotonic()
    assert is_due(duty)


def test_what_the_server_refused_to_give_back_is_left_alone_for_a_while() -> None:
    state = WorkerState(make_options(), "test:1", held={1: make_attempt_of(1)}, unwritable={2})
    outlook: Any = mock.Mock(claim_lost_at=time.monotonic())
    refusals: Any = mock.Mock(passed_over=lambda: [3])
    own: Any = None
    _, given = plan(Unheld(state, outlook, own, refusals))
    assert given["held_ids"] == [1, 2, 3]


# The watch


@pytest.mark.parametrize(
    ("poll_interval", "seconds"), [(5.0, SILENT_SECONDS), (NEVER, SILENT_POLLS * NEVER)]
)
def test_the_server_ends_no_session_on_watch_that_is_only_waiting_for_its_next_poll(
    poll_interval: float, seconds: float
) -> None:
    own: Any = mock.Mock(listens=True, schema="public")
    outlook: Any = mock.Mock(waits_for_news=True, has_full_queue=False, waited_at=0.0)
    look: Any = mock.Mock(due_at=lambda now: math.inf)
    duty = Watch(
        WorkerState(make_options(poll_interval=poll_interval), "test:1"),
        outlook,
        own,
        look,
        others=[look],
        orders=mock.Mock(),
        on_hearing=mock.Mock(),
    )
    assert plan(duty)[1]["silent_seconds"] == seconds
