"""`manage.py jobs failures`: failed jobs by what went wrong."""

from __future__ import annotations

from typing import Any

from django_pgjobs.control.failures import MAX_JOBS, class_name, list_groups, message_of
from django_pgjobs.management.arguments import add_action
from django_pgjobs.management.printing import Write, in_english, json_text, width_of, write_table
from django_pgjobs.management.reading import reading
from django_pgjobs.queries.failures import FailureRow
from django_pgjobs.values.moments import duration, now_aware

DESCRIPTION = f"""
Prints a line per task, exception class and message, the most jobs first: what the page Failures of
the admin shows. Messages that differ in numbers, names in quotes and the like are one group; the
one shown is that of its newest job.

  jobs      failed jobs of the group that are still there, among the newest {MAX_JOBS}
  hour, day of these, those that failed within the last hour, and the last 24
  newest    how long ago one of the group last failed
  id        the id of its newest job: see `jobs show ID`

A terminal gets as much of a line as fits; a pipe or file gets all.
"""
EPILOG = """
examples:
  manage.py jobs failures
  manage.py jobs failures --newest | head
  manage.py jobs requeue --task shop.tasks.push_product --error "timed out"
  manage.py jobs failures --json | jq '.[] | select(.jobs_hour > 10)'
"""
NUMBERS = ("jobs", "hour", "day", "newest", "id")
HEADS = (*NUMBERS, "task", "error")
# What JSON has of a group as it is read.
TOLD = (
    "task_path",
    "error_message",
    "jobs",
    "jobs_hour",
    "jobs_day",
    "jobs_week",
    "first_at",
    "last_at",
    "newest_id",
)


def add_failures(actions: Any) -> None:
    """Add the action to those of `jobs`."""
    parser = add_action(
        actions,
        "failures",
        help="Show failed jobs by task, exception and message.",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    parser.add_argument("--newest", action="store_true", help="The newest first, not the most.")
    parser.add_argument("--json", action="store_true", help="Print JSON for programs.")


@in_english()
def show_failures(write: Write, screen: Any, **flags: Any) -> None:
    """Print the groups of failed jobs."""
    with reading() as cursor:
        groups = list_groups(cursor, max_jobs=MAX_JOBS, newest_first=flags["newest"])
    if flags["json"]:
        write(json_text([_as_values(group) for group in groups]))
        return
    rows, nothing = [_cells(group) for group in groups], "no job has failed."
    write_table(write, HEADS, rows, nothing=nothing, numbers=NUMBERS, width=width_of(screen))
    if groups and groups[0].all_jobs >= MAX_JOBS:
        write(f"only the newest {MAX_JOBS} failed jobs were looked at.")
    if groups and groups[0].all_groups > len(groups):
        write(f"there are {groups[0].all_groups} groups; the first {len(groups)} are shown.")


def _cells(group: FailureRow) -> list[object]:
    name, message = class_name(group.error_class), " ".join(message_of(group).split())
    return [
        group.jobs,
        group.jobs_hour,
        group.jobs_day,
        duration((now_aware() - group.last_at).total_seconds()),
        group.newest_id,
        group.task_path,
        ": ".join(filter(None, (name, message))),
    ]


def _as_values(group: FailureRow) -> dict[str, Any]:
    values = {name: getattr(group, name) for name in TOLD}
    return values | {"exception_class": group.error_class, "message": message_of(group)}
