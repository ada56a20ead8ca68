"""What claims and looks read of the states of rate limits, of which there may be very many."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from django_pgjobs.choosing import Rooms
from django_pgjobs.models import RateLimit
from django_pgjobs.queries import claims
from django_pgjobs.queries.claims import Group, Segment, Taker
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.sql.terms import written_out
from django_pgjobs.worker.claiming.keyed_claim import KeyedClaim
from tests.factories import make_job
from tests.worker.keyed import KEYED

READ = """
SELECT seq_tup_read, idx_tup_fetch, n_tup_upd, n_tup_hot_upd
FROM pg_catalog.pg_stat_xact_user_tables WHERE relname = 'pgjobs_rate_state'
"""
STATES = """
INSERT INTO pgjobs_rate_state (key, next_free, taken_at, taken_since)
SELECT 'shop:' || number, now() + interval '1 hour',
    array(SELECT now() - nth * interval '1 ms' FROM generate_series(%s, 1, -1) AS nth),
    array(SELECT nth::integer FROM generate_series(%s, 1, -1) AS nth)
FROM generate_series(1, %s) AS number
"""
TELLS = written_out(
    "SELECT {state.remaining_at_oldest}, {state.tokens}"
    " FROM (SELECT text 'shop:1') AS named (key)"
    " CROSS JOIN LATERAL ({named.key.rate_limit}) AS rule"
    " CROSS JOIN LATERAL ({named.key.rate_state}) AS state"
)


def make_states(keys: int, *, taken: int, **limit: Any) -> None:
    """Make states of so many keys that took so many tokens of a hundred an hour just now."""
    RateLimit.objects.create(name="shop", **({"count": 100, "period": 3600} | limit))
    with connection.cursor() as cursor:
        cursor.execute(STATES, [taken, taken, keys])


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("taken", "claimed"), [(0, 5), (99, 5), (100, 0)])
def test_a_claim_reads_and_writes_the_states_of_its_own_keys(
    own: OwnConnection, worker: int, taken: int, claimed: int
) -> None:
    """Each up to four times: walk, lock, and twice to spend; written in place (HOT)."""
    make_states(3000, taken=taken)
    for number in range(5):
        make_job(rate_limit_keys=f"shop:{1000 + number}")
    taker = Taker(
        worker_id=worker,
        worker_name="test:1",
        passed_over_paths=[],
        detailed=False,
        detailed_paths=[],
    )
    scope = claims.Scope(
        floors={}, segments=[Segment(KEYED)], boosts={}, slots={}, rooms=Rooms(10, 10), max_jobs=10
    )
    own.round_trip([claims.send_hold])
    sends = KeyedClaim(scope, taker).statements.sends
    answers = own.round_trip([claims.send_hold, *sends, lambda cursor: cursor.execute(READ)])
    assert len(answers[2]) == claimed
    [(of_all, of_own, updates, in_place)] = answers[-1]
    assert of_all == 0
    assert of_own <= 4 * max(claimed, 5)
    assert updates == in_place == claimed


@pytest.mark.django_db
@pytest.mark.parametrize("burst", [None, 3])
@pytest.mark.parametrize("taken", [0, 1, 40, 99, 100])
def test_the_oldest_entry_never_says_less_than_there_is(taken: int, burst: int | None) -> None:
    """So a lane that it rules out has too few tokens."""
    make_states(1, taken=taken, burst=burst)
    with connection.cursor() as cursor:
        cursor.execute(TELLS)
        [(most, tokens)] = cursor.fetchall()
    assert (most is None) == (taken == 0)
    assert most is None or (most == 100 - taken and most >= tokens)


@pytest.mark.django_db
@pytest.mark.parametrize(
    "change",
    [
        "taken_at = '[0:0]={infinity}', taken_since = '{5}'",
        "taken_at = '{NULL}', taken_since = '{NULL}'",
        "taken_at = '{-infinity}', taken_since = '{2147483647}'",
        "taken_at = '{now}', taken_since = '{-2147483648}'",
        "taken_at = '{}', taken_since = '{7}'",
        "taken_at = ARRAY[now() - interval '2 hours'], taken_since = '{100}'",
    ],
)
def test_an_odd_or_old_entry_rules_nothing_out(change: str) -> None:
    make_states(1, taken=1)
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE pgjobs_rate_state SET {change}")
        cursor.execute(TELLS)
        [(most, tokens)] = cursor.fetchall()
    assert most is None or most >= tokens


def token_waits() -> dict[Group, float]:
    """Return in which places jobs wait for tokens."""
    with connection.cursor() as cursor:
        claims.send_token_wait(cursor)
        return {Group(*names): seconds for *names, seconds in cursor.fetchall()}


@pytest.mark.django_db
def test_a_look_asks_for_the_tokens_of_the_first_lanes_of_each_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A place with very many does not hide another, nor slow the look down."""
    monkeypatch.setattr(claims, "TOKEN_LANES", 3)
    make_states(9, taken=100)
    RateLimit.objects.create(name="never", count=1, period=1)
    for number in range(3):
        make_job(rate_limit_keys=f"never:{number}", rate_cost=2)
    make_job(rate_limit_keys="shop:1")
    # Those without rate limits do not count, and are not asked for.
    for key in "abcd":
        make_job(concurrency_key=key, priority=-1)
    make_job(concurrency_key="e", rate_limit_keys="shop:2", priority=-1)
    make_job(rate_limit_keys="shop:3", queue_name="other")
    places = {(group.queue_name, group.urgency) for group in token_waits()}
    assert places == {("default", 1), ("other", 0)}
    monkeypatch.setattr(claims, "TOKEN_LANES", 4)
    assert Group("default", "default", 0) in token_waits()
