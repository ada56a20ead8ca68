"""Rate limits taken while code runs: exact, in turn, for one key or several (S4.26)."""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import random
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection, transaction

from django_pgjobs import (
    Grant,
    JobCancelled,
    RateLimited,
    UnknownRateLimit,
    aacquire,
    acquire,
    atry_acquire,
    try_acquire,
)
from django_pgjobs.context import enter_job
from django_pgjobs.control import rate_limits
from django_pgjobs.models import RateLimit, RateState
from django_pgjobs.queries.rate_limits import take_rate_tokens
from tests.helpers import wait_until
from tests.windows import largest_window
from tests.worker.support import make_attempt_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("kept_session")]

HOUR = 3600.0


def limit(name: str = "api", **columns: Any) -> RateLimit:
    """Make a rate limit: one an hour, if nothing else is said."""
    return RateLimit.objects.create(**({"name": name, "count": 1, "period": HOUR} | columns))


def state(key: str = "api") -> datetime | None:
    """Return the instant at which all tokens of the key are free."""
    return RateState.objects.filter(key=key).values_list("next_free", flat=True).first()


def turns(count: int, cost: Callable[[], int] = lambda: 1) -> list[tuple[datetime, int]]:
    """Ask for so many turns one after the other, without waiting for any."""
    grants = []
    for _ in range(count):
        tokens = cost()
        grant, _ = rate_limits._take_turn("api", tokens, None)
        grants.append((grant.granted_at, tokens))
    return grants


def test_tokens_that_are_free_are_given_at_once() -> None:
    limit(count=5, burst=5)
    before = datetime.now(UTC)
    grant = acquire("api")
    assert isinstance(grant, Grant)
    assert grant.waited == 0
    assert before - timedelta(seconds=1) < grant.granted_at < datetime.now(UTC)


def test_who_comes_too_early_sleeps_until_it_is_his_turn() -> None:
    limit(period=0.3)
    first = acquire("api")
    began = time.monotonic()
    second = acquire("api")
    assert second.granted_at - first.granted_at >= timedelta(seconds=0.3)
    assert 0 <= second.waited <= 0.3
    assert time.monotonic() - began >= second.waited


def test_a_burst_comes_at_once_and_the_rest_evenly() -> None:
    limit(count=12, period=HOUR, burst=3)
    instants = [instant for instant, _ in turns(12)]
    assert instants[2] - instants[0] < timedelta(minutes=1)
    gaps = [later - earlier for earlier, later in pairwise(instants[3:])]
    assert [instants[3] - instants[0], *gaps] == [timedelta(minutes=5)] * 9


def test_without_a_burst_the_whole_count_comes_at_once() -> None:
    limit(count=60, period=HOUR)
    assert [try_acquire("api") for _ in range(61)] == [True] * 60 + [False]


@pytest.mark.parametrize(
    ("count", "period", "burst"),
    [
        (1, 0.001, None),
        (2, 1.0, 1),
        (3, 1.0, 2),
        (7, 0.1, 7),
        (7, 86_400.0, 3),
        (13, 0.7, 4),
        (40, 1 / 3, None),
        (100_000, 2_592_000.0, 10_000),
    ],
)
def test_no_window_holds_more_than_the_count(count: int, period: float, burst: int | None) -> None:
    """Whatever is asked for, and with no microsecond of slack."""
    limit(count=count, period=period, burst=burst)
    most = min(burst or 1, 5)
    grants = turns(120, lambda: random.randint(1, most))
    assert largest_window(grants, timedelta(seconds=period)) <= count


def test_the_whole_count_is_given_in_a_window_of_its_length() -> None:
    """S4.25: it is the limit and not less that is kept."""
    limit(count=10, period=10, burst=1)
    assert largest_window(turns(40), timedelta(seconds=10)) == 10


def test_turns_come_in_the_order_in_which_they_were_asked_for() -> None:
    limit(count=9, period=3, burst=4)
    instants = [instant for instant, _ in turns(30, lambda: random.randint(1, 4))]
    assert instants == sorted(instants)


