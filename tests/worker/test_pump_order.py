"""What others say while a claim is under way, and what its answer says after that."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from django_pgjobs.choosing import Rooms
from django_pgjobs.queries.claims import HEAD, Lane
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.claiming import pump as pump_module
from django_pgjobs.worker.claiming.completer import Completer
from django_pgjobs.worker.claiming.plan import Claim, Listing, Plan
from django_pgjobs.worker.running.outcome import Kind, Outcome
from django_pgjobs.worker.running.tally import Tally
from django_pgjobs.worker.state import WorkerState
from tests.worker.planning import Knowing, ignore, plain, pump_of
from tests.worker.support import DEFAULT, make_attempt_of, row_of_job

MAIL = Lane("default", "mail")


def planned(knowing: Knowing) -> Plan:
    """Return the next claim."""
    plan = knowing.plan()
    assert plan is not None
    return plan


def test_jobs_of_a_claim_under_way_go_back_when_the_lease_is_in_danger() -> None:
    """Nobody would interrupt them any more: it was done when they were not held yet."""
    knowing = Knowing(*plain(DEFAULT))
    state = WorkerState(knowing.options, "test:1")
    completer, begun = Completer(state, Tally(), ignore), list[Attempt]()
    pump = pump_of(knowing, state=state, completer=completer, dispatch=begun.extend)
    claim = Claim(planned(knowing), [row_of_job(1)])
    pump.give_up_all()
    pump._accept(claim, state.worker_id)
    assert begun == []
    [outcome] = completer.unwritten().values()
    assert outcome.note == "given back: the lease was not renewed"


def test_a_queue_that_is_filled_behind_the_claim_is_known_after_it() -> None:
    """Counting a batch makes jobs in the transaction of a claim that has found none."""
    knowing = Knowing(*plain(MAIL))
    pump = pump_of(knowing)
    claim = Claim(planned(knowing), is_whole=True)
    pump._settling._on_queues(["mail"])
    pump._learn(claim)
    assert not pump.outlook.is_idle
    pump._accept_offers()
    assert MAIL in planned(knowing).floors


def test_outcomes_do_not_wait_for_the_turn_to_claim_what_cannot_be_read_yet() -> None:
    """A limited queue may have jobs before its floor, and heads are not read for a while."""
    knowing = Knowing()
    places, one = knowing.places, Rooms(1, 0)
    listing = Listing(lanes={MAIL: HEAD}, limited=frozenset({"mail"}))
    places.note_listing(listing)
    places.note_claimed(Claim(planned(knowing), held=True, seconds=1.0))
    places.note_listing(listing)
    mail = row_of_job(5)._replace(queue_name="mail")
    places.note_claimed(Claim(planned(knowing), [mail], held=True, seconds=1.0))
    places.note_claimed(Claim(planned(knowing), held=True))
    now = time.monotonic()
    places._turn = places._turn.asked(now, held=False)
    assert not places.waits(now, one)
    assert now < places.claim_at(now, one) < now + 10


def test_a_job_that_goes_back_is_looked_for_when_it_is_due_however_late_the_answer_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process was stopped: the server counted from before on."""
    knowing = Knowing()
    completer = Completer(WorkerState(knowing.options, "test:1"), Tally(), ignore)
    pump = pump_of(knowing, completer=completer)
    completer.add(make_attempt_of(1), Outcome(Kind.SNOOZE, delay=10.0))
    now = 100.0

    def answer_late(*_: object) -> None:
        nonlocal now
        now += 8.0

    monkeypatch.setattr(pump_module, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(pump, "_send", answer_late)
    assert pump._take_turn()
    assert pump._errands.take_look_time() == 110.0


@pytest.mark.parametrize("kinds", [(Kind.DONE, Kind.DONE), (Kind.LOST, Kind.DONE)])
def test_of_outcomes_that_come_at_the_same_time_one_wakes_the_pump(
    monkeypatch: pytest.MonkeyPatch, kinds: tuple[Kind, Kind]
) -> None:
    """Each slot adds its outcome before the other asks whether it was the only one."""
    knowing = Knowing(*plain(DEFAULT))
    completer = Completer(WorkerState(knowing.options, "test:1"), Tally(), ignore)
    pump = pump_of(knowing, completer=completer)
    pump._demand.is_low.return_value = False  # type: ignore[attr-defined]
    add, others = completer.add, [(make_attempt_of(2), Outcome(kinds[1]))]

    def add_beside_others(attempt: Attempt, outcome: Outcome) -> bool:
        is_first = add(attempt, outcome)
        while others:
            pump.add_outcome(*others.pop())
        return is_first

    monkeypatch.setattr(completer, "add", add_beside_others)
    pump.add_outcome(make_attempt_of(1), Outcome(kinds[0]))
    assert len(completer) == 2
    assert pump._wake.is_set()
