"""Two sessions want the tokens of one rate limit at the same instant (S4.27)."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from django.db import connection

from django_pgjobs import acquire, try_acquire
from django_pgjobs.control import rate_limits
from django_pgjobs.models import RateLimit, RateState
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.rate_limits import (
    RateAnswer,
    create_rate_states,
    prune_rate_states,
    take_rate_tokens,
)
from tests.helpers import wait_until_blocked
from tests.races.support import DjangoThread, open_transaction
from tests.windows import largest_window

pytestmark = [
    pytest.mark.race,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("kept_session"),
]

OpenOwn = Callable[[], OwnConnection]
InThread = Callable[..., DjangoThread]

HOUR = 3600.0


def take(own: OwnConnection, *keys: str, timeout: float | None = None) -> RateAnswer:
    """Ask for one token of each key, on a connection of a process of its own."""
    with own.cursor() as cursor:
        return take_rate_tokens(cursor, sorted(keys), cost=1, timeout=timeout)


def create(own: OwnConnection, *keys: str) -> None:
    with own.cursor() as cursor:
        create_rate_states(cursor, list(keys))


def test_the_second_of_two_takes_its_turn_after_the_first(
    open_own: OpenOwn, in_thread: InThread
) -> None:
    """What the first has taken counts, though the second asked before it committed."""
    RateLimit.objects.create(name="api", count=1, period=HOUR)
    first, second = open_own(), open_own()
    create(first, "api")
    second.open()
    with open_transaction(first) as end:
        granted = take(first, "api")
        asking = in_thread(lambda: take(second, "api"))
        wait_until_blocked(second.open())
        end("COMMIT")
    assert asking.result().instant == pytest.approx(granted.instant + HOUR, abs=1e-6)


def test_the_clock_is_read_when_the_lock_is_there(open_own: OpenOwn, in_thread: InThread) -> None:
    """A turn that was given at the time of asking could be long past."""
    RateLimit.objects.create(name="api", count=100, period=1, burst=50)
    first, second = open_own(), open_own()
    create(first, "api")
    second.open()
    with open_transaction(first) as end:
        take(first, "api")
        asking = in_thread(lambda: take(second, "api"))
        wait_until_blocked(second.open())
        released_at = connection_clock()
        end("COMMIT")
    assert asking.result().instant >= released_at


def connection_clock() -> float:
    """Return the server's clock, in seconds since 1970."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXTRACT(EPOCH FROM clock_timestamp())::double precision")
        return float(cursor.fetchone()[0])


def test_a_turn_that_was_rolled_back_is_free_again(open_own: OpenOwn, in_thread: InThread) -> None:
    RateLimit.objects.create(name="api", count=1, period=HOUR)
    first, second = open_own(), open_own()
    create(first, "api")
    second.open()
    with open_transaction(first) as end:
        take(first, "api")
        asking = in_thread(lambda: take(second, "api"))
        wait_until_blocked(second.open())
        end("ROLLBACK")
    assert asking.result().wait == 0


def test_the_first_use_of_a_key_is_exact(open_own: OpenOwn, in_thread: InThread) -> None:
    """The state that both want to create is there once, and the first has its turn."""
    RateLimit.objects.create(name="api", count=1, period=HOUR)
    first, second = open_own(), open_own()
    second.open()
    with open_transaction(first) as end:
        assert take(first, "api").missing == ["api"]
        assert take(second, "api").missing == ["api"]
        create(first, "api")
        assert take(first, "api").taken
        creating = in_thread(lambda: create(second, "api"))
        wait_until_blocked(second.open())
        end("COMMIT")
    creating.result()
    answer = take(second, "api", timeout=1)
    assert (answer.taken, answer.missing) == (False, [])


