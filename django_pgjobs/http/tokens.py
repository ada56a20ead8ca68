"""Making, rotating and revoking the tokens of the HTTP API.

A secret is in nobody's hands but the caller's: the table has its digest, and no log has either.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models.functions import Now
from django.utils import timezone
from django.views.decorators.debug import sensitive_variables

from django_pgjobs.conf import is_dotted
from django_pgjobs.http.access import PREFIX, VERBS, digest_of, known_tokens
from django_pgjobs.models import Token
from django_pgjobs.queries.database import job_database
from django_pgjobs.values.bounds import MAX_QUEUE_NAME_BYTES, MAX_TASK_PATH_BYTES
from django_pgjobs.values.payload import fits_column, is_storable

# Characters, as the column has it.
MAX_NAME = 200
MAX_PER_SECOND = 1_000_000
SHOWN_CHARACTERS = 8
SECRET_BYTES = 32


@dataclass(frozen=True, kw_only=True)
class TokenScope:
    """What a token is for; *queues* and *tasks* None: all. *per_second* None: any number."""

    verbs: Collection[str]
    queues: Sequence[str] | None = None
    tasks: Sequence[str] | None = None
    per_second: float | None = None
    expires_at: datetime | None = None

    def find_problems(self) -> list[str]:
        """Return what is wrong with it, in words."""
        problems = []
        unknown = sorted(set(self.verbs) - set(VERBS))
        if unknown or not self.verbs:
            given = f", got {', '.join(unknown)}" if unknown else ""
            problems.append(f"expected one or more of {', '.join(VERBS)}{given}.")
        if self.queues is not None and not all(map(_is_queue, self.queues)):
            problems.append(f"expected names of queues of 1 to {MAX_QUEUE_NAME_BYTES} bytes.")
        if self.tasks is not None and not all(map(_is_path, self.tasks)):
            problems.append("expected paths of tasks, such as shop.tasks.push_product.")
        if self.per_second is not None and not 0.001 <= self.per_second <= MAX_PER_SECOND:
            problems.append(f"expected 0.001 to {MAX_PER_SECOND} requests per second.")
        if self.expires_at is not None and self.expires_at <= timezone.now():
            problems.append("expected an end that is to come.")
        return problems


@sensitive_variables("secret")
def create_token(name: str, scope: TokenScope, *, by: str = "") -> tuple[Token, str]:
    """Make a token; return it and its secret, which is nowhere else. Raise ValueError."""
    if not is_name(name):
        raise ValueError(f"expected a name of one line, 1 to {MAX_NAME} characters, got {name!r}.")
    if problems := scope.find_problems():
        raise ValueError(" ".join(problems))
    secret = f"{PREFIX}{secrets.token_urlsafe(SECRET_BYTES)}"
    token = Token.objects.create(
        name=name,
        prefix=secret[:SHOWN_CHARACTERS],
        digest=digest_of(secret),
        verbs=[verb for verb in VERBS if verb in scope.verbs],
        queues=_names(scope.queues),
        tasks=_names(scope.tasks),
        per_second=scope.per_second,
        expires_at=scope.expires_at,
        created_by=by,
    )
    return token, secret


def revoke_token(token_id: int) -> bool:
    """End a token; return False if it had ended. Processes that know it may take it for 5 s."""
    valid = Token.objects.filter(Token.that_is_valid(), pk=token_id)
    is_changed = bool(valid.update(revoked_at=Now()))
    known_tokens.forget()
    return is_changed


@sensitive_variables("made")
def rotate_token(token_id: int, *, keep: timedelta, by: str = "") -> tuple[Token, str]:
    """Make a token like another one, which is good for *keep* from now on at most.

    The new one lasts as long as the other one was to. Raise LookupError if there is no such token,
    ValueError if it is not good any more, or has a successor.
    """
    with transaction.atomic(using=job_database()):
        old = Token.objects.select_for_update().filter(pk=token_id).first()
        if old is None:
            raise LookupError(f"there is no token {token_id}.")
        now = timezone.now()
        if state_of(old, now) != "valid":
            raise ValueError(f"token {token_id} is not good any more: make another one.")
        if old.successor_id is not None:
            raise ValueError(
                f"token {token_id} was rotated: rotate its successor, token {old.successor_id}."
            )
        scope = TokenScope(
            verbs=old.verbs,
            queues=old.queues,
            tasks=old.tasks,
            per_second=old.per_second,
            expires_at=now + (old.expires_at - old.created_at) if old.expires_at else None,
        )
        made = create_token(old.name, scope, by=by)
        old.successor_id = made[0].pk
        old.expires_at = min(old.expires_at or now + keep, now + keep)
        old.save(update_fields=["successor_id", "expires_at"])
    known_tokens.forget()
    return made


def state_of(token: Token, now: datetime) -> str:
    """Return valid, expired or revoked."""
    if token.revoked_at is not None:
        return "revoked"
    is_over = token.expires_at is not None and token.expires_at <= now
    return "expired" if is_over else "valid"


def is_name(name: str) -> bool:
    """Can a token have this name?"""
    return 1 <= len(name) <= MAX_NAME and name.isprintable() and is_storable(name)


def _is_queue(name: str) -> bool:
    return fits_column(name, MAX_QUEUE_NAME_BYTES)


def _is_path(path: str) -> bool:
    return fits_column(path, MAX_TASK_PATH_BYTES) and is_dotted(path)


def _names(names: Sequence[str] | None) -> list[str] | None:
    return None if names is None else sorted(set(names))
