"""Looks and claims of a whole worker: what comes first, who waits for whom."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import psycopg
import pytest
from django.db import connection

from django_pgjobs import Task, pause
from django_pgjobs.models.control import RateLimit
from django_pgjobs.queries import claims, dependencies, jobs
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.claiming.claimer import Claimer
from django_pgjobs.worker.claiming.completer import Completer
from django_pgjobs.worker.claiming.pump import Pump
from django_pgjobs.worker.running.outcome import Kind, Outcome
from django_pgjobs.worker.running.tally import Tally
from django_pgjobs.worker.state import WorkerState
from django_pgjobs.worker.turns.refusals import Refusals
from django_pgjobs.worker.turns.turn import Turn
from django_pgjobs.worker.upkeep import look
from django_pgjobs.worker.upkeep.unheld import Unheld
from tests.factories import count_jobs, get_job, make_job, use_rate
from tests.helpers import wait_until
from tests.worker import tasks as gate_tasks
from tests.worker.keyed import KEYED
from tests.worker.planning import Knowing, ignore, keyed, pump_of
from tests.worker.support import (
    NEVER,
    Gate,
    ThreadedWorker,
    make_attempt_of,
    make_options,
    row_of_job,
)

Start = Callable[..., ThreadedWorker]
Open = Callable[..., psycopg.Connection]

WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE wait_event_type = 'Lock' AND query LIKE '%pgjobs_keyed_claim%'
    AND datname = current_database()
"""


def is_anybody_waiting_for_the_turn() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(WAITING)
        return bool(cursor.fetchone()[0])


def hold_the_turn(open_connection: Open) -> psycopg.Connection:
    """Be the one that claims jobs with keys, until the connection commits."""
    other = open_connection(autocommit=False)
    # A test before this one may have emptied the table.
    other.execute("INSERT INTO pgjobs_keyed_claim VALUES (1) ON CONFLICT DO NOTHING")
    other.commit()
    other.execute("SELECT FROM pgjobs_keyed_claim FOR UPDATE")
    return other


def test_a_worker_that_waits_for_its_turn_notices_that_the_table_was_emptied(
    start_thread: Start, open_connection: Open
) -> None:
    """Tests do that. The row is made anew by a claim that asks for its turn."""
    other = hold_the_turn(open_connection)
    job_id = make_job(concurrency_key="shop:7")
    start_thread()
    wait_until(is_anybody_waiting_for_the_turn)
    other.execute("DELETE FROM pgjobs_keyed_claim")
    other.commit()
    wait_until(lambda: get_job(job_id).status == "successful")


def test_the_wait_for_its_turn_does_not_count_as_time_of_the_claim() -> None:
    """Or walks would become rarer the more workers there are."""
    knowing = Knowing(*keyed(KEYED))
    plan = knowing.plan(5)
    assert plan
    state = WorkerState(knowing.options, "test:1")
    connection: Any = None
    claimer = Claimer(
        state,
        connection,
        Refusals(),
        detailed_paths=[],
        wants_details=lambda: False,
    )
    turn = Turn(1)
    claim = claimer.plan(turn, plan)
    turn.elapsed = 100.1
    turn.receive([[("held", 100.0)], [], [row_of_job(1, lane="a")[:-1]], []])
    assert 0 < claim.seconds < 1


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """What each round trip holds of: asking for the turn, waiting for it, writing outcomes."""
    together: list[set[str]] = []
    round_trip, send_hold, send_ends = (
        OwnConnection.round_trip,
        claims.send_hold,
        jobs.send_successes,
    )

    def note_round_trip(self: OwnConnection, sends: Any) -> Any:
        if self.role == "pump":
            together.append(set())
        return round_trip(self, sends)

    def hold(cursor: Any, *, waits: bool = False) -> None:
        together[-1].add("wait" if waits else "hold")
        send_hold(cursor, waits=waits)

    def write(*args: Any, **given: Any) -> None:
        together[-1].add("write")
        send_ends(*args, **given)

    monkeypatch.setattr(OwnConnection, "round_trip", note_round_trip)
    monkeypatch.setattr(claims, "send_hold", hold)
    monkeypatch.setattr(jobs, "send_successes", write)
    return together


