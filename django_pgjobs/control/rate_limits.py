"""Rate limits taken while code runs: `acquire("shopify:17")` before each call of an outside API.

Tokens are taken on a separate connection, one per process, whose statements commit at once: on
Django's connection a rollback would return them, and an open transaction would block all other
callers. The server assigns a turn, an instant of its clock, in the order of the calls; the
caller then waits for it without holding a lock or a connection. In a TestCase, whose rows no other
connection sees, it is Django's.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import psycopg
from asgiref.sync import sync_to_async
from django.apps import apps as installed_apps
from django.db import connections, router

from django_pgjobs.conf import get_conf
from django_pgjobs.context import current_job
from django_pgjobs.exceptions import RateLimited, UnknownRateLimit, seconds_or_none
from django_pgjobs.queries import rate_limits
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.queries.database import is_of_test_case, job_database
from django_pgjobs.values.bounds import COUNT, MAX_KEY_BYTES, is_count, is_whole
from django_pgjobs.values.payload import is_storable, quoted
from django_pgjobs.values.twins import has_async_twin

# An interrupt reaches a sleeping thread when its sleep ends.
SLICE_SECONDS = 0.2
# Tries when other transactions are in the way; each is over in milliseconds.
MAX_TRIES = 20

CROSSED = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)
BROKEN = (psycopg.OperationalError, psycopg.InterfaceError)

T = TypeVar("T")


@dataclass(frozen=True)
class Grant:
    """Tokens that were taken: for how many seconds they were *waited* for, and from which instant
    of the server's clock they hold.
    """

    waited: float
    granted_at: datetime


@has_async_twin
def acquire(
    keys: str | Sequence[str], *, cost: int = 1, timeout: float | timedelta | None = None
) -> Grant:
    """Take *cost* tokens of a rate limit, sleeping until they are available.

    Of several keys it takes *cost* each, at the first instant at which all have enough. They are
    taken at once and for good, on a connection of its own: no rollback of the caller returns them.
    *timeout* is seconds or a timedelta (None: any length of time).

    Raise RateLimited at once, with nothing taken, if the tokens are further away than *timeout* or
    than the deadline of the running job. Raise UnknownRateLimit for a key without a limit,
    ValueError for a cost above the burst, and TypeError or ValueError for a wrong *timeout*, key or
    cost.
    """
    grant, moment = _take_turn(keys, cost, timeout)
    while (left := moment - time.monotonic()) > 0:
        time.sleep(min(left, SLICE_SECONDS))
    return grant


@has_async_twin
def try_acquire(keys: str | Sequence[str], *, cost: int = 1) -> bool:
    """Take *cost* tokens if they are available now; return whether they were.

    Raise as `acquire` does, but for RateLimited.
    """
    try:
        _take_turn(keys, cost, 0.0)
    except RateLimited:
        return False
    return True


async def aacquire(
    keys: str | Sequence[str], *, cost: int = 1, timeout: float | timedelta | None = None
) -> Grant:
    """Do as `acquire`, in async code."""
    take_turn = sync_to_async(_take_turn, thread_sensitive=True)
    grant, moment = await take_turn(keys, cost, timeout)
    while (left := moment - time.monotonic()) > 0:
        await asyncio.sleep(left)
    return grant


atry_acquire = sync_to_async(try_acquire, thread_sensitive=True)


def _take_turn(
    keys: str | Sequence[str], cost: int, timeout: float | timedelta | None
) -> tuple[Grant, float]:
    """Return the grant, and the moment on the clock of `time.monotonic()` when it holds."""
    wanted = _check_keys(keys)
    _check_cost(cost)
    allowed = _seconds_allowed(timeout)
    answer = _ask(wanted, cost, allowed)
    while answer.missing:
        _run(partial(rate_limits.create_rate_states, keys=answer.missing))
        answer = _ask(wanted, cost, allowed)
    if not answer.taken:
        names = ", ".join(map(repr, wanted))
        raise RateLimited(
            f"expected to wait at most {allowed or 0:.3g} s for {names} (cost {cost}), got "
            f"{answer.wait:.3g} s.",
            retry_after=answer.wait,
        )
    is_skipping = _waits_in_tests.get() is False
    waited = 0.0 if is_skipping else answer.wait
    grant = Grant(waited, datetime.fromtimestamp(answer.instant, UTC))
    return grant, time.monotonic() + waited


def _ask(keys: list[str], cost: int, allowed: float | None) -> rate_limits.RateAnswer:
    """Return what the server says; raise what makes the request impossible."""
    answer = _run(partial(rate_limits.take_rate_tokens, keys=keys, cost=cost, timeout=allowed))
    if answer.unknown:
        names = ", ".join(sorted({repr(key.partition(":")[0]) for key in answer.unknown}))
        raise UnknownRateLimit(
            f"there is no rate limit for {', '.join(map(repr, answer.unknown))}. Create {names} "
            "in the admin, by RateLimit.objects.create(name=..., count=..., period=...), or in "
            "PGJOBS['RATE_LIMITS'] and migrate."
        )
    if answer.too_small:
        raise ValueError(
            f"expected a cost of at most {answer.least_burst}, the burst of "
            f"{', '.join(map(repr, answer.too_small))}, got {cost}. Raise the burst of the "
            "rate limit, or take fewer tokens at a time."
        )
    return answer


def _check_keys(keys: str | Sequence[str]) -> list[str]:
    is_one = isinstance(keys, str | bytes) or not isinstance(keys, Iterable)
    wanted: list[Any] = [keys] if is_one else list(keys)
    for key in wanted:
        if not isinstance(key, str):
            raise TypeError(f"expected a key such as 'shopify:17' or several, got {quoted(key)}.")
        if not key or "\n" in key or not is_storable(key):
            raise ValueError(f"expected a key of one line of text without NUL, got {key!r}.")
        if len(key.encode()) > MAX_KEY_BYTES:
            raise ValueError(f"expected a key of at most {MAX_KEY_BYTES} bytes, got {key!r}.")
    if not wanted:
        raise ValueError("expected at least one key, got none.")
    return sorted(set(wanted))


def _check_cost(cost: int) -> None:
    if not is_whole(cost):
        raise TypeError(f"expected a cost in whole tokens, got {quoted(cost)}.")
    if not is_count(cost):
        raise ValueError(f"expected a cost that is {COUNT}, got {quoted(cost)}.")


def _seconds_allowed(timeout: float | timedelta | None) -> float | None:
    """Return how long to wait at most: not beyond the deadline of the running job."""
    seconds = seconds_or_none(timeout, name="timeout")
    try:
        left = current_job().seconds_left
    except LookupError:
        return seconds
    return min((limit for limit in (seconds, left) if limit is not None), default=None)


class Session:
    """The connection of this process to a database, shared by its threads."""

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self.connection = OwnConnection(alias, "limits")
        self._lock = threading.Lock()

    def run(self, function: Callable[[Cursor], T]) -> T:
        """Return what *function* returns for a cursor; its statement commits by itself.

        A broken connection is opened again once. That may take tokens twice, if only the
        answer was lost; it never takes too few.
        """
        with connections[self.alias].wrap_database_errors, self._lock:
            self._follow_settings()
            try:
                return self._try_again(function)
            finally:
                if is_testing():
                    # Else the test database could not be dropped.
                    self.connection.close()

    def _follow_settings(self) -> None:
        """Change from the project's database to the test database, or back."""
        wanted = connections[self.alias].settings_dict["NAME"]
        if wanted and self.connection.is_open and self.connection.open().info.dbname != wanted:
            self.connection.close()

    def _try_again(self, function: Callable[[Cursor], T]) -> T:
        may_be_stale = self.connection.is_open
        tries = 1
        while True:
            try:
                return self._try(function)
            except CROSSED:
                if tries == MAX_TRIES:
                    raise
                time.sleep(random.uniform(0.001, 0.01) * tries)
            except BROKEN:
                if not may_be_stale:
                    raise
                may_be_stale = False
            tries += 1

    def _try(self, function: Callable[[Cursor], T]) -> T:
        try:
            with self.connection.cursor() as cursor:
                return function(cursor)
        except CROSSED:
            raise
        except BaseException:
            # Also an interrupt of the job, which may leave a statement without its answer.
            self.connection.close()
            raise

    def close(self) -> None:
        """Close the connection; the next use opens a new one."""
        with self._lock:
            self.connection.close()


