"""The pump's looks for jobs with keys: what travels together, and in which order."""

from __future__ import annotations

import time
from collections.abc import Callable

import psycopg
import pytest
from django.db import connection

from django_pgjobs import pause
from tests.factories import count_jobs, get_job, make_job
from tests.helpers import wait_until
from tests.worker.planning import Planning
from tests.worker.support import NEVER, ThreadedWorker

Start = Callable[..., ThreadedWorker]

WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE wait_event_type = 'Lock' AND query LIKE '%pgjobs_keyed_claim%'
    AND datname = current_database()
"""


def test_outcomes_travel_with_a_look_that_does_not_wait(planning: Planning) -> None:
    planning.know_of_keys()
    planning.finish(1)
    names = planning.plan()
    assert "finish_successful" in names
    assert "hold_keyed_claim" in names


def test_outcomes_do_not_travel_with_a_look_that_waits_for_its_turn(planning: Planning) -> None:
    """What is written stays locked until the commit, which others would wait for."""
    planning.know_of_keys()
    planning.finish(1)
    planning.look.waits = True
    planning.claiming.slots.mean_duration = 0.01
    planning.claiming.buffer(10)
    names = planning.plan()
    assert "await_keyed_claim" in names
    assert names["list_heads"]["max_jobs"] == 4 + 20, "what is buffered will have run by then"
    assert "finish_successful" not in names
    planning.answer()
    assert "finish_successful" in planning.plan()


def test_the_wait_for_its_turn_does_not_count_as_time_of_the_claim(planning: Planning) -> None:
    """Or walks and scans would become rarer the more workers there are."""
    planning.know_of_keys()
    planning.plan()
    turn = planning.pump._turn
    planning.look._note_hold(turn, [("held", 0.5)])
    turn.elapsed = 0.6
    assert turn.seconds == pytest.approx(0.1)


def test_after_a_notification_the_claim_comes_before_the_scan(planning: Planning) -> None:
    """The job that was told of is claimed at once; where others are is asked after it."""
    planning.pump.notified("default")
    first = planning.plan()
    planning.answer()
    second = planning.plan()
    assert "claim_jobs" in first
    assert "list_ready_lanes" not in first
    assert "list_ready_lanes" in second


def test_a_key_that_became_free_wakes_others_if_this_turn_claims_nothing(
    planning: Planning,
) -> None:
    planning.claiming.run(4)  # every slot is taken
    planning.claiming.slots.mean_duration = 60.0
    planning.finish(1, lane="shop:1\n")
    names = planning.plan()
    assert "finish_successful" in names
    assert "wake_for_keys" in names
    assert not {"claim_jobs", "list_heads"} & set(names)


def test_a_key_that_an_atomic_job_held_is_free_as_well(planning: Planning) -> None:
    """Its outcome is written in its own transaction, and not by the pump."""
    planning.know_of_keys()
    planning.claiming.claimer.note_scan(0.0)
    planning.look.pace.look_at = time.monotonic() + NEVER
    planning.finish(1, stored=True, lane="shop:1\n")
    names = planning.plan()
    assert "finish_successful" not in names
    assert {"list_heads", "wake_for_keys"} < set(names)


def test_a_job_whose_outcome_cannot_be_written_is_left_to_rescue(planning: Planning) -> None:
    """Given back as a claim that nobody heard of, it would run again and again, uncounted."""
    planning.pump._reconcile_until = time.monotonic() + NEVER
    planning.finish(17)
    [entry] = planning.completer.take()
    for _ in range(2):  # refused, then refused as a plain failure
        planning.completer.simplify(entry, psycopg.DataError())
        [entry] = planning.completer.take_due() or [entry]
    assert not len(planning.completer)
    assert planning.plan()["release_unheld_jobs"]["held_ids"] == [17]


@pytest.mark.django_db(transaction=True)
def test_a_worker_that_was_refused_waits_for_its_turn(
    start_thread: Start, open_connection: Callable[..., psycopg.Connection]
) -> None:
    """It does not ask again and again, and goes on as soon as the other one has committed."""
    other = open_connection(autocommit=False)
    # A test before this one may have emptied the table.
    other.execute("INSERT INTO pgjobs_keyed_claim VALUES (1) ON CONFLICT DO NOTHING")
    other.commit()
    other.execute("SELECT FROM pgjobs_keyed_claim FOR UPDATE")
    job_id = make_job(concurrency_key="shop:1")
    start_thread(poll_interval=NEVER)

    def is_waiting() -> bool:
        with connection.cursor() as cursor:
            cursor.execute(WAITING)
            return bool(cursor.fetchone()[0])

    wait_until(is_waiting)
    assert get_job(job_id).status == "ready"
    other.commit()
    wait_until(lambda: get_job(job_id).status == "successful")


@pytest.mark.django_db(transaction=True)
def test_a_drain_ends_where_all_that_is_left_has_paused_keys(drain: Start) -> None:
    pause(key="shop:*")
    paused = make_job(concurrency_key="shop:1")
    make_job(concurrency_key="mill:1")
    drain(poll_interval=NEVER)
    assert get_job(paused).status == "ready"
    assert count_jobs(status="successful") == 1
