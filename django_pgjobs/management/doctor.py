"""`manage.py jobs doctor`: what is wrong now, as the Overview of the admin warns of it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.core.management.base import CommandError

from django_pgjobs.control.explain import explain
from django_pgjobs.management.arguments import add_action
from django_pgjobs.management.muting import name_of
from django_pgjobs.management.printing import Write, in_english, json_text
from django_pgjobs.management.reading import read_warnings
from django_pgjobs.queries.signs import MuteRow
from django_pgjobs.values.moments import moment_in_words
from django_pgjobs.values.words import CONTROL, counted
from django_pgjobs.warnings.notices import KINDS, OTHERS, Notice, part, shorten

DESCRIPTION = """
Says what is wrong now, the worst first: what the Overview of the admin warns of. Among that are
jobs that no worker takes, full workers, tasks that fail more than the day before, jobs that look
stuck, queues that grow, schedules with an error, lost workers, pauses, and wrong settings. All
system checks of the package are run, and on the Overview only those that load no tasks.

In brackets stands what `jobs mute` takes. What somebody has muted is told below the others, and
counts for no exit status.
"""
EPILOG = """
examples:
  manage.py jobs doctor
  out=$(manage.py jobs doctor --fail 2>&1) || echo "$out" | mail -s jobs ops@example.com
  manage.py jobs doctor --json | jq '.[] | select(.kind == "unserved" and .muted_until == null)'

docs/admin-overview.md has all kinds.
"""


def add_doctor(actions: Any) -> None:
    """Add the action to those of `jobs`."""
    parser = add_action(
        actions,
        "doctor",
        help="Say what is wrong now: jobs that nobody takes, full workers, failures, pauses.",
        description=DESCRIPTION,
        epilog=EPILOG,
        fails="with --fail, something is wrong",
    )
    parser.add_argument(
        "--fail", action="store_true", help="End with exit status 1 if something is wrong."
    )
    parser.add_argument("--json", action="store_true", help="Print JSON for programs.")


@in_english()
def diagnose(write: Write, *, fail: bool, json: bool, **flags: Any) -> None:
    """Print the warnings; raise CommandError if there are some and that was asked for."""
    situation, notices = read_warnings(_why)
    shown, muted = part(notices, situation.signs.mutes)
    shown = shorten(shown)
    if json:
        warnings = [_as_values(notice, None) for notice in shown]
        write(json_text(warnings + [_as_values(notice, mute) for notice, mute in muted]))
    else:
        for notice in shown:
            write(f"WARNING {notice.text}{_name(notice)}".translate(CONTROL))
        for notice, mute in muted:
            write(_muted_text(notice, mute, situation.facts.now).translate(CONTROL))
        if not shown:
            write("nothing else is wrong." if muted else "nothing is wrong.")
    if shown and fail:
        raise CommandError(f"{counted(len(shown), 'warning')}.")


def _why(job_id: int) -> str:
    """Return what keeps a job first of all; it may have ended by now."""
    try:
        return explain(job_id).reasons[0].text
    except LookupError:
        return "it has ended by now."


def _name(notice: Notice) -> str:
    """Return what `jobs mute` takes, "" for a warning that it does not take."""
    is_one = notice.subject != OTHERS
    return f" [{name_of(notice.kind, notice.subject)}]" if is_one else ""


def _muted_text(notice: Notice, mute: MuteRow, now: datetime) -> str:
    said = notice.text or f"{KINDS[notice.kind]}: {notice.subject}"
    until = moment_in_words(mute.until, now)
    by = f" by {mute.muted_by}" if mute.muted_by else ""
    return f"muted{by} until {until}, because: {mute.reason}: {said}"


def _as_values(notice: Notice, mute: MuteRow | None) -> dict[str, Any]:
    return {
        "kind": notice.kind,
        "subject": notice.subject,
        "text": notice.text,
        "muted_until": mute and mute.until,
        "muted_by": mute and mute.muted_by,
        "mute_reason": mute and mute.reason,
    }
