"""Statements on the tokens of the HTTP API."""

from __future__ import annotations

from typing import NamedTuple

from django_pgjobs.queries.cursor import Cursor, execute, fetch

# The time of the last use is written so often at most.
RESOLUTION_SECONDS = 60.0


class TokenRow(NamedTuple):
    """What a valid token may do; *queues* and *tasks* None: all.

    *expires_at* is a time since 1970, *seconds_left* is from now; None: it does not expire.
    """

    id: int
    name: str
    verbs: list[str]
    queues: list[str] | None
    tasks: list[str] | None
    per_second: float | None
    expires_at: float | None
    seconds_left: float | None
    is_to_be_noted: bool


def get_token(cursor: Cursor, digest: str) -> TokenRow | None:
    """Return what the token with this digest may do; None: it is not valid, or not any more."""
    rows = fetch(cursor, "get_token", {"digest": digest, "resolution": RESOLUTION_SECONDS})
    return TokenRow._make(rows[0]) if rows else None


def note_token_use(cursor: Cursor, token_id: int) -> None:
    """Write that a token was used, unless that was written in the last minute."""
    execute(cursor, "note_token_use", {"id": token_id, "resolution": RESOLUTION_SECONDS})
