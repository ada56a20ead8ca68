"""When the upkeep looks for jobs again, and when a drain is over."""

from __future__ import annotations

import math
import time
from typing import Any
from unittest import mock

import pytest

from django_pgjobs.worker.state import WorkerState
from django_pgjobs.worker.turns.refusals import Refusals
from django_pgjobs.worker.turns.turn import Turn
from django_pgjobs.worker.upkeep import look
from django_pgjobs.worker.upkeep.look import Look
from tests.worker.support import NEVER, make_options

IDLE = {"is_idle": True, "is_releasing": False, "is_settling": False, "claimed": 0}


def make_look(outlook: Any, options: Any, **given: Any) -> Look:
    """Make a look that is sent nowhere; its worker is told of each job, unless *given* says no."""
    state = WorkerState(options, "test:1")
    own: Any = None
    pump: Any = mock.Mock(outlook=outlook)
    usual = {"is_settled": lambda: True, "is_told": lambda: True, "rests": lambda: False}
    usual["on_drained"] = mock.Mock()
    return Look(state, pump, own, Refusals(), **usual | given)


def look_in_vain(duty: Look) -> None:
    """Let it plan, and answer that there is nothing."""
    turn = Turn(1)
    duty.plan(turn)
    turn.receive([[(0, None, [])], []])


@pytest.mark.parametrize("is_settled", [True, False])
def test_a_look_ends_no_drain_as_long_as_the_return_of_a_lost_claim_is_due(
    is_settled: bool,
) -> None:
    """The claim may have been lost since the return was asked for last."""
    outlook = mock.Mock(
        is_idle=True, is_releasing=False, is_settling=False, claimed_at=-math.inf, waited_at=0.0
    )
    ends: list[str] = []
    duty = make_look(
        outlook,
        make_options(drain=True),
        is_settled=lambda: is_settled,
        is_told=lambda: False,
        on_drained=lambda reason, began: ends.append(reason),
    )
    look_in_vain(duty)
    assert bool(ends) is is_settled


@pytest.mark.parametrize("is_told", [True, False])
def test_the_gaps_between_looks_begin_anew_unless_every_job_is_told_of(is_told: bool) -> None:
    """A worker that listens looks once after a job, and then at the poll interval again."""
    outlook = mock.Mock(
        is_idle=True, is_releasing=False, is_settling=False, claimed_at=-math.inf, waited_at=0.0
    )
    duty = make_look(
        outlook,
        make_options(poll_interval=NEVER),
        is_told=lambda: is_told and duty.is_quiet,
    )
    while not duty.is_quiet:
        look_in_vain(duty)
    duty.note_news()
    outlook.claimed_at = 1.0
    assert duty.due_at(0.0) - time.monotonic() <= look.APART_SECONDS
    look_in_vain(duty)
    assert (duty.due_at(0.0) - time.monotonic() > 0.1) is is_told


@pytest.mark.parametrize("is_told", [True, False])
def test_a_worker_that_is_told_of_each_job_does_not_look_after_each(is_told: bool) -> None:
    """But soon: some may have keys, or were locked. One that found nothing looks at once."""
    outlook = mock.Mock(
        is_idle=True, is_releasing=False, is_settling=False, claimed_at=-math.inf, waited_at=0.0
    )
    duty = make_look(
        outlook,
        make_options(poll_interval=NEVER),
        is_told=lambda: is_told,
    )
    outlook.claimed_at = 1.0
    assert duty.due_at(0.0) <= time.monotonic()
    look_in_vain(duty)
    duty.note_news()
    assert duty.due_at(0.0) <= time.monotonic()
    outlook.claimed_at = 2.0
    assert (duty.due_at(0.0) == duty._looked_at + look.APART_SECONDS) is is_told
    assert is_told or duty.due_at(0.0) <= time.monotonic()


