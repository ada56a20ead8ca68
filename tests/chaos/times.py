"""Schedules: some that are due all the time, and what must hold of them in the end.

Each occurrence has one job, or says why it has none; of a schedule that makes up for all none is
left out; and one whose rule makes no sense stops no other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import psycopg

from django_pgjobs.models import Schedule
from django_pgjobs.schedules import control
from tests.chaos import tasks

# Makes up for all of its seconds; nobody pauses it before the end, or skips some.
WHOLE = "each second"
# What people pause, run and skip.
TOUCHED = ("skipping", "cancelling")
BROKEN = "broken"


def set_up_schedules() -> None:
    """Make the schedules that the checks know."""
    path = tasks.work.module_path
    made: dict[str, dict[str, Any]] = {
        WHOLE: {"every": 1.0, "missed": "all", "args": ["tick", 0.05]},
        "skipping": {"every": 2.0, "overlap": "skip", "args": ["tick", 3.0]},
        "cancelling": {"every": 3.0, "overlap": "cancel", "args": ["tick", 4.0]},
        "in line": {"every": 5.0, "overlap": "queue", "missed": "skip", "args": ["tick"]},
        "spread": {"cron": "*/4 * * * * *", "jitter": 3.0, "args": ["tick"]},
        BROKEN: {"cron": "0 9 * *"},
    }
    for name, columns in made.items():
        Schedule.objects.create(name=name, task_path=path, **columns)


def pause_all() -> None:
    """Let the run come to rest."""
    for name in Schedule.objects.filter(paused_at=None).values_list("name", flat=True):
        control.pause_schedule(name, by="the end")


class Kept(NamedTuple):
    """An occurrence as it is in the end, and the jobs that say that they are for it."""

    schedule: str
    instant: float
    outcome: str
    job: int | None
    jobs: tuple[int, ...]


READ = """
SELECT
    occurrence.schedule, EXTRACT(EPOCH FROM occurrence.scheduled_for)::float8,
    occurrence.outcome, occurrence.job_id,
    ARRAY(
        SELECT job.id FROM pgjobs_job AS job
        WHERE job.schedule = occurrence.schedule AND job.scheduled_for = occurrence.scheduled_for
        ORDER BY job.id
    )
FROM pgjobs_occurrence AS occurrence
ORDER BY occurrence.schedule, occurrence.scheduled_for
"""
STRAYS = """
SELECT job.id FROM pgjobs_job AS job
WHERE job.schedule IS NOT NULL AND NOT EXISTS (
    SELECT FROM pgjobs_occurrence AS occurrence
    WHERE occurrence.schedule = job.schedule AND occurrence.scheduled_for = job.scheduled_for
)
ORDER BY job.id
"""


def read_occurrences(own: psycopg.Connection[Any]) -> list[Kept]:
    """Return all occurrences, those of a schedule in order."""
    return [Kept(*row[:4], tuple(row[4])) for row in own.execute(READ).fetchall()]


def read_strays(own: psycopg.Connection[Any]) -> list[int]:
    """Return the jobs that say they are for an occurrence that is not there."""
    return [row[0] for row in own.execute(STRAYS).fetchall()]


def find_doubled(kept: Iterable[Kept]) -> list[str]:
    """Return the occurrences that have another job than their own, or none."""
    return [
        f"{each.schedule} at {each.instant:.0f} is {each.outcome} with job {each.job}, "
        f"and has the jobs {list(each.jobs)}"
        for each in kept
        if each.jobs != ((each.job,) if each.outcome == "enqueued" else ())
    ]


def find_left_out(kept: Iterable[Kept]) -> list[str]:
    """Return the seconds without an occurrence of the schedule that makes up for all."""
    instants = [round(each.instant) for each in kept if each.schedule == WHOLE]
    span = set(range(instants[0], instants[-1] + 1)) if instants else set()
    return [f"{WHOLE} was not due at {second}" for second in sorted(span - set(instants))]


def find_silence(kept: Iterable[Kept], end: float, patience: float) -> list[str]:
    """Return whether nothing was enqueued in the *patience* seconds before the end."""
    newest = max((each.instant for each in kept if each.outcome == "enqueued"), default=0.0)
    if newest >= end - patience:
        return []
    return [f"nothing was due after {newest:.0f}, {end:.0f} was the end"]


def find_unbroken(own: psycopg.Connection[Any]) -> list[str]:
    """Return whether the schedule that makes no sense does not say so."""
    rows = own.execute("SELECT error FROM pgjobs_schedule WHERE name = %s", [BROKEN]).fetchall()
    return [] if rows and rows[0][0] else [f"the schedule {BROKEN} has no error"]


def touch(what: str, name: str) -> None:
    """Do what a person does to a schedule."""
    if what == "pause":
        control.pause_schedule(name, by="chaos")
    elif what == "resume":
        control.resume_schedule(name)
    elif what == "skip":
        control.skip_next(name, by="chaos")
    else:
        control.run_now(name, by="chaos")