def test_a_state_that_is_pruned_while_somebody_wants_it_is_made_again(
    open_own: OpenOwn, in_thread: InThread
) -> None:
    RateLimit.objects.create(name="api", count=1, period=HOUR)
    RateState.objects.create(key="api", next_free=datetime(2020, 1, 1, tzinfo=UTC))
    pruning = open_own()
    session = rate_limits.get_session().connection.open()
    with open_transaction(pruning) as end:
        with pruning.cursor() as cursor:
            assert prune_rate_states(cursor, retention=1, max_states=10) == 1
        asking = in_thread(lambda: acquire("api"))
        wait_until_blocked(session)
        end("COMMIT")
    assert asking.result().waited == 0
    assert not try_acquire("api")


def test_the_pruner_passes_over_a_state_that_is_in_use(open_own: OpenOwn) -> None:
    RateLimit.objects.create(name="api", count=1, period=HOUR)
    RateState.objects.create(key="api", next_free=datetime(2020, 1, 1, tzinfo=UTC))
    first, pruning = open_own(), open_own()
    with open_transaction(first) as end:
        take(first, "api")
        with pruning.cursor() as cursor:
            assert prune_rate_states(cursor, retention=1, max_states=10) == 0
        end("COMMIT")
    assert RateState.objects.get().next_free > datetime.now(UTC)


def test_several_limits_are_locked_in_the_order_of_their_keys(
    open_own: OpenOwn, in_thread: InThread
) -> None:
    """Who waits for the first key holds none of the others, so nobody waits in a circle."""
    for name in "abc":
        RateLimit.objects.create(name=name, count=10, period=1, burst=10)
    first, second, third = open_own(), open_own(), open_own()
    create(first, "c", "a", "b")
    second.open()
    with open_transaction(first) as end:
        take(first, "a")
        with second.cursor() as cursor:
            asking = in_thread(
                lambda: take_rate_tokens(cursor, ["c", "b", "a"], cost=1, timeout=None)
            )
            wait_until_blocked(second.open())
            assert take(third, "b", "c").taken
            end("COMMIT")
            assert asking.result().taken


def test_crossing_requests_are_all_granted_and_exact(
    open_own: OpenOwn, in_thread: InThread
) -> None:
    """With the keys in any order and several of them at a time."""
    for name, count in (("a", 5), ("b", 7), ("c", 9)):
        RateLimit.objects.create(name=name, count=count, period=2, burst=3)
    create(open_own(), "a", "b", "c")

    def take_many(own: OwnConnection) -> list[tuple[str, float]]:
        grants = []
        for _ in range(40):
            keys = random.sample("abc", random.randint(1, 3))
            answer = take(own, *keys)
            assert answer.taken
            grants += [(key, answer.instant) for key in keys]
        return grants

    owns = [open_own() for _ in range(4)]
    threads = [in_thread(lambda own=own: take_many(own)) for own in owns]
    grants = [grant for thread in threads for grant in thread.result()]
    for name, count in (("a", 5), ("b", 7), ("c", 9)):
        history = [(datetime.fromtimestamp(at, UTC), 1) for key, at in grants if key == name]
        assert largest_window(history, timedelta(seconds=2)) <= count


@pytest.mark.slow
def test_a_deadlock_with_somebody_else_is_tried_again(
    open_connection: Callable[..., psycopg.Connection], in_thread: InThread
) -> None:
    """A person who changes states by hand, in another order."""
    for name in "ab":
        RateLimit.objects.create(name=name, count=100, period=HOUR)
    assert try_acquire(["a", "b"])
    person = open_connection(autocommit=False)
    is_refused = True
    while is_refused:
        person.execute("SELECT FROM pgjobs_rate_state WHERE key = 'b' FOR UPDATE")
        asking = in_thread(lambda: try_acquire(["a", "b"]))
        wait_until_blocked(rate_limits.get_session().connection.open())
        # Who has waited for a second is refused: the other one, unless this one comes late.
        with contextlib.suppress(psycopg.errors.DeadlockDetected):
            person.execute("SELECT FROM pgjobs_rate_state WHERE key = 'a' FOR UPDATE")
            is_refused = False
        person.rollback()
        assert asking.result() is True