@pytest.mark.django_db(transaction=True)
def test_outcomes_do_not_travel_with_a_claim_that_waits_for_its_turn(
    start_thread: Start, open_connection: Open, gate: Gate, together: list[set[str]]
) -> None:
    """What is written stays locked until the commit, which others would wait for."""
    running = gate_tasks.wait_at_gate.enqueue()
    start_thread(concurrency=2, poll_interval=NEVER, listen=False)
    gate.wait_entered()
    other = hold_the_turn(open_connection)
    waiting = make_job(concurrency_key="shop:1")
    wait_until(is_anybody_waiting_for_the_turn)
    gate.open()
    other.commit()
    wait_until(lambda: get_job(waiting).status == "successful")
    wait_until(lambda: get_job(running.id).status == "successful")
    assert {"wait"} in together
    assert {"wait", "write"} not in together


class Enough(Exception):
    """Ends a pump that runs in the test's own thread."""


def test_outcomes_wait_if_an_atomic_job_ended_whose_key_the_claim_waits_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between walks, what has ended is what the worker waits for its turn for."""
    knowing = Knowing(*keyed(KEYED))
    knowing.claim(wanted=1, seconds=NEVER)
    knowing.find(*keyed(KEYED))
    freed = make_attempt_of(1, lane="a")
    knowing.claim(wanted=1, ending=[freed.row], held=False)
    state = WorkerState(knowing.options, "test:1")
    completer = Completer(state, Tally(), ignore)
    for attempt, is_stored in ((freed, True), (make_attempt_of(2), False)):
        state.held[attempt.id] = attempt
        completer.add(attempt, Outcome(Kind.DONE, stored=is_stored))
    sent: set[str] = set()
    monkeypatch.setattr(claims, "send_hold", lambda _, waits=False: sent.add(f"hold {waits}"))
    monkeypatch.setattr(jobs, "send_successes", lambda *_, **given: sent.add("write"))
    for module, name in (
        (claims, "send_heads"),
        (claims, "send_chosen_claim"),
        (dependencies, "send_resolution"),
    ):
        monkeypatch.setattr(module, name, ignore)

    def send_all(sends: Any) -> None:
        for send in sends:
            send(None)
        raise Enough

    connection: Any = mock.Mock(round_trip=send_all, distance=0.0)
    pump = pump_of(knowing, state=state, connection=connection, completer=completer)
    with pytest.raises(Enough):
        pump.run()
    assert sent
    assert not {"write", "hold True"} <= sent


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("task", [gate_tasks.wait_at_gate, gate_tasks.wait_at_gate_atomic])
def test_the_next_job_of_a_key_starts_when_the_one_before_has_ended(
    start_thread: Start, gate: Gate, monkeypatch: pytest.MonkeyPatch, task: Task
) -> None:
    """Without LISTEN and long before the next look."""
    monkeypatch.setattr(look, "FIRST_GAP_SECONDS", NEVER)
    task.using(concurrency_key="shop:1").enqueue()
    waiting = make_job(concurrency_key="shop:1", concurrency_limit=1)
    start_thread(listen=False, concurrency=2)
    gate.wait_entered()
    gate.open()
    wait_until(lambda: get_job(waiting).status == "successful")


@pytest.fixture
def offers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the list of what the pump of a worker was told to read, which grows."""
    offers: list[Any] = []
    offer = Pump.offer

    def offer_and_count(pump: Pump, place: Any) -> None:
        offer(pump, place)
        offers.append(place)

    monkeypatch.setattr(Pump, "offer", offer_and_count)
    return offers


def wait_until_all_places_are_read(worker: ThreadedWorker, offers: list[Any]) -> None:
    """Wait until a worker that has room, and is told nothing more, has no claim that is due."""
    wait_until(lambda: len(offers) == 2)  # with the first claim, and after it
    wait_until(lambda: worker.runner.pump.outlook.is_idle)


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("place", [{"queue_name": "mail"}, {"priority": -5}], ids=str)
def test_without_listen_a_freed_key_lets_a_job_elsewhere_start_before_the_next_poll(
    start_thread: Start,
    gate: Gate,
    offers: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    place: dict[str, Any],
) -> None:
    """Another queue or priority is a place that the worker has found to have nothing to start."""
    monkeypatch.setattr(look, "FIRST_GAP_SECONDS", NEVER)
    gate_tasks.wait_at_gate.using(concurrency_key="shop:1").enqueue()
    waiting = make_job(concurrency_key="shop:1", concurrency_limit=1, **place)
    worker = start_thread(listen=False, concurrency=2, poll_interval=NEVER)
    gate.wait_entered()
    wait_until_all_places_are_read(worker, offers)
    gate.open()
    wait_until(lambda: get_job(waiting).status == "successful")


