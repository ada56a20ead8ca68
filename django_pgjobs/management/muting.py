"""`manage.py jobs mute`, `unmute` and `mutes`: warnings that are known."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django_pgjobs import mutes
from django_pgjobs.control.pauses import MAX_REASON
from django_pgjobs.management.arguments import (
    add_action,
    end_in_words,
    examples,
    instant,
    span,
)
from django_pgjobs.management.printing import (
    Write,
    in_english,
    json_text,
    local_time,
    width_of,
    write_table,
)
from django_pgjobs.management.reading import Slow, read_warnings, reading
from django_pgjobs.models import Mute
from django_pgjobs.mutes import MuteForm, mute, unmute
from django_pgjobs.queries.database import rows_of
from django_pgjobs.values.moments import now_aware
from django_pgjobs.values.payload import is_storable
from django_pgjobs.values.words import CONTROL
from django_pgjobs.warnings.notices import KINDS, MAX_NAMED

HEADS = ("kind", "subject", "until", "by", "reason")
DESCRIPTION = """
Mutes a warning of `jobs doctor`, for everybody, also on the Overview of the admin. Kind and subject
are those in brackets behind it. It is told below the others then, and counts for no exit status.
"""
EPILOG = """
examples:
  manage.py jobs doctor
  manage.py jobs mute unserved reports --for 2h --reason 'new queue' --by ann
  manage.py jobs mute versions --until 2026-12-24T18:00 --reason 'slow rollout'
  manage.py jobs mutes
  manage.py jobs unmute unserved reports

kinds: docs/admin-overview.md says when each is told.
"""


def add_muting(actions: Any) -> None:
    """Add the actions to those of `jobs`."""
    muting = add_action(
        actions,
        "mute",
        help="Mute a warning of the doctor for a while.",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    showing = add_action(
        actions,
        "unmute",
        help="Show a muted warning again.",
        epilog=examples("unmute unserved reports"),
    )
    for parser in (muting, showing):
        parser.add_argument("kind", choices=list(KINDS), metavar="kind", help="Such as unserved.")
        parser.add_argument(
            "subject", nargs="?", default="", help="What it is about, if it says so: a queue."
        )
    _add_terms(muting)
    listing = add_action(
        actions,
        "mutes",
        help="List what is muted.",
        epilog=examples("mutes", "mutes --json | jq '.[].mute_reason'"),
    )
    listing.add_argument("--json", action="store_true", help="Print JSON for programs.")


def _add_terms(muting: Any) -> None:
    """Add why, by whom and until when."""
    muting.add_argument(
        "--reason",
        required=True,
        metavar="TEXT",
        help=f"Why, for others to read: at most {mutes.MAX_REASON} characters.",
    )
    muting.add_argument(
        "--by",
        default="",
        metavar="NAME",
        help=f"Your name, for others: at most {MAX_REASON} characters.",
    )
    end = muting.add_mutually_exclusive_group(required=True)
    end.add_argument("--for", type=span, dest="until", metavar="2h", help="How long: s m h d.")
    end.add_argument(
        "--until",
        type=instant,
        metavar="TIME",
        help="Until 2026-12-24T18:00, in the TIME_ZONE of the settings; within a year.",
    )


def name_of(kind: str, subject: str) -> str:
    """Return what a warning is about, as words of a command line."""
    return shlex.join([kind, *([subject] if subject else [])])


@in_english()
def mute_warning(write: Write, tell: Write, **flags: Any) -> None:
    """Mute a warning, and print what held before; raise ValueError for what is refused.

    *tell* gets a doubt whether there is such a warning.
    """
    by, until = flags["by"], flags["until"]
    if len(by) > MAX_REASON or not is_storable(by):
        raise ValueError(f"--by expected at most {MAX_REASON} characters without NUL.")
    form = MuteForm({name: flags[name] for name in ("kind", "subject", "reason")} | _end(until))
    if not form.is_valid():
        raise ValueError(" ".join(_refusals(form, until)))
    before = _holding().filter(kind=flags["kind"], subject=flags["subject"]).first()
    mute(form, by=by)
    write(f"{name_of(flags['kind'], flags['subject'])}: muted{end_in_words(until)}")
    if before is not None:
        said = f" by {before.muted_by}" if before.muted_by else ""
        text = f"  before:{said} until {local_time(before.until)}: {before.reason}"
        write(text.translate(CONTROL))
    _tell_doubt(tell, flags["kind"], flags["subject"])


def _tell_doubt(tell: Write, kind: str, subject: str) -> None:
    """Warn if nothing is wrong of which the mute tells; it may be over, or be still to come."""
    try:
        _, notices = read_warnings()
    except Slow:
        return
    if (kind, subject) not in {(notice.kind, notice.subject) for notice in notices}:
        names = sorted({name_of(kind, each.subject) for each in notices if each.kind == kind})
        others = f" Of this kind there are: {', '.join(names[:MAX_NAMED])}." if names else ""
        said = f"nothing is wrong now that {name_of(kind, subject)} names.{others}"
        tell(f"WARNING {said}".translate(CONTROL))


def unmute_warning(write: Write, **flags: Any) -> None:
    """Let a warning be told as any other, and print whether it was muted."""
    kind, subject = flags["kind"], flags["subject"]
    is_news = unmute(kind, subject)
    write(f"{name_of(kind, subject)}: {'shown again' if is_news else 'was not muted'}")


def list_mutes(write: Write, screen: Any, **flags: Any) -> None:
    """Print what is muted now."""
    with reading():
        rows = list(_holding().order_by("kind", "subject"))
    if flags["json"]:
        write(json_text([_as_values(row) for row in rows]))
        return
    cells = [(row.kind, row.subject, row.until, row.muted_by, row.reason) for row in rows]
    write_table(write, HEADS, cells, nothing="no warning is muted.", width=width_of(screen))


def _end(until: datetime | timedelta) -> dict[str, datetime]:
    return {"until": now_aware() + until if isinstance(until, timedelta) else until}


def _refusals(form: MuteForm, until: datetime | timedelta) -> Iterator[str]:
    flags = {"reason": "--reason: ", "until": "--until: "}
    if isinstance(until, timedelta):
        flags["until"] = "--for: "
    for field, texts in form.errors.items():
        where = flags.get(field, "")
        yield from (f"{where}{text}" for text in texts)


def _holding() -> Any:
    return rows_of(Mute).filter(until__gt=now_aware())


def _as_values(row: Mute) -> dict[str, Any]:
    return {
        "kind": row.kind,
        "subject": row.subject,
        "muted_until": row.until,
        "muted_by": row.muted_by,
        "muted_at": row.muted_at,
        "mute_reason": row.reason,
    }
