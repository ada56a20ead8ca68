"""Assignments: what a worker over HTTP is given to do, named by an id that is stored nowhere.

The id is signed, and holds the job, its claim, the worker and the token. The claim rises whenever a
job is given or taken back, so an id that is over matches no row.

It is what Django's Signer makes, which derives its key anew for each: a third of what a result
cost.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from functools import cache
from hashlib import sha256
from typing import NamedTuple

from django.conf import settings
from django.core.signals import setting_changed
from django.utils.encoding import force_bytes

from django_pgjobs.http.problems import Problem, not_found

SALT = "django_pgjobs.assignment"
SEPARATOR = "~"
# An id is at most four numbers and a digest.
MAX_LENGTH = 200
# As many as one request may name.
MAX_NAMED = 2_000


class Assignment(NamedTuple):
    """One attempt of a job, for one worker with one token."""

    job_id: int
    claim: int
    worker_id: int
    token_id: int

    @property
    def sealed(self) -> str:
        """The id that the client is told."""
        text = f"{self.job_id}.{self.claim}.{self.worker_id}.{self.token_id}"
        return f"{text}{SEPARATOR}{_signature(text, _keys()[0]).decode()}"


def opened(sealed: str, token_id: int) -> Assignment | None:
    """Return the assignment of an id, None if it is forged, or another token's."""
    if len(sealed) > MAX_LENGTH:
        return None
    text, _, given = sealed.rpartition(SEPARATOR)
    signature = given.encode()
    if not any(hmac.compare_digest(signature, _signature(text, key)) for key in _keys()):
        return None
    assignment = Assignment._make(map(int, text.split(".")))
    return assignment if assignment.token_id == token_id else None


def opened_or_refused(sealed: str, token_id: int) -> Assignment:
    """Return the assignment of an id; raise Problem (404) if it is none of the token's."""
    assignment = opened(sealed, token_id)
    if assignment is None:
        raise not_found("There is no such assignment.")
    return assignment


def lost() -> Problem:
    """Return the problem of an assignment that is over."""
    detail = "The assignment is over: the job has ended, or is somebody else's. Leave it."
    return Problem("lost", detail=detail)


def _signature(text: str, key: bytes) -> bytes:
    return urlsafe_b64encode(hmac.digest(key, text.encode(), "sha256")).rstrip(b"=")


@cache
def _keys() -> list[bytes]:
    """Return the key that signs, and behind it those that were rotated out."""
    salt = f"{SALT}signer".encode()
    secrets = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    return [sha256(salt + force_bytes(secret)).digest() for secret in secrets]


def _forget(*, setting: str, **kwargs: object) -> None:
    if setting.startswith("SECRET_KEY"):
        _keys.cache_clear()


setting_changed.connect(_forget, dispatch_uid="django_pgjobs.assignments")