def test_each_key_has_the_limit_for_itself() -> None:
    limit("shopify")
    assert try_acquire("shopify:1")
    assert try_acquire("shopify:2:eu")
    assert try_acquire("shopify")
    assert not try_acquire("shopify:1")


def test_a_limit_named_like_the_key_goes_before_that_of_its_first_part() -> None:
    limit("shopify", count=5, burst=5)
    limit("shopify:17", count=1)
    assert [try_acquire("shopify:17") for _ in range(2)] == [True, False]
    assert [try_acquire("shopify:18") for _ in range(2)] == [True, True]


def test_a_limit_that_is_changed_holds_from_the_next_time_on() -> None:
    made = limit()
    assert try_acquire("api")
    assert not try_acquire("api")
    made.period = 0.001
    made.save()
    RateState.objects.all().delete()
    assert acquire("api").waited < 1
    assert acquire("api").waited < 1
    made.delete()
    with pytest.raises(UnknownRateLimit):
        acquire("api")


def test_a_cost_takes_as_many_tokens() -> None:
    limit(count=5, burst=5)
    assert try_acquire("api", cost=3)
    assert not try_acquire("api", cost=3)
    assert try_acquire("api", cost=2)


def test_who_would_wait_too_long_is_told_at_once_and_has_taken_nothing() -> None:
    limit()
    acquire("api")
    before = state()
    began = time.monotonic()
    with pytest.raises(RateLimited, match="expected to wait at most 20 s for 'api'") as caught:
        acquire("api", timeout=timedelta(seconds=20))
    assert time.monotonic() - began < 20
    assert HOUR - 60 < caught.value.retry_after <= HOUR
    assert state() == before


def test_a_timeout_that_is_long_enough_changes_nothing() -> None:
    limit(period=0.1)
    first = acquire("api", timeout=0)
    assert acquire("api", timeout=30).granted_at - first.granted_at >= timedelta(seconds=0.1)


def test_in_a_job_nobody_waits_beyond_its_deadline() -> None:
    limit()
    acquire("api")
    attempt = make_attempt_of(1)
    attempt.deadline = time.monotonic() + 20

    def take(**options: Any) -> None:
        enter_job(attempt)
        with pytest.raises(RateLimited, match=r"at most (19|20|10)(\.\d)? s"):
            acquire("api", **options)

    for options in ({}, {"timeout": 10}, {"timeout": 2 * HOUR}):
        contextvars.copy_context().run(take, **options)


def test_of_several_limits_all_are_taken_or_none() -> None:
    limit("second", count=5, burst=5)
    limit("day", count=2, burst=2)
    keys = ["second:17", "day:17"]
    assert try_acquire(keys)
    assert try_acquire(reversed(keys))  # type: ignore[arg-type]
    before = state("second:17"), state("day:17")
    assert not try_acquire(keys)
    with pytest.raises(UnknownRateLimit, match="'hour:17'"):
        acquire([*keys, "hour:17"])
    with pytest.raises(ValueError, match="at most 2, the burst of 'day:17', got 3"):
        acquire(keys, cost=3)
    assert (state("second:17"), state("day:17")) == before
    assert try_acquire("second:17")


def test_the_first_use_of_one_of_several_limits_takes_one_token_of_each() -> None:
    limit("day", count=2, burst=2)
    limit("second", count=2, burst=2)
    assert try_acquire("day")
    assert try_acquire(["day", "second"])
    assert [try_acquire("day"), try_acquire("second"), try_acquire("second")] == [
        False,
        True,
        False,
    ]


def test_of_several_limits_the_longest_wait_counts() -> None:
    limit("fast", count=10, period=HOUR, burst=1)
    limit("slow", count=2, period=HOUR, burst=1)
    instants = [rate_limits._take_turn(["fast", "slow"], 1, None)[0].granted_at for _ in range(4)]
    gaps = [later - earlier for earlier, later in pairwise(instants)]
    assert gaps == [timedelta(minutes=30)] * 3
    assert state("fast") == state("slow") == instants[-1] + timedelta(hours=1)
    assert not try_acquire("fast")


