"""Rate limits as rows: declared in settings, seen in tests, their states pruned."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import pytest
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import connection
from django.db.migrations.state import ProjectState
from django.test import TestCase, override_settings

from django_pgjobs import aacquire, acquire, atry_acquire, task, try_acquire
from django_pgjobs.conf import find_problems
from django_pgjobs.control import rate_limits
from django_pgjobs.models import Job, RateLimit, RateState
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.cursor import raw_statement
from django_pgjobs.testing import rate_limits_on_test_connection, run_jobs
from django_pgjobs.worker.process import pruner as pruner_module
from django_pgjobs.worker.process.pruner import Pruner
from tests.helpers import wait_until
from tests.worker.support import make_options

HOUR = 3600.0
LIMIT = {"count": 2, "period": 1.0, "burst": 1}


def problem(name: Any = "api", limit: Any = LIMIT) -> str:
    """Return the one thing that is wrong with a declared limit."""
    [(_, fact, remedy)] = find_problems({"RATE_LIMITS": {name: limit}})
    assert remedy == "See docs/rate-limits.md."
    return fact


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"count": 0}, "expected count to be a whole number from 1 to 2147483647, got 0."),
        ({"count": True}, "expected count to be a whole number from 1 to 2147483647, got True."),
        ({"count": 2**31}, "got 2147483648."),
        ({"period": 0}, "expected period to be seconds from 0.001 to 31622400, got 0."),
        ({"period": float("nan")}, "expected period to be seconds from 0.001 to 31622400"),
        ({"period": None}, "expected period to be seconds from 0.001 to 31622400, got None."),
        ({"burst": 0}, "expected burst to be a whole number from 1 to 2147483647, or None, got 0."),
        ({"burst": 3}, "expected burst to be at most the count, 2, got 3."),
        ({"note": 5}, "expected note to be text without NUL or lone surrogates, got 5."),
        ({"limit": 5}, "perhaps 'burst' and 'note', got the key 'limit'."),
    ],
)
def test_a_wrong_declaration_is_named(changes: dict[str, Any], said: str) -> None:
    fact = problem(limit=LIMIT | changes)
    assert fact.startswith("PGJOBS['RATE_LIMITS']['api']: expected ")
    assert said in fact


@pytest.mark.parametrize("limit", [None, 2, (2, 1), {}, {"count": 2}, {"period": 1}])
def test_a_declaration_has_a_count_and_a_period(limit: Any) -> None:
    assert "expected a dict with 'count', 'period' and perhaps 'burst'" in problem(limit=limit)


@pytest.mark.parametrize("name", ["", 5, None, "a\nb", "a\0b", "n" * 513])
def test_a_name_is_one_line_of_text(name: Any) -> None:
    assert "expected a name of " in problem(name=name)


@pytest.mark.parametrize(
    "limit", [{"count": 1, "period": 1}, LIMIT | {"burst": None, "note": "as agreed"}]
)
def test_a_good_declaration_is_taken(limit: Any) -> None:
    assert find_problems({"RATE_LIMITS": {"api": limit, "api:17": limit}}) == []


@pytest.mark.django_db
def test_declared_limits_are_made_by_migrate_and_what_is_there_is_left_alone() -> None:
    RateLimit.objects.create(name="changed", count=7, period=7)
    declared = {"changed": LIMIT, "new": LIMIT, "note": {"count": 1, "period": 60, "note": "n"}}
    with override_settings(PGJOBS={"RATE_LIMITS": declared}):
        call_command("migrate", "pgjobs", verbosity=0)
        call_command("migrate", "pgjobs", verbosity=0)
    rows = set(RateLimit.objects.values_list("name", "count", "period", "burst", "note"))
    assert rows == {
        ("changed", 7, 7.0, None, ""),
        ("new", 2, 1.0, 1, ""),
        ("note", 1, 60.0, None, "n"),
    }


@pytest.mark.django_db
def test_a_wrong_declaration_stops_migrate() -> None:
    with override_settings(PGJOBS={"RATE_LIMITS": {"api": {}}}):
        with pytest.raises(ImproperlyConfigured, match="RATE_LIMITS"):
            rate_limits.create_declared_limits(using="default")


@pytest.mark.django_db
def test_limits_are_not_made_where_there_is_no_table_for_them() -> None:
    """After a migration back to zero."""
    with override_settings(PGJOBS={"RATE_LIMITS": {"api": LIMIT}}):
        rate_limits.create_declared_limits(using="default", apps=ProjectState().apps)
    assert not RateLimit.objects.exists()


@pytest.mark.django_db
def test_limits_are_not_made_in_a_database_that_is_not_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rate_limits.router, "allow_migrate_model", lambda using, model: False)
    with override_settings(PGJOBS={"RATE_LIMITS": {"api": LIMIT}}):
        rate_limits.create_declared_limits(using="default", apps=apps)
    assert not RateLimit.objects.exists()


@task
def take(times: int) -> int:
    """Take tokens, one after the other; return how long the waits were."""
    return sum(acquire("api").waited > 0 for _ in range(times))


@task
async def take_async(times: int) -> int:
    """Do as `take`, in async code."""
    return sum([(await aacquire("api")).waited > 0 for _ in range(times)])


@pytest.mark.django_db
@pytest.mark.parametrize("taking", [take, take_async], ids=["sync", "async"])
def test_run_jobs_takes_tokens_where_the_test_has_its_rows(taking: Any) -> None:
    """And does not sleep: five turns of an hour each."""
    RateLimit.objects.create(name="api", count=1, period=HOUR)
    taking.enqueue(5)
    assert run_jobs() == 1
    assert Job.objects.get().result == 0
    assert RateState.objects.exists()
    assert not rate_limits.get_session().connection.is_open


@pytest.mark.slow
@pytest.mark.django_db
def test_run_jobs_waits_for_turns_if_time_passes() -> None:
    RateLimit.objects.create(name="api", count=1, period=0.5)
    take.enqueue(3)
    assert run_jobs(at_once=False) == 1
    assert Job.objects.get().result == 2


@pytest.mark.django_db
def test_code_that_takes_tokens_can_be_tested_without_a_job() -> None:
    RateLimit.objects.create(name="api", count=1, period=HOUR)
    with rate_limits_on_test_connection():
        assert acquire("api").waited == 0
        assert acquire("api").waited == 0
        assert not try_acquire("api")


def connect_to(database: str) -> str:
    """Return the database in which tokens are taken if the settings name *database*."""
    with mock.patch.dict(connection.settings_dict, NAME=database):
        return rate_limits.get_session().run(current_database)


def current_database(cursor: Any) -> str:
    [(name,)] = cursor.execute("SELECT pg_catalog.current_database()::text").fetchall()
    return str(name)


@pytest.mark.django_db(transaction=True)
def test_tokens_are_taken_in_the_test_database_and_no_connection_stays() -> None:
    """One that stayed would keep the runner from dropping the database."""
    with mock.patch.object(rate_limits, "is_testing", return_value=False):
        assert connect_to("postgres") == "postgres"
        assert rate_limits.get_session().connection.is_open
    RateLimit.objects.create(name="api", count=1, period=HOUR)
    assert try_acquire("api")
    assert RateState.objects.get().key == "api"
    assert not rate_limits.get_session().connection.is_open
    assert not try_acquire("api")


class TestInATestCase(TestCase):
    """Whose rows no other connection sees."""

    def test_tokens_are_taken_in_its_transaction(self) -> None:
        assert not RateState.objects.exists()
        RateLimit.objects.create(name="api", count=1, period=HOUR)
        assert try_acquire("api")
        assert not try_acquire("api")
        assert RateState.objects.exists()

    test_and_nothing_is_left = test_tokens_are_taken_in_its_transaction

    def test_turns_are_waited_for(self) -> None:
        RateLimit.objects.create(name="api", count=1, period=0.2)
        first, second = acquire("api"), acquire("api")
        assert second.granted_at - first.granted_at >= timedelta(seconds=0.2)
        assert second.waited > 0

    async def test_async_code_takes_them_there_too(self) -> None:
        await RateLimit.objects.acreate(name="api", count=2, burst=2, period=HOUR)
        assert (await aacquire("api")).waited == 0
        assert await atry_acquire("api")
        assert not await atry_acquire("api")


@pytest.mark.django_db
def test_a_test_may_want_to_wait() -> None:
    RateLimit.objects.create(name="api", count=1, period=0.1)
    with rate_limits_on_test_connection(waits=True):
        first, second = acquire("api"), acquire("api")
        assert second.granted_at - first.granted_at >= timedelta(seconds=0.1)


@pytest.fixture
def prune(transactional_db: None) -> Iterator[Callable[[], None]]:
    """Start a pruner, which prunes at once."""
    own = OwnConnection("default", "test")
    made = Pruner(make_options(), own, is_leader=lambda: True, on_crash=pytest.fail)

    def start() -> None:
        made.start()
        made.wake()

    yield start
    made.stop()
    assert made.join(15)
    own.close()


def test_states_that_nobody_needs_go(
    prune: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruner_module, "PAGE", 10)
    monkeypatch.setattr(pruner_module, "PAGE_PAUSE_SECONDS", 0.0)
    now = datetime.now(UTC)
    ages = {"yesterday": timedelta(hours=23), "in use": timedelta(0), "ahead": -timedelta(days=9)}
    kept = [RateState(key=key, next_free=now - age) for key, age in ages.items()]
    old = [RateState(key=f"old {n}", next_free=now - timedelta(days=2)) for n in range(35)]
    RateState.objects.bulk_create(kept + old)
    prune()
    wait_until(lambda: RateState.objects.count() == len(kept))
    assert set(RateState.objects.values_list("key", flat=True)) == set(ages)


def test_no_statement_reads_the_states_of_other_keys(
    transactional_db: None, kept_session: None
) -> None:
    own = rate_limits.get_session().connection
    with own.cursor() as cursor:
        values = {"keys": ["api"], "cost": 1, "timeout": None}
        text, names = raw_statement("take_rate_tokens", schema=own.schema)
        cursor.execute(b"EXPLAIN (COSTS OFF) " + text, [values[name] for name in names])
        plan = "\n".join(row[0] for row in cursor.fetchall())
    scans = re.findall(r"Scan .*pgjobs_rate_state.*\n(?:.*Searches.*\n)?\s*(.*)", plan)
    assert len(scans) == 2
    assert all(line.startswith("Index Cond: ") for line in scans), plan
