"""`manage.py jobs schedules`: what is due when, and what people do about it."""

from __future__ import annotations

from collections.abc import Set
from datetime import UTC, datetime
from functools import partial
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.utils import timezone

from django_pgjobs.declaring.registry import discover_tasks
from django_pgjobs.declaring.schedules import declared_schedules
from django_pgjobs.management.arguments import (
    JSON,
    LIST,
    add_action,
    add_verbs,
    end_instant,
    examples,
    instant,
    whole_number,
)
from django_pgjobs.management.enqueueing import read_arguments
from django_pgjobs.management.pausing import pause_text
from django_pgjobs.management.printing import Write, in_english, json_text, write_table
from django_pgjobs.management.schedule_import import SOURCES, import_schedules
from django_pgjobs.models import Schedule
from django_pgjobs.occurrences.planning import Planned
from django_pgjobs.queries.database import rows_of
from django_pgjobs.schedules import control
from django_pgjobs.schedules.plans import rule_of
from django_pgjobs.schedules.skipping import next_kept, skipped_ahead, unskip
from django_pgjobs.schedules.words import MARKS, is_infinite, state_of, when_of
from django_pgjobs.values.moments import aware

HEADS = ("name", "state", "when", "next", "last", "runs")
DESCRIPTION = """
Lists all schedules. With a verb it says when they are due, or changes one.

  state  active, paused, late: no worker took it in time; failing and broken: it has an error, told
         below, with which it goes on or cannot; ended; retired: no worker declares it any more
  when   its rule; with * where a person has changed what code declares
  next   its next occurrence; not planned: no worker has looked at it since it was changed
  runs   those by its plan, not those by hand
"""
EPILOG = """
examples:
  manage.py jobs schedules next nightly --after 2026-03-28T00:00
  manage.py jobs schedules run nightly --args '["week"]'
  manage.py jobs schedules pause nightly --reason "until the migration"
  manage.py jobs schedules skip nightly
"""


GONE = "there is no such schedule"
# Verb -> what it does, an example, and when it fails.
VERBS = {
    "run": (
        "Enqueue a job of a schedule now.",
        "schedules run nightly --args '[\"week\"]'",
        GONE,
    ),
    "pause": (
        "Pause a schedule: what is due meanwhile never comes.",
        "schedules pause nightly --reason 'until the migration'",
        GONE,
    ),
    "resume": ("End the pause of a schedule.", "schedules resume nightly", GONE),
    "skip": ("Skip the next occurrence.", "schedules skip nightly --by ann", GONE),
    "unskip": ("Undo the skips of occurrences still to come.", "schedules unskip nightly", GONE),
    "backfill": (
        f"Enqueue up to {control.MAX_BACKFILL} past occurrences without a job.",
        "schedules backfill nightly --from 2026-03-01 --until 2026-03-07 --dry-run",
        f"{GONE}, or some occurrences could not be enqueued",
    ),
}
OF_IMPORT = """
Reads the schedules of django-celery-beat or django-q2, whose app and tables are still there, and
makes rows of ours of them, in one transaction; theirs stay. It prints what becomes of each: one
whose name is taken stays as it is, so the command may be run again, and one that cannot be the same
here is not taken, and says why. Stop the other scheduler before these are due.
"""