_sessions: dict[str, Session] = {}
# Connections of the parent process: closing or collecting them would end its sessions.
_inherited: list[dict[str, Session]] = []


def get_session() -> Session:
    """Return the session of this process with the database of the jobs; it may not be open."""
    alias = job_database()
    return _sessions.get(alias) or _sessions.setdefault(alias, Session(alias))


def close_sessions() -> None:
    """Close the connections of this module; the next use opens new ones."""
    for session in list(_sessions.values()):
        session.close()


def _leave_to_parent() -> None:
    global _sessions
    _inherited.append(_sessions)
    _sessions = {}


atexit.register(close_sessions)
os.register_at_fork(after_in_child=_leave_to_parent)

# In tests that use Django's connection: whether to sleep. None elsewhere.
_waits_in_tests: ContextVar[bool | None] = ContextVar("django_pgjobs_waits_in_tests", default=None)


@contextmanager
def on_django_connection(*, waits: bool) -> Iterator[None]:
    """Take tokens on Django's connection in this context; for tests, whose rows only it sees."""
    token = _waits_in_tests.set(waits)
    try:
        yield
    finally:
        _waits_in_tests.reset(token)


def is_testing() -> bool:
    """Has Django's test runner, or pytest-django, set this process up?"""
    utils = sys.modules.get("django.test.utils")
    return hasattr(getattr(utils, "_TestState", None), "saved_data")


def _is_in_test_case(alias: str) -> bool:
    """Is the thread in the transaction of a TestCase, whose rows no other connection sees?"""
    return any(map(is_of_test_case, connections[alias].atomic_blocks))


def _run(function: Callable[[Cursor], T]) -> T:
    alias = job_database()
    if _waits_in_tests.get() is None and not _is_in_test_case(alias):
        return get_session().run(function)
    with connections[alias].cursor() as cursor:
        return function(cursor)


def create_declared_limits(*, using: str, apps: Any = installed_apps, **kwargs: object) -> None:
    """Create the missing rows of PGJOBS["RATE_LIMITS"]; runs after each migrate."""
    declared = get_conf().RATE_LIMITS
    try:
        model = apps.get_model("pgjobs", "RateLimit")
    except LookupError:  # migrated back to before this table
        return
    if declared and router.allow_migrate_model(using, model):
        rows = [model(name=name, **limit) for name, limit in declared.items()]
        model.objects.using(using).bulk_create(rows, ignore_conflicts=True)
