"""When a walk past jobs with keys need not be repeated."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection

from django_pgjobs import pause
from django_pgjobs.controls import ConcurrencyLimit, Pause
from django_pgjobs.queries import claims
from django_pgjobs.queries.claims import Group
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker import settled
from django_pgjobs.worker.settled import SettledKeys
from tests.helpers import wait_until

GROUP, OTHER = Group("default", "default", 0), Group("default", "slow", 0)


@pytest.mark.django_db(transaction=True)
def test_a_pause_that_ends_by_itself_keeps_keys_from_being_settled(own: OwnConnection) -> None:
    [[(changes,)]] = own.round_trip([claims.send_change_count])
    assert changes is not None
    pause(key="shop:1", until=timedelta(seconds=60))
    assert own.round_trip([claims.send_change_count]) == [[(None,)]]
    Pause.objects.update(resume_at=None)
    assert own.round_trip([claims.send_change_count]) != [[(None,)]]


@pytest.mark.django_db(transaction=True)
def test_writes_are_counted_by_the_server(own: OwnConnection) -> None:
    [[(before,)]] = own.round_trip([claims.send_change_count])
    ConcurrencyLimit.objects.create(pattern="shop:*", max_running=3)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
    wait_until(lambda: own.round_trip([claims.send_change_count])[0][0][0] > before)


def test_only_a_walk_of_this_look_settles() -> None:
    """The hold may be refused: then nobody walked, and an older walk says nothing."""
    keys = SettledKeys()
    keys.note_changes(7)
    keys.note_walk([GROUP], found=False)
    keys.note_changes(8)
    keys.begin(8)
    assert not keys


def test_keys_are_unsettled_by_what_changes() -> None:
    keys = SettledKeys()

    def settle() -> None:
        assert not keys.note_changes(7)
        keys.note_walk([GROUP], found=False)
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
    keys.note_groups([GROUP])
    assert keys
    keys.note_groups([GROUP, OTHER])
    assert not keys
    settle()
    keys.end()
    assert not keys


def test_a_walk_that_found_jobs_does_not_settle() -> None:
    keys = SettledKeys()
    keys.note_changes(7)
    keys.note_walk([GROUP], found=True)
    keys.begin(7)
    assert not keys


def test_keys_are_settled_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that was locked by somebody who did not write it left no trace."""
    monkeypatch.setattr(settled, "SETTLED_SECONDS", 0.0)
    keys = SettledKeys()
    keys.note_changes(7)
    keys.note_walk([GROUP], found=False)
    keys.begin(7)
    assert not keys
    keys.note_changes(7)
    keys.begin(7)
    assert not keys