def add_schedules(actions: Any) -> None:
    """Add the action to those of `jobs`."""
    parser = add_action(
        actions,
        "schedules",
        help="Look at schedules, run, pause and skip them.",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    verbs = add_verbs(parser, JSON, help="List all schedules, as without a verb.")
    _add_next(verbs)
    run, pause, resume, skip, unskip, filling = (
        add_action(verbs, name, help=does, epilog=examples(example), fails=fails)
        for name, (does, example, fails) in VERBS.items()
    )
    run.add_argument(
        "--args",
        metavar="JSON",
        dest="arguments",
        help="Other arguments for this job: a list, or an object (default: those of the schedule).",
    )
    for each in (run, pause, resume, skip, unskip, filling):
        each.add_argument("name", help="The name of the schedule.")
    for each in (run, pause, skip, filling):
        each.add_argument("--by", default="", metavar="NAME", help="Your name, for others.")
    pause.add_argument("--reason", default="", metavar="TEXT", help="Why, for others to read.")
    _add_range(filling)
    _add_import(verbs)


def _add_next(verbs: Any) -> None:
    following = add_action(
        verbs,
        "next",
        help="Print when schedules are due next.",
        epilog=examples("schedules next", "schedules next nightly --after 2026-03-28T00:00"),
        fails=GONE,
    )
    following.add_argument("name", nargs="?", help="Only this one (default: all).")
    following.add_argument(
        "--count",
        type=partial(whole_number, most=control.MAX_PREVIEW),
        default=5,
        metavar="N",
        help=f"Of each, 1 to {control.MAX_PREVIEW} (default: 5).",
    )
    following.add_argument(
        "--after", type=instant, metavar="TIME", help="After 2026-03-28T00:00 (default: now)."
    )


def _add_range(parser: CommandParser) -> None:
    form = "2026-03-28T00:00 in TIME_ZONE, or with Z or +02:00. Included."
    for flag, name, reads, said in (
        ("--from", "begin", instant, "The first, such as"),
        ("--until", "end", end_instant, "The last; of a date alone its end. Such as"),
    ):
        parser.add_argument(
            flag, type=reads, required=True, dest=name, metavar="TIME", help=f"{said} {form}"
        )
    parser.add_argument("--dry-run", action="store_true", help="List them, and enqueue nothing.")


def _add_import(verbs: Any) -> None:
    taking = add_action(
        verbs,
        "import",
        help="Import the schedules of another scheduler.",
        description=OF_IMPORT,
        epilog=examples("schedules import celery-beat --dry-run", "schedules import django-q2"),
        fails="its app is not installed, or some schedules were not taken",
    )
    taking.add_argument("source", choices=sorted(SOURCES), help="Its app is still installed.")
    taking.add_argument("--dry-run", action="store_true", help="List them, and import none.")


def handle(write: Write, *, verb: str, **flags: Any) -> None:
    """Do what the flags say; raise CommandError or ValueError if that is not possible."""
    discover_tasks()
    name: Any = flags.get("name")
    verbs = {
        LIST: lambda: _list(write, as_json=flags["json"]),
        "next": lambda: _next(write, name, flags["count"], flags["after"]),
        "run": lambda: _run(write, name, flags["arguments"], by=flags["by"]),
        "pause": lambda: _pause(write, name, by=flags["by"], reason=flags["reason"]),
        "resume": lambda: _resume(write, name),
        "skip": lambda: _skip(write, name, by=flags["by"]),
        "unskip": lambda: _unskip(write, name),
        "backfill": lambda: _backfill(
            write, name, flags["begin"], flags["end"], by=flags["by"], is_dry=flags["dry_run"]
        ),
        "import": lambda: import_schedules(write, flags["source"], is_dry=flags["dry_run"]),
    }
    try:
        verbs[verb]()
    except LookupError as error:
        raise CommandError(str(error.args[0])) from None


# Looking


def _list(write: Write, *, as_json: bool) -> None:
    rows = list(rows_of(Schedule).order_by("name"))
    skipped = skipped_ahead(row.name for row in rows)
    if as_json:
        write(json_text([_as_json(row, skipped.get(row.name, [])) for row in rows]))
        return
    cells = [_cells(row, skipped.get(row.name, [])) for row in rows]
    write_table(write, HEADS, cells, nothing="the table has no schedules.")
    for row in rows:
        if row.error:
            write(f"{row.name}: {row.error}")
        if row.paused_at is not None:
            write(f"{row.name}: {pause_text(row.paused_by, row.pause_reason)}")
        if state_of(row) == "late":
            write(f"{row.name}: late, no worker took it")
        if row.name in skipped:
            write(f"{row.name}: skips {', '.join(map(_short, skipped[row.name]))}")
    _tell_of_missing(write, {row.name for row in rows})


def _tell_of_missing(write: Write, known: Set[str]) -> None:
    missing = sorted(declared_schedules().keys() - known)
    if missing:
        write(f"not in the table until a worker starts: {', '.join(missing)}")


def _cells(row: Schedule, skipped: list[datetime]) -> tuple[str, ...]:
    changed = "*" if row.changed_fields else ""
    return (
        row.name,
        state_of(row),
        when_of(row) + changed,
        _short(_next_at(row, skipped)),
        _short(row.last_at),
        str(row.runs),
    )


def _as_json(row: Schedule, skipped: list[datetime]) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": row.name, "task_path": row.task_path}
    shown["state"] = state_of(row)
    for name in ("cron", "every", "timezone", "runs", "last_job_id", "changed_fields", "error"):
        shown[name] = getattr(row, name)
    for name in ("paused_by", "pause_reason"):
        shown[name] = getattr(row, name)
    shown["next_at"] = _iso(_next_at(row, skipped))
    for name in ("last_at", "paused_at", "retired_at"):
        shown[name] = _iso(getattr(row, name))
    shown["skipped"] = [each.isoformat() for each in skipped]
    return shown


def _next_at(row: Schedule, skipped: list[datetime]) -> datetime | None:
    return None if row.paused_at or row.retired_at else next_kept(row, skipped)


def _iso(value: datetime | None) -> str | None:
    """Return an instant for programs; an infinite one, of what is not planned, is none."""
    return None if value is None or is_infinite(value) else aware(value).isoformat()


@in_english()
def _next(write: Write, name: str | None, count: int, after: datetime | None) -> None:
    if name is not None:
        schedules = [control.get_schedule(name)]
    else:
        schedules = list(rows_of(Schedule).filter(retired_at=None).order_by("name"))
    for schedule in schedules:
        write(f"{schedule.name}: {when_of(schedule)}, {state_of(schedule)}")
        try:
            planned = control.upcoming(schedule, count, after=after)
        except ValueError as error:
            write(f"  {error}")
            continue
        for each in planned:
            write(f"  {_in_zone(schedule, each)}")
        if not planned:
            write("  nothing is to come")
    if name is None:
        _tell_of_missing(write, set(rows_of(Schedule).values_list("name", flat=True)))


def _in_zone(schedule: Schedule, planned: Planned) -> str:
    zone = rule_of(schedule).zone
    text = planned.at.astimezone(zone).isoformat(" ", "seconds")
    if zone.key != "UTC":
        text = f"{text}  {planned.at.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"
    return f"{text}  {MARKS[planned.mark]}".rstrip()


# Changing


def _run(write: Write, name: str, given: str | None, *, by: str) -> None:
    arguments = None if given is None else read_arguments(given)
    job_id, is_new = control.run_now(name, by=by, arguments=arguments)
    said = f"enqueued job {job_id}"
    if not is_new:
        said = f"nothing enqueued, already there: job {job_id} has the unique key"
    write(f"schedule {name}: {said}")


def _pause(write: Write, name: str, *, by: str, reason: str) -> None:
    changed = control.pause_schedule(name, by=by, reason=reason)
    write(f"schedule {name}: {'paused' if changed else 'was paused before'}")


def _resume(write: Write, name: str) -> None:
    changed = control.resume_schedule(name)
    write(f"schedule {name}: {'resumed' if changed else 'was not paused'}")


def _skip(write: Write, name: str, *, by: str) -> None:
    skipped = control.skip_next(name, by=by)
    write(f"schedule {name}: skips {_short(skipped)}")


def _unskip(write: Write, name: str) -> None:
    taken_back = unskip(name)
    times = ", ".join(map(_short, taken_back))
    said = f"does not skip {times} any more" if taken_back else "skipped nothing to come"
    write(f"schedule {name}: {said}")


def _backfill(
    write: Write, name: str, begin: datetime, end: datetime, *, by: str, is_dry: bool
) -> None:
    if is_dry:
        instants = control.occurrences_to_backfill(name, begin, end)
        for each in instants:
            write(_short(each))
        why = "" if instants else _why_none(name, begin, end)
        write(f"schedule {name}: {len(instants)} would be enqueued{why}")
        return
    found = control.backfill(name, begin, end, by=by)
    why = "" if any(found) else _why_none(name, begin, end)
    write(
        f"schedule {name}: {found.enqueued} enqueued, {found.joined} joined a job that was "
        f"already there, {found.known} were known, {found.failed} failed{why}"
    )
    if found.failed:
        raise CommandError(f"{found.failed} occurrences could not be enqueued.")


def _why_none(name: str, begin: datetime, end: datetime) -> str:
    """Return what of a schedule's own bounds lets a range have no occurrence."""
    row = control.get_schedule(name)
    if row.ends_at is not None and aware(row.ends_at) <= begin:
        return f": it ended at {_short(row.ends_at)}"
    if row.starts_at is not None and aware(row.starts_at) > end:
        return f": it starts at {_short(row.starts_at)}"
    return ": no occurrence in this range needs a job"


def _short(value: datetime | None) -> str:
    """Return an instant in the current time zone."""
    if value is None:
        return "-"
    if is_infinite(value):
        return "not planned"
    return timezone.localtime(aware(value)).isoformat(" ", "seconds")