def test_limits_that_are_taken_together_and_alone_are_both_kept() -> None:
    """A turn that another limit puts off leaves no room for too many."""
    limit("api", count=6, period=2, burst=4)
    limit("other", count=1, period=1)
    grants = []
    for _ in range(60):
        keys = random.choice(["api", ["api", "other"]])
        grants.append((rate_limits._take_turn(keys, 1, None)[0].granted_at, 1))
    assert largest_window(grants, timedelta(seconds=2)) <= 6


def test_a_key_that_is_named_twice_counts_once() -> None:
    limit(count=2, burst=2)
    assert try_acquire(["api", "api"])
    assert try_acquire("api")


def test_a_rollback_gives_nothing_back() -> None:
    limit()
    with transaction.atomic():
        acquire("api")
        transaction.set_rollback(True)
    assert not try_acquire("api")


def test_an_open_transaction_keeps_nobody_waiting() -> None:
    limit(count=10, burst=10)
    with transaction.atomic():
        acquire("api")
        with psycopg.connect(**connection.get_connection_params()) as other:
            rows = other.execute("SELECT key FROM pgjobs_rate_state FOR UPDATE NOWAIT").fetchall()
    assert rows == [("api",)]


def test_a_connection_that_was_lost_is_opened_again() -> None:
    """The worker goes on."""
    limit(count=5, burst=5)
    acquire("api")
    session = rate_limits.get_session().connection
    pid = session.open().info.backend_pid
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])
    acquire("api")
    assert session.open().info.backend_pid != pid


def test_a_database_that_cannot_be_reached_raises_what_django_raises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(connection.settings_dict, "PORT", "1")
    with pytest.raises(OperationalError):
        acquire("api")
    monkeypatch.undo()
    limit()
    acquire("api")


def test_the_threads_of_a_process_share_one_connection() -> None:
    limit(count=20, period=0.2, burst=1)
    grants: list[Grant] = []

    def take() -> None:
        grants.extend(acquire("api") for _ in range(5))

    threads = [threading.Thread(target=take) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(grants) == 30
    instants = [(grant.granted_at, 1) for grant in grants]
    assert largest_window(instants, timedelta(seconds=0.2)) <= 20
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = 'pgjobs limits'"
        )
        assert cursor.fetchone() == (1,)


def test_an_interrupt_ends_the_wait() -> None:
    limit()
    acquire("api")
    raised: list[BaseException] = []

    def take() -> None:
        try:
            acquire("api")
        except JobCancelled as error:
            raised.append(error)

    thread = threading.Thread(target=take, daemon=True)
    before = state()
    thread.start()
    wait_until(lambda: state() != before)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident or 0), ctypes.py_object(JobCancelled)
    )
    thread.join(10)
    assert not thread.is_alive()
    assert raised


def test_an_interrupt_in_the_middle_of_a_statement_leaves_the_session_usable() -> None:
    limit(count=5, burst=5)

    def interrupted(cursor: Any) -> None:
        take_rate_tokens(cursor, ["api"], cost=1, timeout=None)
        raise JobCancelled

    session = rate_limits.get_session()
    with pytest.raises(JobCancelled):
        session.run(interrupted)
    assert not session.connection.is_open
    assert try_acquire("api")


def test_async_tasks_wait_on_the_event_loop() -> None:
    limit(period=0.3)

    async def take() -> tuple[Grant, Grant, int]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        ticking = asyncio.create_task(tick())
        first = await aacquire("api")
        second = await aacquire("api", timeout=30)
        ticking.cancel()
        return first, second, ticks

    first, second, ticks = asyncio.run(take())
    assert second.granted_at - first.granted_at >= timedelta(seconds=0.3)
    assert ticks > 2


def test_async_tasks_may_try() -> None:
    limit()

    async def take() -> list[bool]:
        return [await atry_acquire("api"), await atry_acquire("api", cost=1)]

    assert asyncio.run(take()) == [True, False]


def test_an_async_wait_can_be_cancelled_and_ends_at_its_timeout() -> None:
    limit()
    acquire("api")

    async def take() -> None:
        with pytest.raises(RateLimited):
            await aacquire("api", timeout=1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(aacquire("api"), 0.2)

    asyncio.run(take())
