"""`manage.py jobs pause` and `resume`: a queue, a task or a concurrency key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django_pgjobs.control import pauses
from django_pgjobs.management.arguments import (
    add_action,
    end_in_words,
    examples,
    instant,
    refuse_past,
    span,
)
from django_pgjobs.management.printing import Write
from django_pgjobs.management.spelling import tell_doubts
from django_pgjobs.models import Pause
from django_pgjobs.queries.database import rows_of
from django_pgjobs.status import PauseKind
from django_pgjobs.values.payload import is_storable

AT_MOST = f"at most {pauses.MAX_REASON} characters"


def add_pausing(actions: Any) -> None:
    """Add the actions to those of `jobs`."""
    pause = add_action(
        actions,
        "pause",
        help="Let no worker start jobs of a queue, task or key.",
        description="Lets no worker start jobs of a queue, task or key. What runs goes on.",
        epilog=examples(
            "pause --queue mail --for 30m --reason 'spam wave'",
            "pause --key 'shop:*' --until 2026-12-24T18:00",
        ),
    )
    resume = add_action(
        actions,
        "resume",
        help="End a pause.",
        epilog=examples("resume --queue mail", "resume --key 'shop:*'"),
    )
    for parser in (pause, resume):
        target = parser.add_mutually_exclusive_group(required=True)
        target.add_argument("--queue", metavar="NAME", help="The jobs of a queue.")
        target.add_argument("--task", metavar="PATH", help="The jobs of a task: shop.tasks.push.")
        target.add_argument(
            "--key", metavar="KEY", help="Those of a concurrency key, or a pattern: 'shop:*'."
        )
    _add_terms(pause)


def _add_terms(pause: Any) -> None:
    """Add why, by whom and until when."""
    pause.add_argument(
        "--reason", default="", metavar="TEXT", help=f"Why, for others to read: {AT_MOST}."
    )
    pause.add_argument(
        "--by", default="", metavar="NAME", help=f"Your name, for others: {AT_MOST}."
    )
    end = pause.add_mutually_exclusive_group()
    end.add_argument(
        "--for", type=span, dest="until", metavar="10m", help="Resume by itself after: s m h d."
    )
    end.add_argument(
        "--until",
        type=instant,
        metavar="TIME",
        help="Resume by itself at 2026-12-24T18:00, in the TIME_ZONE of the settings.",
    )


def pause(write: Write, tell: Write, **flags: Any) -> None:
    """Pause something, and print whether that is new and what held before."""
    refuse_past("--until", flags["until"], "`jobs resume` ends a pause.")
    kind, name = _target_of(flags)
    tell_doubts(tell, queues=[flags["queue"]], tasks=[flags["task"]])
    replaced = _pause_of(kind, name)
    until = flags["until"]
    changed = pauses.pause(**{kind: name}, reason=flags["reason"], by=flags["by"], until=until)
    write(f"{kind} {name}: {f'paused{end_in_words(until)}' if changed else 'was paused like this'}")
    if changed and replaced:
        write(f"  before: {replaced}")


def resume(write: Write, **flags: Any) -> None:
    """End a pause, and print whether there was one, and which others still hold the key."""
    kind, name = _target_of(flags)
    changed = pauses.resume(**{kind: name})
    write(f"{kind} {name}: {'resumed' if changed else 'was not paused'}")
    if kind == PauseKind.KEY:
        for other in _patterns_of(name):
            write(f"  key {other.name} still holds it: {_told(other)}")


def pause_text(by: str, why: str, end: datetime | None = None) -> str:
    """Return who paused something, until when and why, as far as that is known."""
    said = f"paused by {by}" if by else "paused"
    return f"{said}{end_in_words(end)}{f': {why}' if why else ''}"


def _told(row: Pause) -> str:
    return pause_text(row.paused_by, row.reason, row.resume_at)


def _target_of(flags: Mapping[str, Any]) -> tuple[str, str]:
    [target] = ((kind.value, flags[kind]) for kind in PauseKind if flags[kind] is not None)
    return target


def _pause_of(kind: str, name: str) -> str:
    """Return who paused something, until when and why, "" if it is not paused."""
    if not is_storable(name):
        return ""
    row = rows_of(Pause).filter(Pause.that_holds(), kind=kind, name=name).first()
    return "" if row is None else _told(row)


def _patterns_of(key: str) -> list[Pause]:
    """Return the pauses of patterns that keep the jobs of a key, or of a narrower pattern."""
    rows = rows_of(Pause).filter(Pause.that_holds(), kind=PauseKind.KEY, name__contains="*")
    return [row for row in rows.order_by("name") if row.name != key and _is_of(row.name, key)]


def _is_of(pattern: str, key: str) -> bool:
    form = ".*".join(map(re.escape, pattern.split("*")))
    return re.fullmatch(form, key, re.DOTALL) is not None
