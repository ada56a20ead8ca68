"""The rule of rate limits against a plain reference: random limits, costs and instants.

Time passes by moving what the states remember into the past; a period is so long that the time
that a statement takes is nothing beside it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import floor

import pytest
from django.db import connection

from django_pgjobs.control.rate_limits import on_django_connection
from django_pgjobs.models import RateLimit
from django_pgjobs.queries.rate_limits import RateAnswer, create_rate_states, take_rate_tokens
from django_pgjobs.sql.terms import written_out
from tests.factories import let_rates_pass
from tests.helpers import some_always
from tests.windows import EPOCH, largest_window, microseconds

pytestmark = pytest.mark.django_db

PERIOD = 10_000.0
RULE = written_out(
    "SELECT statement_timestamp(), {state.tokens}, {state.free_at}"
    " FROM (SELECT %s) AS wanted (cost)"
    " CROSS JOIN (SELECT text 'api') AS named (key)"
    " CROSS JOIN LATERAL ({named.key.rate_limit}) AS rule"
    " LEFT JOIN LATERAL ({named.key.rate_state}) AS state ON TRUE"
)


@dataclass
class Reference:
    """What may be taken, by looking at all that was taken: nothing is forgotten or merged."""

    count: int
    burst: int
    taken: list[tuple[int, int]] = field(default_factory=list)

    def tokens(self, now: int) -> int:
        """Return how many tokens there are at an instant in microseconds."""
        period = int(PERIOD * 1e6)
        since, least = 0, self.burst
        for instant, cost in sorted(self.taken, reverse=True):
            since += cost
            if instant > now - period:
                least = min(least, self.count - since)
            least = min(least, self.burst - since + floor((now - instant) * self.count / period))
        return least


class Clock:
    """The server's clock, which can be put forward."""

    def __init__(self) -> None:
        self.ahead = 0

    def put_forward(self, seconds: float) -> None:
        let_rates_pass(seconds)
        self.ahead += round(seconds * 1e6)

    def at(self, instant: datetime) -> int:
        return microseconds(instant) + self.ahead


def tell(cost: int = 1) -> tuple[datetime, int, datetime | None]:
    """Return the time now, how many tokens there are, and when so many are there."""
    with connection.cursor() as cursor:
        cursor.execute(RULE, [cost])
        return cursor.fetchone()


def take(cost: int, *, timeout: float | None = 0.0) -> RateAnswer:
    with on_django_connection(waits=False), connection.cursor() as cursor:
        return take_rate_tokens(cursor, ["api"], cost=cost, timeout=timeout)


def instant_of(answer: RateAnswer) -> datetime:
    return datetime.fromtimestamp(answer.instant, UTC)


@pytest.fixture(params=some_always(range(15)))
def dice(request: pytest.FixtureRequest) -> random.Random:
    return random.Random(request.param)


def make_limit(dice: random.Random, most: int) -> Reference:
    count = dice.choice([1, 2, 3, 5, 20, 100, most])
    burst = dice.choice([None, None, 1, dice.randint(1, count)])
    RateLimit.objects.create(name="api", count=count, period=PERIOD, burst=burst)
    with connection.cursor() as cursor:
        create_rate_states(cursor, ["api"])
    return Reference(count, count if burst is None else burst)


@pytest.mark.slow
def test_there_are_as_many_tokens_as_a_plain_reference_says(dice: random.Random) -> None:
    """Exact up to a hundred in a period: not one more, not one less, at any instant."""
    reference, clock = make_limit(dice, most=99), Clock()
    grants = []
    for _ in range(60):
        clock.put_forward(dice.choice([0, 1, PERIOD / reference.count, dice.uniform(0, PERIOD)]))
        now, tokens, free_at = tell()
        expected = reference.tokens(clock.at(now))
        assert tokens == expected
        assert (tokens >= 1) == (free_at is None or free_at <= now)
        cost = dice.randint(1, min(reference.burst, max(1, tokens + 1)))
        answer = take(cost)
        asked = clock.at(datetime.fromtimestamp(answer.instant - answer.wait, UTC))
        assert answer.taken == (cost <= reference.tokens(asked))
        if answer.taken:
            at = clock.at(instant_of(answer))
            reference.taken.append((at, cost))
            grants.append((EPOCH + timedelta(microseconds=at), cost))
    assert largest_window(grants, timedelta(seconds=PERIOD)) <= reference.count