@pytest.mark.django_db(transaction=True)
def test_the_next_job_of_a_key_is_claimed_in_the_turn_that_writes_the_outcome_before(
    start_thread: Start,
    gate: Gate,
    offers: list[Any],
    together: list[set[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(look, "FIRST_GAP_SECONDS", NEVER)
    gate_tasks.wait_at_gate.using(concurrency_key="shop:1").enqueue()
    waiting = make_job(concurrency_key="shop:1", concurrency_limit=1)
    worker = start_thread(listen=False, concurrency=2, poll_interval=NEVER)
    gate.wait_entered()
    # Or a claim that is due anyhow might travel with the outcome.
    wait_until_all_places_are_read(worker, offers)
    gate.open()
    wait_until(lambda: get_job(waiting).status == "successful")
    # The second job's own outcome may well travel with a claim.
    assert "hold" in next(trip for trip in together if "write" in trip)


def test_a_job_whose_outcome_cannot_be_written_is_left_to_rescue() -> None:
    """Given back as a claim that nobody heard of, it would run again and again, uncounted."""
    state = WorkerState(make_options(), "test:1")
    state.unwritable.add(17)
    sent: list[Any] = []

    class Cursor:
        rowcount = 0
        adapters = mock.Mock()

        def execute(self, query: Any, params: Any = None, /) -> None:
            sent.append(params)

        def fetchall(self) -> list[Any]:
            return []

    outlook: Any = mock.Mock(claim_lost_at=0.0)
    own: Any = None
    turn = Turn(1)
    Unheld(state, outlook, own, Refusals()).plan(turn)
    for send in turn.sends:
        send(Cursor())
    assert sent[0]["held_ids"] == [17]


@pytest.mark.django_db(transaction=True)
def test_a_worker_that_was_refused_waits_for_its_turn(
    start_thread: Start, open_connection: Open
) -> None:
    """It does not ask again and again, and goes on as soon as the other one has committed."""
    other = hold_the_turn(open_connection)
    job_id = make_job(concurrency_key="shop:1")
    start_thread(poll_interval=NEVER)
    wait_until(is_anybody_waiting_for_the_turn)
    assert get_job(job_id).status == "ready"
    other.commit()
    wait_until(lambda: get_job(job_id).status == "successful")


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_drain_ends_where_all_that_is_left_has_paused_keys(drain: Start) -> None:
    pause(key="shop:*")
    paused = make_job(concurrency_key="shop:1")
    make_job(concurrency_key="mill:1")
    drain(poll_interval=NEVER)
    assert get_job(paused).status == "ready"
    assert count_jobs(status="successful") == 1


def spend_tokens(name: str, *, seconds: float) -> None:
    """Make a rate limit whose only token is back after so long."""
    RateLimit.objects.create(name=name, count=1, period=max(seconds, 1.0))
    use_rate(name, ago=max(seconds, 1.0) - seconds)


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_drain_does_not_wait_for_tokens_that_no_job_of_its_needs(drain: Start) -> None:
    """Rates that other code or the jobs of other queues have used up, and a rate that is full."""
    spend_tokens("unused", seconds=3600)
    spend_tokens("others", seconds=3600)
    make_job(rate_limit_keys="others", queue_name="mail")
    pause(key="shop:*")
    paused = make_job(concurrency_key="shop:1")
    spend_tokens("too small", seconds=3600)
    hopeless = make_job(rate_limit_keys="too small", rate_cost=2)
    done = make_job()
    drain(poll_interval=NEVER, queues=("default",))
    assert {get_job(job_id).status for job_id in (paused, hopeless)} == {"ready"}
    assert get_job(done).status == "successful"


@pytest.mark.django_db
@pytest.mark.parametrize("states", [0, 2000])
def test_the_wait_for_tokens_is_found_among_any_number_of_full_limits(states: int) -> None:
    """No more than 1,000 of their states are read, and those of the lanes."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO pgjobs_rate_state (key, next_free)"
            " SELECT 'full:' || number, now() - interval '1 day'"
            " FROM generate_series(1, %s) AS number",
            [states],
        )
        spend_tokens("slow", seconds=60)
        make_job(rate_limit_keys="slow")
        claims.send_token_wait(cursor)
        [(*_, seconds)] = cursor.fetchall()
    assert 0 < seconds <= 60


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_drain_waits_for_the_tokens_of_its_jobs_and_no_longer(drain: Start) -> None:
    """Two of them, and no poll comes before the second is there."""
    spend_tokens("slow", seconds=0.5)
    jobs_of_it = [make_job(rate_limit_keys="slow") for _ in range(2)]
    drain(poll_interval=NEVER)
    assert {get_job(job_id).status for job_id in jobs_of_it} == {"successful"}
