"""Which running jobs look stuck: one that runs far longer than usual, or stands still.

How long jobs of a task usually run is in the statistics. Most of them end within the time that 99
of 100 took in the last seven days; ten times that is far longer: times are kept in classes that
double, so less could be a matter of rounding, and a slow hour of a database or of somebody's API is
easily three times as slow. Runs below a minute are never reported, and fewer than twenty runs do
not show what is usual.

A job that reports its progress tells by itself what is usual for it: it stands still when nothing
has changed for ten times the longest pause between two of its reports, and for five minutes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.utils.translation import gettext as _

from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.queries.numbers import quantile, times_of
from django_pgjobs.queries.stuck import LongRun, list_long_runs
from django_pgjobs.values.moments import duration

FACTOR = 10
# Runs shorter than this, in seconds, never look stuck.
LEAST_SECONDS = 60.0
LEAST_STILL_SECONDS = 300.0
LEAST_RUNS = 20
# The parts of a task's jobs that took at most the longest, and the shortest, usual time.
MOST, FEW = 0.99, 0.1
WINDOW_SECONDS = 7 * 86_400.0
# How many running jobs are looked at, those that have run longest.
MAX_LOOKED_AT = 5_000
# A longer pause, in seconds, cannot be one that a job reported.
LATEST = 1e12


class Usual(NamedTuple):
    """How many seconds jobs of a task usually run."""

    least: float
    most: float


class Report(NamedTuple):
    """What a job *said* of its progress when that changed last, and the longest pause till then."""

    said: dict[str, Any]
    changed_at: datetime
    pause: float


class Stuck(NamedTuple):
    """A job that looks stuck.

    *usual*: how long its task usually takes, if it has run far longer. *still*: for how many
    seconds its progress has not changed, if that is too long. At least one of them is there.
    """

    run: LongRun
    usual: Usual | None
    still: float | None

    def reasons(self) -> list[tuple[str, str]]:
        """Return why it looks so: a code for programs and a text for people."""
        found = []
        if self.usual is not None:
            text = _(
                "It has run for %(time)s; jobs of its task usually take %(least)s to %(most)s."
            ) % {
                "time": duration(self.run.seconds),
                "least": duration(self.usual.least),
                "most": duration(self.usual.most),
            }
            found.append(("runs_long", text))
        if self.still is not None:
            text = _("Its progress has stood still for %(time)s.") % {"time": duration(self.still)}
            found.append(("stands_still", text))
        return found


def find_stuck(cursor: Cursor, *, ids: Sequence[int] | None = None) -> list[Stuck]:
    """Return the jobs, of *ids* or of all, that look stuck, the longest running first."""
    runs = list_long_runs(cursor, seconds=LEAST_SECONDS, max_jobs=MAX_LOOKED_AT, ids=ids)
    return judge(runs, usual_times(cursor, {run.task_path for run in runs}) if runs else {})


def reasons_of(cursor: Cursor, job_id: int) -> list[tuple[str, str]]:
    """Return why a job looks stuck, none if it does not: codes and texts."""
    return [reason for stuck in find_stuck(cursor, ids=[job_id]) for reason in stuck.reasons()]


def usual_times(cursor: Cursor, task_paths: Collection[str]) -> dict[str, Usual]:
    """Return how long jobs of these tasks usually run, where that is known."""
    paths = sorted(task_paths)
    times = times_of(cursor, seconds=WINDOW_SECONDS, by_task=True, task_paths=paths)
    return usual_by_task({path: each.runs for path, each in times.items()})


def usual_by_task(runs: Mapping[str, Sequence[int]]) -> dict[str, Usual]:
    """Return what is usual of each task, by its runs in classes of time, where that is known."""
    found = {path: usual_of(each) for path, each in runs.items()}
    return {path: usual for path, usual in found.items() if usual is not None}


def usual_of(runs: Sequence[int]) -> Usual | None:
    """Return what is usual by these numbers of runs, None if they are too few to say."""
    few, most = quantile(runs, FEW), quantile(runs, MOST)
    if few is None or most is None or sum(runs) < LEAST_RUNS:
        return None
    return Usual(few.least, most.most)


def judge(runs: Iterable[LongRun], usual: Mapping[str, Usual]) -> list[Stuck]:
    """Return those of the running jobs that look stuck."""
    found = []
    for run in runs:
        expected = usual.get(run.task_path)
        is_far = expected is not None and run.seconds > far_beyond(expected)
        still = standing_still(run)
        if is_far or still is not None:
            found.append(Stuck(run, expected if is_far else None, still))
    return found


def far_beyond(usual: Usual) -> float:
    """Return after how many seconds a job has run far longer than usual."""
    return max(FACTOR * usual.most, LEAST_SECONDS)


def standing_still(run: LongRun) -> float | None:
    """Return how long the progress of a job has not changed, None if that is not too long."""
    report = report_of(run.progress)
    if report is None:
        return None
    # A report that is older than the attempt is another attempt's.
    still = min((run.now - report.changed_at).total_seconds(), run.seconds)
    return still if still > max(FACTOR * report.pause, LEAST_STILL_SECONDS) else None


def report_of(text: str | None) -> Report | None:
    """Return what a row keeps of a job's progress, None if there is nothing or it says no time."""
    said = _decoded(text)
    changed_at, pause = _instant(said.pop("changed_at", None)), said.pop("longest_pause", None)
    if changed_at is None or not isinstance(pause, (int, float)) or not 0 <= pause <= LATEST:
        return None
    return Report(said, changed_at, pause)


def _decoded(text: str | None) -> dict[str, Any]:
    """Return what a job reported; whoever writes rows may have written anything."""
    try:
        report = json.loads(text or "null")
    except (ValueError, RecursionError):
        return {}
    return report if isinstance(report, dict) else {}


def _instant(text: Any) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