def test_above_a_hundred_a_hundredth_of_the_period_may_be_lost(dice: random.Random) -> None:
    """Never more, and what was taken counts for so much longer at most."""
    reference, clock = make_limit(dice, most=dice.choice([101, 1_000, 100_000])), Clock()
    later = Reference(reference.count, reference.burst)
    grants = []
    for _ in range(60):
        clock.put_forward(dice.choice([0, 1, 7, PERIOD - 4, dice.uniform(0, PERIOD)]))
        now, tokens, _ = tell()
        assert tokens <= reference.tokens(clock.at(now))
        assert tokens >= later.tokens(clock.at(now))
        cost = dice.randint(1, max(1, min(reference.burst, tokens)))
        if take(cost).taken:
            at = clock.at(now)
            reference.taken.append((at, cost))
            later.taken.append((at + int(PERIOD / 100 * 1e6), cost))
            grants.append((EPOCH + timedelta(microseconds=at), cost))
    assert largest_window(grants, timedelta(seconds=PERIOD)) <= reference.count
    with connection.cursor() as cursor:
        cursor.execute("SELECT cardinality(taken_at) FROM pgjobs_rate_state")
        assert cursor.fetchone()[0] <= 101


def test_tokens_of_a_hundredth_of_the_period_count_as_long_as_the_last_of_them() -> None:
    """Above a hundred in a period they are one entry."""
    # Such that four fifths of a hundredth, which begin at the epoch, have passed by now.
    now = datetime.now(UTC).timestamp()
    hundredth = now / (floor(now / 100) + 0.8)
    period = 100 * hundredth
    RateLimit.objects.create(name="api", count=1_000, period=period)
    with connection.cursor() as cursor:
        create_rate_states(cursor, ["api"])
    clock = Clock()
    assert take(500).taken
    clock.put_forward(0.4 * hundredth)
    assert take(500).taken
    # The first ones have left the window, the others have not.
    clock.put_forward(period - 0.2 * hundredth)
    assert not take(1).taken
    clock.put_forward(0.4 * hundredth)
    assert take(1_000).taken


def test_turns_are_as_early_as_the_rule_allows(dice: random.Random) -> None:
    """A turn that is given ahead: a microsecond before there were too few tokens."""
    reference, clock = make_limit(dice, most=99), Clock()
    grants = []
    for _ in range(30):
        cost = dice.randint(1, reference.burst)
        answer = take(cost, timeout=None)
        at = round(answer.instant * 1e6)
        last = max((instant for instant, _ in reference.taken), default=0)
        assert reference.tokens(at) >= cost
        assert answer.wait == 0 or at == last or reference.tokens(at - 2) < cost
        reference.taken.append((at, cost))
        grants.append((EPOCH + timedelta(microseconds=at), cost))
    assert clock.ahead == 0
    assert largest_window(grants, timedelta(seconds=PERIOD)) <= reference.count


@pytest.mark.slow
@pytest.mark.parametrize("burst", [None, 1, 4, 20])
def test_a_burst_costs_nothing_of_the_count(burst: int | None) -> None:
    """The steady rate is the count per period with every burst."""
    RateLimit.objects.create(name="api", count=20, period=PERIOD, burst=burst)
    with connection.cursor() as cursor:
        create_rate_states(cursor, ["api"])
    instants = [instant_of(take(1, timeout=None)) for _ in range(201)]
    assert instants[-1] - instants[0] <= timedelta(seconds=10.02 * PERIOD)
    assert largest_window([(at, 1) for at in instants], timedelta(seconds=PERIOD)) == 20
