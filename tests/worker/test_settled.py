"""When a walk past jobs with keys need not be repeated."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from django_pgjobs import pause
from django_pgjobs.controls import ConcurrencyLimit, Pause, RateState
from django_pgjobs.queries import claims
from django_pgjobs.queries.claims import ClaimedRow, Group, Segment
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker import settled
from django_pgjobs.worker.claimer import Claimer
from django_pgjobs.worker.settled import SettledKeys
from tests.helpers import wait_until
from tests.worker.keyed import KEYED
from tests.worker.planning import Make, claimed, keyed, plain
from tests.worker.support import DEFAULT, row_of_job

COUNTING_VERSION = 150000
OTHER = Group("default", "slow", 0)


@pytest.fixture
def count_changes(own: OwnConnection) -> Callable[[], int | None]:
    """Ask the server how often anything was written that decides about keys."""
    if connection.pg_version < COUNTING_VERSION:
        pytest.skip("the server keeps its counts in a file")

    def ask() -> int | None:
        [[(changes,)]] = own.round_trip([claims.send_change_count])
        return changes

    return ask


@pytest.mark.django_db(transaction=True)
def test_a_pause_that_ends_by_itself_keeps_keys_from_being_settled(
    count_changes: Callable[[], int | None],
) -> None:
    assert count_changes() is not None
    pause(key="shop:1", until=timedelta(seconds=60))
    assert count_changes() is None
    Pause.objects.update(resume_at=None)
    assert count_changes() is not None


@pytest.mark.django_db(transaction=True)
def test_tokens_that_come_back_keep_keys_from_being_settled(
    count_changes: Callable[[], int | None],
) -> None:
    """They may come back between a claim and the question whether any does."""
    RateState.objects.create(key="api", next_free=timezone.now() + timedelta(seconds=60))
    assert count_changes() is None
    RateState.objects.update(next_free=timezone.now() - timedelta(seconds=60))
    assert count_changes() is not None


@pytest.mark.django_db(transaction=True)
def test_writes_are_counted_by_the_server(count_changes: Callable[[], int | None]) -> None:
    before = count_changes()
    ConcurrencyLimit.objects.create(pattern="shop:*", max_running=3)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
    wait_until(lambda: count_changes() != before)


def test_only_a_walk_of_this_look_settles() -> None:
    """The hold may be refused: then nobody walked, and an older walk says nothing."""
    keys = SettledKeys()
    keys.note_changes(7)
    keys.note_vain_walk([KEYED])
    keys.note_changes(8)
    keys.begin(8)
    assert not keys


def test_keys_are_unsettled_by_what_changes() -> None:
    keys = SettledKeys()

    def settle() -> None:
        assert not keys.note_changes(7)
        keys.note_vain_walk([KEYED])
        keys.begin(7)
        assert keys

    settle()
    assert not keys.note_changes(7)
    assert keys.note_changes(8)
    assert not keys
    settle()
    assert keys.note_changes(None)
    assert not keys
    settle()
    keys.note_groups([KEYED])
    assert keys
    keys.note_groups([KEYED, OTHER])
    assert not keys
    settle()
    keys.end()
    assert not keys


def test_keys_are_settled_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that was locked by somebody who did not write it left no trace."""
    monkeypatch.setattr(settled, "SETTLED_SECONDS", 0.0)
    keys = SettledKeys()
    keys.note_changes(7)
    keys.note_vain_walk([KEYED])
    keys.begin(7)
    assert not keys
    keys.note_changes(7)
    keys.begin(7)
    assert not keys


def settles(claimer: Claimer, rows: list[ClaimedRow], *, wanted: int = 5) -> bool:
    """Return whether a claim that comes back with *rows* settles the keys."""
    claimer.settled.note_changes(7)
    claimed(claimer, rows, wanted=wanted, from_heads=True)
    claimer.settled.begin(7)
    return bool(claimer.settled)


def test_only_a_walk_that_keys_held_back_settles_them(make: Make) -> None:
    """A full batch of better jobs, slots of a queue and its limit say nothing of the keys."""
    claimer = make().claimer
    claimer.note_lanes([*plain(DEFAULT), *keyed(KEYED)])
    assert not settles(claimer, [row_of_job(1, lane="a")])
    assert not settles(claimer, [row_of_job(1)], wanted=1)
    assert settles(claimer, [row_of_job(1)])
    slots = make(queue_slots={"default": 1}).claimer
    slots.note_lanes(keyed(KEYED))
    assert not settles(slots, [])
    limited = make().claimer
    limited.note_lanes(keyed(KEYED, is_limited=True))
    assert not settles(limited, [])


def test_settled_keys_are_not_walked_until_a_job_with_a_key_ends(make: Make) -> None:
    claimer = make().claimer
    claimer.note_lanes(keyed(KEYED))
    assert settles(claimer, [])
    assert claimer.plan(1, from_heads=True).segments == []
    claimer.note_freed([row_of_job(1, lane="a")])
    assert claimer.plan(1, from_heads=True).segments == [Segment(KEYED)]


def test_a_group_that_was_not_walked_unsettles_the_keys(make: Make) -> None:
    claimer = make().claimer
    claimer.note_lanes(keyed(KEYED))
    assert settles(claimer, [])
    claimer.note_lanes(keyed(KEYED, OTHER))
    assert not claimer.settled


def test_the_first_rate_limit_unsettles_the_keys(make: Make) -> None:
    """Where there is none, the claim leaves the jobs that name one alone."""
    claimer = make().claimer
    claimer.note_lanes(keyed(KEYED, has_rate_limits=False))
    assert not claimer.plan(1, from_heads=True).takes_tokens
    assert settles(claimer, [])
    claimer.note_lanes(keyed(KEYED, has_rate_limits=True))
    assert claimer.plan(1, from_heads=True).takes_tokens
    assert claimer.plan(1, from_heads=True).walks
