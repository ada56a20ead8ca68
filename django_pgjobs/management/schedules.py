"""`manage.py jobs schedules`: what is due when, and what people do about it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.utils import timezone

from django_pgjobs.declaring.registry import discover_tasks
from django_pgjobs.declaring.schedules import declared_schedules
from django_pgjobs.management.arguments import instant, whole_number
from django_pgjobs.management.enqueueing import read_arguments
from django_pgjobs.management.printing import Write, json_text, write_table
from django_pgjobs.management.schedule_import import SOURCES, import_schedules
from django_pgjobs.models import Schedule
from django_pgjobs.recurring.planning import Planned
from django_pgjobs.schedules import control
from django_pgjobs.schedules.plans import rule_of
from django_pgjobs.schedules.words import MARKS, state_of, when_of

HEADS = ("name", "state", "when", "next", "last", "runs")


def add_schedules(actions: Any) -> None:
    """Add the action to those of `jobs`."""
    parser = actions.add_parser("schedules", help="Look at schedules, run, pause and skip them.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    listing = verbs.add_parser("list", help="List all schedules.")
    listing.add_argument("--json", action="store_true", help="Print JSON for programs.")
    following = verbs.add_parser("next", help="Print when schedules are due next.")
    following.add_argument("name", nargs="?", help="Only this one (default: all).")
    following.add_argument(
        "--count", type=whole_number, default=5, metavar="N", help="Of each, at most 1000."
    )
    following.add_argument(
        "--after", type=instant, metavar="TIME", help="After 2026-03-28T00:00 (default: now)."
    )
    run = verbs.add_parser("run", help="Enqueue a job of a schedule now.")
    run.add_argument(
        "--args",
        metavar="JSON",
        dest="arguments",
        help="Other arguments this once: a list, or an object.",
    )
    pause = verbs.add_parser("pause", help="Let a schedule enqueue nothing.")
    resume = verbs.add_parser("resume", help="End the pause of a schedule.")
    skip = verbs.add_parser("skip", help="Let the next occurrence have no job.")
    filling = verbs.add_parser("backfill", help="Enqueue past occurrences that have no job.")
    for each in (run, pause, resume, skip, filling):
        each.add_argument("name")
    for each in (run, pause, skip, filling):
        each.add_argument("--by", default="", metavar="NAME", help="Who, for others to read.")
    pause.add_argument("--reason", default="", metavar="TEXT", help="Why, for others to read.")
    _add_range(filling)
    taking = verbs.add_parser("import", help="Make schedules of those of another scheduler.")
    taking.add_argument("source", choices=sorted(SOURCES))
    taking.add_argument("--dry-run", action="store_true", help="Say which, and make none.")


def _add_range(parser: CommandParser) -> None:
    parser.add_argument(
        "--from", type=instant, required=True, dest="begin", metavar="TIME", help="The first."
    )
    parser.add_argument(
        "--until", type=instant, required=True, dest="end", metavar="TIME", help="The last."
    )
    parser.add_argument("--dry-run", action="store_true", help="Say which, and enqueue nothing.")


def handle(write: Write, *, verb: str, **flags: Any) -> None:
    """Do what the flags say; raise CommandError or ValueError if that is not possible."""
    discover_tasks()
    verbs = {
        "list": _list,
        "next": _next,
        "run": _run,
        "pause": _pause,
        "resume": _resume,
        "skip": _skip,
        "backfill": _backfill,
        "import": import_schedules,
    }
    try:
        verbs[verb](write, flags)
    except LookupError as error:
        raise CommandError(str(error.args[0])) from None


# Looking


def _list(write: Write, flags: dict[str, Any]) -> None:
    rows = list(Schedule._default_manager.order_by("name"))
    if flags["json"]:
        write(json_text([_as_json(row) for row in rows]))
        return
    write_table(write, HEADS, map(_cells, rows))
    for row in rows:
        if row.error:
            write(f"{row.name}: {row.error}")
    missing = sorted(declared_schedules().keys() - {row.name for row in rows})
    if missing:
        write(f"not in the table until a worker starts: {', '.join(missing)}")


def _cells(row: Schedule) -> tuple[str, ...]:
    changed = "*" if row.changed_fields else ""
    return (
        row.name,
        state_of(row),
        when_of(row) + changed,
        _short(None if row.paused_at or row.retired_at else row.next_at),
        _short(row.last_at),
        str(row.runs),
    )


def _as_json(row: Schedule) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": row.name, "task": row.task_path, "state": state_of(row)}
    for name in ("cron", "every", "timezone", "runs", "last_job_id", "changed_fields", "error"):
        shown[name] = getattr(row, name)
    for name in ("next_at", "last_at", "paused_at", "retired_at"):
        value = getattr(row, name)
        shown[name] = None if value is None else value.isoformat()
    return shown


def _next(write: Write, flags: dict[str, Any]) -> None:
    count = min(flags["count"], control.MAX_PREVIEW)
    if flags["name"] is not None:
        schedules = [control.get_schedule(flags["name"])]
    else:
        schedules = list(Schedule._default_manager.filter(retired_at=None).order_by("name"))
    for schedule in schedules:
        write(f"{schedule.name}: {when_of(schedule)}, {state_of(schedule)}")
        try:
            planned = control.upcoming(schedule, count, after=flags["after"])
        except ValueError as error:
            write(f"  {error}")
            continue
        for each in planned:
            write(f"  {_in_zone(schedule, each)}")
        if not planned:
            write("  nothing is to come")


def _in_zone(schedule: Schedule, planned: Planned) -> str:
    zone = rule_of(schedule).zone
    text = planned.at.astimezone(zone).isoformat(" ", "seconds")
    if zone.key != "UTC":
        text = f"{text}  {planned.at.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"
    return f"{text}  {MARKS[planned.mark]}".rstrip()


# Changing


def _run(write: Write, flags: dict[str, Any]) -> None:
    given = flags["arguments"]
    arguments = None if given is None else read_arguments(given)
    job_id = control.run_now(flags["name"], by=flags["by"], arguments=arguments)
    write(f"schedule {flags['name']}: enqueued job {job_id}")


def _pause(write: Write, flags: dict[str, Any]) -> None:
    changed = control.pause_schedule(flags["name"], by=flags["by"], reason=flags["reason"])
    write(f"schedule {flags['name']}: {'paused' if changed else 'was paused before'}")


def _resume(write: Write, flags: dict[str, Any]) -> None:
    changed = control.resume_schedule(flags["name"])
    write(f"schedule {flags['name']}: {'resumed' if changed else 'was not paused'}")


def _skip(write: Write, flags: dict[str, Any]) -> None:
    skipped = control.skip_next(flags["name"], by=flags["by"])
    write(f"schedule {flags['name']}: skips {_short(skipped)}")


def _backfill(write: Write, flags: dict[str, Any]) -> None:
    name, begin, end = flags["name"], flags["begin"], flags["end"]
    if flags["dry_run"]:
        for each in control.occurrences_to_backfill(name, begin, end):
            write(_short(each))
        return
    found = control.backfill(name, begin, end, by=flags["by"])
    write(
        f"schedule {name}: {found.enqueued} enqueued, {found.known} were known, "
        f"{found.failed} failed"
    )
    if found.failed:
        raise CommandError(f"{found.failed} occurrences could not be enqueued.")


def _short(value: datetime | None) -> str:
    """Return an instant in the current time zone."""
    if value is None:
        return "-"
    if value.year in (1, 9999):
        return "soon"
    return timezone.localtime(value).isoformat(" ", "seconds")
