"""Conditions on jobs that can be written as JSON, for the list, its filters and bulk changes.

A lookup is a field of Job with one of the operators of its kind, such as "queue_name" or
"attempts__gte", or one of these, which are no fields:

- "tag": one of the job's tags; "worker": one of the workers of its attempts
- "key": its concurrency key or its unique key
- "error": a text in the class or the message of its last error
- "error_class", "error_message": the group of its last error (`failure_groups`)
- "argument": {"path": ["a", "b"], "value": ...}; a path that begins with a number is among the
  positional arguments. A list or an object is not found by its text: it may hold masked values
- "batch": in that batch; "tree": in it or below it; "large_tree": the same, without the index
- "follows_failure": true or false, see `batch_states.follows_failure`
- "duration__gte", "duration__lte": seconds that its last attempt took
- "any_of", "all_of": a list of dicts of lookups

Nothing else is accepted: a lookup may come back from a browser.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import reduce
from operator import and_, or_
from typing import Any

from django.db.models import BooleanField, F, FloatField, Func, Q, TextField, Value
from django.db.models.lookups import Exact, GreaterThanOrEqual, IContains, LessThanOrEqual
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from django_pgjobs.declaring.redaction import is_secret
from django_pgjobs.models.batch_states import follows_failure, in_batches, in_tree
from django_pgjobs.models.failure_groups import (
    error_class_expression,
    error_message_expression,
    last_error_expression,
)
from django_pgjobs.models.fields import TextArrayField
from django_pgjobs.values.bounds import MAX_BIGINT, is_number, is_whole
from django_pgjobs.values.payload import in_utc, is_storable

# Jobs that can be named one by one.
MAX_IDS = 10_000
MAX_TEXT = 2_000
MAX_DEPTH = 5
MAX_PATH = 20

NUMBERS = ("id", "worker_id", "attempts", "max_attempts", "lost_count", "priority", "merged_count")
TEXTS = (
    "status", "queue_name", "task_path", "backend", "correlation_id", "note", "hold",
    "concurrency_key", "unique_key", "rate_limit_keys", "subject", "schedule",
)  # fmt: skip
TIMES = (
    "enqueued_at", "run_after", "due_at", "ready_at", "started_at", "last_attempted_at",
    "finished_at", "expires_at", "cancel_requested_at", "scheduled_for",
)  # fmt: skip
ORDER = ("lt", "lte", "gt", "gte")
PARTS = ("startswith", "istartswith", "endswith", "iendswith", "contains", "icontains", "iexact")


class InvalidLookup(ValueError):
    """A lookup that nothing of ours can have made."""


def conditions(lookups: Mapping[str, Any], *, depth: int = 0) -> Q:
    """Return what *lookups* say, all of it; raise InvalidLookup for anything unknown."""
    if not isinstance(lookups, Mapping) or depth > MAX_DEPTH:
        raise InvalidLookup(f"expected a dict of lookups, got {lookups!r:.80}.")
    found = Q()
    for name, value in lookups.items():
        if name in ("any_of", "all_of"):
            found &= _combined(name, value, depth)
        elif name in SPECIAL:
            found &= Q(SPECIAL[name](value))
        else:
            found &= _plain(name, value)
    return found


def names_masked(lookups: Mapping[str, Any]) -> bool:
    """Do the lookups tell something of values that PGJOBS["REDACT"] masks?

    Whoever may not see those values must not find jobs by them either.
    """
    parts = [*lookups.get("any_of", ()), *lookups.get("all_of", ())]
    path = lookups.get("argument", {}).get("path", ())
    return any(map(is_secret, path)) or any(map(names_masked, parts))


def _combined(name: str, value: Any, depth: int) -> Q:
    if not isinstance(value, list) or not 0 < len(value) <= 100:
        raise InvalidLookup(f"expected {name} to be a list of lookups, got {value!r:.80}.")
    join = or_ if name == "any_of" else and_
    return reduce(join, (conditions(each, depth=depth + 1) for each in value))


def _plain(name: str, value: Any) -> Q:
    """Return the condition of a lookup on a field."""
    field, separator, operator = str(name).partition("__")
    if field not in CHECKS or (separator and not operator):
        raise InvalidLookup(f"expected a known lookup, got {name!r:.80}.")
    check, operators = CHECKS[field]
    if operator in ("", "exact", *operators):
        given = check(value)
    elif operator == "isnull":
        given = _flag(value)
    elif operator == "in" and isinstance(value, list) and len(value) <= MAX_IDS:
        given = [check(item) for item in value]
    else:
        raise InvalidLookup(f"expected a known lookup, got {name!r:.80} = {value!r:.80}.")
    return Q(**{name: given})


def _number(value: Any) -> int:
    if not is_whole(value) or not -MAX_BIGINT - 1 <= value <= MAX_BIGINT:
        raise InvalidLookup(f"expected a whole number, got {value!r:.80}.")
    return value


def _seconds(value: Any) -> float:
    if not is_number(value) or not 0 <= value < 1e11:
        raise InvalidLookup(f"expected seconds, got {value!r:.80}.")
    return float(value)


def _text(value: Any) -> str:
    if not is_storable(value) or len(value) > MAX_TEXT:
        raise InvalidLookup(
            f"expected text without NUL, of at most {MAX_TEXT} characters, got {value!r:.80}."
        )
    return str(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidLookup(f"expected true or false, got {value!r:.80}.")
    return value


def _moment(value: Any) -> datetime:
    """Return an instant, given as one or as ISO text."""
    try:
        moment = parse_datetime(value) if isinstance(value, str) else value
    except ValueError:
        moment = None
    if not isinstance(moment, datetime):
        raise InvalidLookup(f"expected a date and a time, got {value!r:.80}.")
    return in_utc(timezone.make_aware(moment) if timezone.is_naive(moment) else moment)


def _among(column: str) -> Callable[[Any], Func]:
    """Return what makes the condition that a text is one of those of an array."""

    def condition(value: Any) -> Func:
        text = Value(_text(value), output_field=TextField())
        return Func(
            text,
            F(column),
            template="(%(expressions)s))",
            arg_joiner=" = ANY (",
            output_field=BooleanField(),
        )

    return condition


def _key(value: Any) -> Q:
    return Q(concurrency_key=_text(value)) | Q(unique_key=_text(value))


def _error(value: Any) -> Any:
    return IContains(last_error_expression(), _text(value))


def _argument(value: Any) -> Any:
    """Return the condition that an argument, or a value inside one, reads like the given one."""
    path = value.get("path") if isinstance(value, Mapping) else None
    if not isinstance(path, list) or not 0 < len(path) <= MAX_PATH or "value" not in value:
        raise InvalidLookup(f"expected a path and a value, got {value!r:.80}.")
    steps = [_text(step) for step in path]
    place = F("args" if steps[0].isdecimal() else "kwargs"), Value(steps, TextArrayField())
    text = Func(
        *place, template="(%(expressions)s::text[])", arg_joiner=" #>> ", output_field=TextField()
    )
    given = value["value"]
    wanted = _text(given if isinstance(given, str) else json.dumps(given))
    if not wanted.startswith(("{", "[")):
        return Exact(text, wanted)
    kind = Func(
        *place,
        template="json_typeof(%(expressions)s::text[])",
        arg_joiner=" #> ",
        output_field=TextField(),
    )
    return Q(Exact(text, wanted)) & Q(Exact(kind, "string"))


def _duration() -> Func:
    return Func(
        F("finished_at"),
        F("last_attempted_at"),
        # Not of the difference: a time may be infinite.
        template="(EXTRACT(EPOCH FROM %(expressions)s))::double precision",
        arg_joiner=") - EXTRACT(EPOCH FROM ",
        output_field=FloatField(),
    )


CHECKS: dict[str, tuple[Callable[[Any], Any], tuple[str, ...]]] = {
    **dict.fromkeys(NUMBERS, (_number, ORDER)),
    **dict.fromkeys(TEXTS, (_text, PARTS)),
    **dict.fromkeys(TIMES, (_moment, ORDER)),
}
SPECIAL: dict[str, Callable[[Any], Any]] = {
    "batch": lambda value: in_batches(Q(batch_id=_number(value))),
    "tree": lambda value: in_tree(_number(value)),
    "large_tree": lambda value: in_tree(_number(value), is_large=True),
    "follows_failure": lambda value: follows_failure() if _flag(value) else ~follows_failure(),
    "tag": _among("tags"),
    "worker": _among("worker_ids"),
    "key": _key,
    "error": _error,
    "error_class": lambda value: Exact(error_class_expression(), _text(value)),
    "error_message": lambda value: Exact(error_message_expression(), _text(value)),
    "argument": _argument,
    "duration__gte": lambda value: GreaterThanOrEqual(_duration(), _seconds(value)),
    "duration__lte": lambda value: LessThanOrEqual(_duration(), _seconds(value)),
}
