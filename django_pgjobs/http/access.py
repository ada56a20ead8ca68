"""The bearer tokens of requests, and what each of them allows.

A token that was found is good for five seconds more in this process, so a request costs no query;
and so a token that is revoked works for as long.
"""

from __future__ import annotations

import hashlib
import math
import re
import threading
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from django.http import HttpRequest

from django_pgjobs.http.pool import borrowed
from django_pgjobs.http.problems import Problem, forbidden
from django_pgjobs.queries.tokens import TokenRow, get_token, note_token_use
from django_pgjobs.values.payload import LATEST

# What a token may be for; docs/http-api.md explains each.
VERBS = ("work", "enqueue", "read", "manage")
CACHED_SECONDS = 5.0
# How many are remembered. No project has so many tokens, but anybody may send so many texts.
MAX_CACHED = 1_000
NOT_VALID = "This token is not valid, or not any more."
PREFIX = "pgj_"
# 32 bytes as token_urlsafe writes them.
SECRET = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{43}}")


@dataclass(frozen=True, slots=True)
class Access:
    """What the token of a request may do; *queues* and *tasks* None: all.

    *per_second* is how many requests each process answers; *expires_at* is in UTC.
    """

    token_id: int
    name: str
    verbs: frozenset[str]
    queues: frozenset[str] | None
    tasks: frozenset[str] | None
    per_second: float | None
    expires_at: datetime | None

    def require(self, verb: str) -> None:
        """Raise Problem (403) unless the token is for *verb*."""
        if verb not in self.verbs:
            raise forbidden(f"This token is not for {verb!r}.")

    @property
    def is_for_all(self) -> bool:
        """Is the token for all queues and tasks?"""
        return self.queues is None and self.tasks is None

    def may_use(self, queue_name: str, task_path: str) -> bool:
        """Is the token for jobs of this task in this queue?"""
        is_queue = self.queues is None or queue_name in self.queues
        return is_queue and (self.tasks is None or task_path in self.tasks)

    def queues_of(self, names: Collection[str]) -> frozenset[str]:
        """Return those of some queues that the token is for."""
        return frozenset(names) if self.queues is None else self.queues.intersection(names)

    def tasks_of(self, paths: Collection[str]) -> frozenset[str]:
        """Return those of some tasks that the token is for."""
        return frozenset(paths) if self.tasks is None else self.tasks.intersection(paths)

    def require_use(self, queue_name: str, task_path: str) -> None:
        """Raise Problem (403) unless the token is for jobs of this task in this queue."""
        if not self.may_use(queue_name, task_path):
            raise forbidden(f"This token is not for {task_path!r} in the queue {queue_name!r}.")


def digest_of(secret: str) -> str:
    """Return what is stored of a token's secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


class TokenCache:
    """The tokens that were looked up lately, by digest; those that are not valid are None."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[str, tuple[Access | None, float]] = {}

    def get(self, digest: str) -> tuple[bool, Access | None]:
        """Return (is it known?, what it may do)."""
        found = self._found.get(digest)
        if found is None or time.monotonic() >= found[1]:
            return False, None
        return True, found[0]

    def keep(self, digest: str, access: Access | None, seconds: float) -> None:
        """Remember a token for so long."""
        now = time.monotonic()
        with self._lock:
            if len(self._found) >= MAX_CACHED:
                self._found = {key: each for key, each in self._found.items() if each[1] > now}
            if len(self._found) >= MAX_CACHED:
                # Somebody tries one after the other: those that are good stay.
                self._found = {key: each for key, each in self._found.items() if each[0]}
            self._found[digest] = access, now + seconds

    def forget(self) -> None:
        """Look each token up again."""
        with self._lock:
            self._found.clear()


known_tokens = TokenCache()


def known_access(request: HttpRequest) -> Access | None:
    """Return what the request's token may do if that needs no query, None if it does.

    Raise Problem (401) if it is known that there is no such token.
    """
    is_known, access = known_tokens.get(_digest(request))
    if is_known and access is None:
        raise _unauthorized(NOT_VALID)
    return access


def find_access(request: HttpRequest) -> Access:
    """Return what the request's token may do; raise Problem (401) if it has none that is valid."""
    if access := known_access(request):
        return access
    digest = _digest(request)
    with borrowed() as connection:
        with connection.cursor() as cursor:
            row = get_token(cursor, digest)
        if row is not None and row.is_to_be_noted:
            with connection.cursor() as cursor:
                note_token_use(cursor, row.id)
    if row is None:
        known_tokens.keep(digest, None, CACHED_SECONDS)
        raise _unauthorized(NOT_VALID)
    access = _access(row)
    left = math.inf if row.seconds_left is None else row.seconds_left
    known_tokens.keep(digest, access, min(CACHED_SECONDS, left))
    return access


def _digest(request: HttpRequest) -> str:
    # Not `request.headers`, which is made of all headers for the one that is wanted.
    scheme, _, given = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
    secret = given.strip()
    if scheme.lower() != "bearer" or not SECRET.fullmatch(secret):
        # What cannot be a token costs no query.
        raise _unauthorized("Send a token, as in `Authorization: Bearer pgj_...`.")
    return digest_of(secret)


def _access(row: TokenRow) -> Access:
    instant = None
    if row.expires_at is not None:
        instant = datetime.fromtimestamp(min(row.expires_at, LATEST.timestamp()), UTC)
    return Access(
        row.id,
        row.name,
        frozenset(row.verbs),
        _set(row.queues),
        _set(row.tasks),
        row.per_second,
        instant,
    )


def _set(names: Iterable[str | None] | None) -> frozenset[str] | None:
    # Whatever somebody has put into the table.
    return None if names is None else frozenset(name for name in names if name is not None)


def _unauthorized(detail: str) -> Problem:
    headers = {"WWW-Authenticate": 'Bearer realm="pgjobs"'}
    return Problem("unauthorized", detail=detail, headers=headers)