def test_what_a_worker_finds_beside_the_one_on_watch_makes_it_look_no_sooner() -> None:
    """Else each of forty whose poll meets a stream of jobs would take part in it from then on."""
    outlook = mock.Mock(
        is_idle=True, is_releasing=False, is_settling=False, claimed_at=-math.inf, waited_at=0.0
    )
    duty = make_look(outlook, make_options(poll_interval=NEVER), rests=lambda: True)
    duty.rest()
    look_in_vain(duty)
    at_poll = duty.due_at(0.0)
    outlook.claimed_at = 1.0
    assert duty.due_at(0.0) == at_poll
    place = ("default", "default", None, False, 0, 0, False, 0, 1)
    assert look_at(duty, [(0, None, [])], [place]) > NEVER / 2


def test_beside_the_one_on_watch_a_worker_that_ran_jobs_with_keys_looks_once_more() -> None:
    """If that one is frozen, nobody else hears that a key is free, or sees when tokens are."""
    outlook = mock.Mock(**IDLE, claimed_at=-math.inf, waited_at=0.0)
    duty = make_look(outlook, make_options(poll_interval=NEVER), rests=lambda: True)
    duty.rest()
    place = ("default", "default", 0, False, 0, 0, False, 0, 1)
    assert look_at(duty, [(0, None, [])], [place]) > NEVER / 2
    outlook.claimed_at = 1.0
    assert duty.due_at(0.0) <= time.monotonic() + look.APART_SECONDS
    assert look_at(duty, [(0, None, [])], [], [], []) > NEVER / 2


def test_workers_that_were_started_together_do_not_look_together_for_ever() -> None:
    gaps = []
    for _ in range(50):
        duty = make_look(mock.Mock(**IDLE), make_options(poll_interval=NEVER))
        duty.rest()
        gaps.append(look_at(duty))
    assert look.LEAST_PART * NEVER - 1 < min(gaps) < 0.9 * NEVER < max(gaps) <= NEVER


def look_at(duty: Look, *answers: list[Any], seconds: float = 0.0) -> float:
    """Let it plan, and answer after so long; return in how many seconds it is due again."""
    turn = Turn(1)
    duty.plan(turn)
    turn.elapsed = seconds
    turn.receive(answers or [[(0, None, [])], []])
    now = time.monotonic()
    return duty.due_at(now) - now


def test_looks_that_have_become_slow_are_made_rarely() -> None:
    duty = make_look(mock.Mock(**IDLE), make_options(poll_interval=0.05))
    assert look_at(duty, seconds=0.01) <= 0.1
    assert look_at(duty, seconds=0.1) <= 0.1
    assert look_at(duty, seconds=0.1) > 0.1 * look.PAUSE_FACTOR - 0.1


def test_a_single_look_that_was_slow_holds_up_no_other() -> None:
    """Its process was stopped, or the server stood still: there may be jobs that nobody told of."""
    duty = make_look(mock.Mock(**IDLE), make_options(poll_interval=NEVER))
    assert look_at(duty, seconds=3600.0) < 0.1
    assert look_at(duty) < 0.1


def test_a_look_that_was_fast_is_followed_by_others_whatever_was_before() -> None:
    """The server stood still twice: what was committed meanwhile told nobody."""
    duty = make_look(mock.Mock(**IDLE), make_options(poll_interval=NEVER))
    for seconds in (0.8, 1.6):
        look_at(duty, seconds=seconds)
    assert look_at(duty, seconds=0.009) < 0.1


def test_jobs_are_looked_for_when_they_are_due_however_late_the_answer_came() -> None:
    """Its process was stopped: the seconds that the server told of began before."""
    duty = make_look(mock.Mock(**IDLE), make_options(poll_interval=NEVER))
    duty.rest()
    assert 1 < look_at(duty, [(0, 10.0, [])], [], seconds=8.0) < 2.1


