"""Assignments: what a worker over HTTP is given to do, named by an id that is stored nowhere.

The id is signed, and holds the job, its claim, the worker and the token. The claim rises whenever a
job is given or taken back, so an id that is over matches no row.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from django.conf import settings
from django.core import signing

from django_pgjobs.http.problems import Problem, not_found

SALT = "django_pgjobs.assignment"
# An id is at most four numbers and a digest.
MAX_LENGTH = 200


class Assignment(NamedTuple):
    """One attempt of a job, for one worker with one token."""

    job_id: int
    claim: int
    worker_id: int
    token_id: int

    @property
    def sealed(self) -> str:
        """The id that the client is told."""
        return _signer().sign(".".join(map(str, self)))


def opened(sealed: str, token_id: int) -> Assignment | None:
    """Return the assignment of an id, None if it is forged, or another token's."""
    if len(sealed) > MAX_LENGTH:
        return None
    try:
        parts = _signer().unsign(sealed).split(".")
    except signing.BadSignature:
        return None
    assignment = Assignment._make(map(int, parts))
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
    return Problem(409, "lost", "The assignment is lost", detail=detail)


def _signer() -> signing.Signer:
    return _signer_of(settings.SECRET_KEY, tuple(settings.SECRET_KEY_FALLBACKS))


@lru_cache(maxsize=4)
def _signer_of(key: str, fallbacks: tuple[str, ...]) -> signing.Signer:
    return signing.Signer(key=key, fallback_keys=[*fallbacks], sep="~", salt=SALT)
