"""What holds for the statements of a page: how long each may take, and how it is planned."""

from __future__ import annotations

import pytest
from django.db import connection, transaction

from django_pgjobs.exceptions import TooSlow
from django_pgjobs.queries.budget import time_budget

pytestmark = pytest.mark.django_db

NAMES = ("statement_timeout", "jit", "enable_sort", "join_collapse_limit", "from_collapse_limit")


def settings() -> tuple[str, ...]:
    """Return what holds now."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT " + ", ".join(f"current_setting('{name}')" for name in NAMES))
        return tuple(cursor.fetchone())


def test_statements_that_walk_are_planned_as_they_are_written() -> None:
    with time_budget("default", 1.5, walks=True):
        assert settings() == ("1500ms", "off", "off", "1", "1")


def test_others_are_planned_as_ever() -> None:
    before = settings()
    with time_budget("default", 1.5):
        assert settings() == ("1500ms", "off", *before[2:])


def test_what_held_before_holds_again_in_the_transaction_around() -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL from_collapse_limit = 5")
        before = settings()
        with time_budget("default", 1.5, walks=True):
            with time_budget("default", 0.5):
                assert settings() == ("500ms", "off", "off", "1", "1")
            assert settings() == ("1500ms", "off", "off", "1", "1")
        assert settings() == before


def test_no_statement_begins_late_in_a_time_for_all_of_them() -> None:
    told = []

    def ask() -> None:
        with time_budget("default", 0.9, together=True) as go_on, connection.cursor() as cursor:
            told.append(settings()[0])
            cursor.execute("SELECT pg_sleep(0.4)")
            go_on()
            told.append("late")

    with pytest.raises(TooSlow, match="before"):
        ask()
    assert told == ["600ms"]


def test_a_lock_that_is_not_had_in_the_time_of_the_role_takes_too_long() -> None:
    """While a table was locked, pages were errors of the server if a role had a lock_timeout."""

    def ask() -> None:
        with time_budget("default", 5), connection.cursor() as cursor:
            cursor.execute("DO $$ BEGIN RAISE lock_not_available; END $$")

    with pytest.raises(TooSlow):
        ask()