def test_jobs_get_their_tokens_when_these_are_there_however_late_the_answer_came() -> None:
    duty = make_look(mock.Mock(**IDLE), make_options(poll_interval=NEVER))
    duty.rest()
    lanes = [("default", "default", 0, False, 0, 0, False, None, None)]
    waits = [("default", "default", 0, False, 10.0)]
    look_at(duty, [(0, None, [])], lanes)
    assert 1 < look_at(duty, [(0, None, [])], waits, [], lanes, seconds=8.0) < 2.1


def test_a_look_that_has_promoted_jobs_is_followed_by_the_next_at_once() -> None:
    """There may be more than it promotes at a time, and no notification tells of these."""
    duty = make_look(mock.Mock(**IDLE), make_options(poll_interval=NEVER))
    duty.rest()
    assert look_at(duty, [(look.PROMOTE_BATCH, None, [])], []) <= 0
    assert look_at(duty) > NEVER / 2


def test_a_worker_that_leaves_the_watch_to_another_looks_at_the_poll_interval() -> None:
    duty = make_look(mock.Mock(**IDLE), make_options(poll_interval=NEVER))
    assert look_at(duty) < 1
    duty.rest()
    assert look_at(duty) > NEVER / 2


def test_a_drain_goes_on_as_long_as_batches_are_to_be_counted() -> None:
    """What the round trip of the look has found, too: their ends may make jobs."""
    outlook, ends = mock.Mock(**IDLE), mock.Mock()
    duty = make_look(outlook, make_options(drain=True), on_drained=ends)
    turn = Turn(1)
    duty.plan(turn)
    outlook.is_settling = True
    turn.receive([[(0, None, [])], []])
    assert not ends.called
    outlook.is_settling = False
    look_in_vain(duty)
    assert ends.called


def test_a_drain_ends_soon_after_its_last_job_beside_one_that_can_never_start() -> None:
    """While a long job ran, the gaps between looks have grown."""
    outlook = mock.Mock(
        is_idle=True, is_releasing=False, is_settling=False, claimed_at=1.0, waited_at=0.0
    )
    ends: list[str] = []
    duty = make_look(
        outlook,
        make_options(drain=True, poll_interval=NEVER),
        on_drained=lambda reason, began: ends.append(reason),
    )
    duty._gap = NEVER
    promoted, lanes = [(0, None, [])], [("default", "default", 0, False, 0, 0, False, None, None)]
    for answers in ([promoted, lanes], [promoted, [], [], lanes], *[[promoted, [], lanes]] * 2):
        assert duty.due_at(0.0) - time.monotonic() < 0.1 and ends == []
        turn = Turn(1)
        duty.plan(turn)
        turn.receive(answers)
    assert ends == ["nothing is left that may run now"]


def test_a_worker_with_room_for_one_kind_only_looks_each_second() -> None:
    """And not after each claim of jobs of the other kind."""
    outlook = mock.Mock(
        waits_for_news=False,
        is_idle=True,
        is_releasing=False,
        is_settling=False,
        claimed_at=-math.inf,
        waited_at=0.0,
    )
    duty = make_look(
        outlook,
        make_options(poll_interval=NEVER),
    )
    look_in_vain(duty)
    outlook.claimed_at = 1.0
    assert duty.due_at(0.0) == duty._looked_at + look.BUSY_LOOK_SECONDS


def test_a_busy_worker_looks_when_its_jobs_have_enough_tokens() -> None:
    """And not at its next look of a busy worker."""
    outlook = mock.Mock(
        waits_for_news=False,
        is_idle=False,
        is_releasing=False,
        is_settling=False,
        claimed_at=-math.inf,
        waited_at=0.0,
    )
    duty = make_look(
        outlook,
        make_options(poll_interval=NEVER),
    )
    lanes = [("default", "default", 0, False, 0, 0, False, None, None)]
    promoted: list[Any] = [(0, None, [])]
    waits = [("default", "default", 0, False, 0.2)]
    for answers in ([promoted, lanes], [promoted, waits, [], lanes]):
        turn = Turn(1)
        duty.plan(turn)
        turn.receive(answers)
    assert 0.0 < duty.due_at(0.0) - time.monotonic() <= 0.23
