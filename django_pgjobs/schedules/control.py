"""What people do with schedules: list the next times, run one now, pause, skip, backfill.

Each function is one transaction on Django's connection, or part of the caller's. `LookupError` if
there is no schedule of that name; `ValueError` if what is asked for makes no sense for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from django_pgjobs.compat import AnyTask
from django_pgjobs.declaring.registry import find_task
from django_pgjobs.declaring.schedules import check_arguments
from django_pgjobs.exceptions import UnknownTask
from django_pgjobs.models.schedules import Occurrence, Schedule
from django_pgjobs.occurrences.planning import Planned, occurrences, occurrences_until
from django_pgjobs.queries import schedules as queries
from django_pgjobs.queries.database import job_cursor, job_database, rows_of
from django_pgjobs.queries.schedules import OccurrenceRow
from django_pgjobs.schedules.jobs import Blocked, enqueue_occurrence, note
from django_pgjobs.schedules.plans import TICK, rule_of
from django_pgjobs.status import OccurrenceOutcome
from django_pgjobs.values.given import given_instant
from django_pgjobs.values.moments import aware
from django_pgjobs.values.payload import shorten

# Of one backfill, and of one of its transactions.
MAX_BACKFILL = 1_000
PAGE = 100
# How far ahead a list of the next occurrences looks for some that nobody has skipped.
MAX_PREVIEW = 1_000
# The outcomes that a backfill makes up for, besides occurrences without a row.
REOPENED = (OccurrenceOutcome.MISSED, OccurrenceOutcome.FAILED)
# How the note of an occurrence begins that a person has skipped.
SKIPPED = "skipped"
# No schedule is due before.
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)

Arguments = tuple[list[Any], dict[str, Any]]


@dataclass
class Chosen:
    """A schedule as a person runs or backfills it: at once, whatever its earlier jobs do."""

    name: str
    args: Any
    kwargs: Any
    max_runs: int | None
    missed: str
    grace: float
    overlap: str
    jitter: float = 0.0


class HandRun(NamedTuple):
    """The job of a run by hand; it is not new if it was there and has the task's unique key."""

    job_id: int
    is_new: bool


class Backfilled(NamedTuple):
    """What became of occurrences: how many were enqueued, joined a job that was there because of
    its unique key, were settled already, and could not be enqueued.
    """

    enqueued: int
    joined: int
    known: int
    failed: int


def pause_schedule(name: str, *, by: str = "", reason: str = "") -> bool:
    """Enqueue nothing of the schedule until `resume_schedule`; return False if it was paused.

    What is due meanwhile is not made up for.
    """
    changed = _rows(name).filter(paused_at=None)
    return _has_changed(name, changed.update(paused_at=Now(), paused_by=by, pause_reason=reason))


def resume_schedule(name: str) -> bool:
    """End the pause, and plan from now on; return False if there was none."""
    changed = _rows(name).exclude(paused_at=None)
    return _has_changed(name, changed.update(paused_at=None, paused_by="", pause_reason=""))


def upcoming(schedule: Schedule, count: int, *, after: datetime | None = None) -> list[Planned]:
    """Return the next occurrences of a schedule after an instant, by default after now.

    Not those that somebody skipped, no more than `max_runs` allows, and none of a retired schedule;
    whether it is paused makes no difference. Raise ValueError if the rule of the row makes no
    sense.
    """
    if schedule.retired_at is not None:
        return []
    rule = rule_of(schedule)
    if schedule.max_runs is not None:
        count = min(count, max(0, schedule.max_runs - schedule.runs))
    begin = after or _now()
    planned = list(islice(occurrences(rule, begin), min(MAX_PREVIEW, count + PAGE)))
    known = _known(schedule.name, planned)
    return [each for each in planned if each.at not in known][:count]


def skip_next(name: str, *, by: str = "") -> datetime:
    """Skip the next occurrence that is not skipped: it gets no job; return its instant.

    Raise ValueError if none is to come.
    """
    with transaction.atomic(using=job_database()):
        schedule = _locked(name)
        planned = upcoming(schedule, 1)
        if not planned:
            why = ": it is retired" if schedule.retired_at is not None else ""
            raise ValueError(f"schedule {name} has no occurrence to come{why}.")
        [(instant, _)] = planned
        occurrence_rows().create(
            schedule=name,
            scheduled_for=instant,
            outcome=OccurrenceOutcome.SKIPPED,
            note=_by(SKIPPED, by),
        )
    return instant


def skipped_by_hand() -> Q:
    """Return the condition of occurrences that `skip_next` has skipped."""
    return Q(outcome=OccurrenceOutcome.SKIPPED, note__startswith=f"{SKIPPED} by ")


def run_now(name: str, *, by: str = "", arguments: Arguments | None = None) -> HandRun:
    """Enqueue a job of the schedule at once, as an occurrence of this instant; return the job.

    *arguments*, a list and a dict, replace those of the schedule for this job. A pause and the
    policy for overlaps do not count, and the job is none of `max_runs`. Raise ValueError if it
    cannot be enqueued.
    """
    with transaction.atomic(using=job_database()):
        schedule = _locked(name)
        said = _by("run", by)
        if arguments is not None:
            _check(schedule, arguments)
            schedule.args, schedule.kwargs = arguments
            said += ", with other arguments"
        [row] = _enqueue(schedule, [_now()], said)
        if row.job_id is None:
            raise ValueError(f"schedule {name} cannot be run: {row.note}")
    return HandRun(row.job_id, row.outcome == OccurrenceOutcome.ENQUEUED)


def backfill(name: str, begin: datetime, end: datetime, *, by: str = "") -> Backfilled:
    """Enqueue the occurrences from *begin* to *end*, both included, that have no job.

    That is: those without a row, those that were missed, and those whose enqueue failed. Each page
    of 100 is a transaction. Raise ValueError for an *end* in the future, a *begin* before 1970 or
    after the *end*, and for more than 1,000 occurrences.
    """
    found = Backfilled(0, 0, 0, 0)
    for page in _pages(_in_range(name, begin, end)):
        with transaction.atomic(using=job_database()):
            rows = _enqueue(_locked(name), page, _by("backfilled", by), reopens=True)
        counts = Counter(row.outcome for row in rows)
        enqueued = counts[OccurrenceOutcome.ENQUEUED]
        joined = counts[OccurrenceOutcome.JOINED]
        found = Backfilled(
            found.enqueued + enqueued,
            found.joined + joined,
            found.known + len(page) - len(rows),
            found.failed + len(rows) - enqueued - joined,
        )
    return found


def occurrences_to_backfill(name: str, begin: datetime, end: datetime) -> list[datetime]:
    """Return the occurrences of a range that `backfill` would enqueue; raise as it does."""
    instants = _in_range(name, begin, end)
    if not instants:
        return []
    settled = _settled(name, instants[0], instants[-1])
    return [at for at in instants if at not in settled]


def _in_range(name: str, begin: datetime, end: datetime) -> list[datetime]:
    """Return all occurrences of a range, whatever their outcome."""
    begin = given_instant("backfill() expected a begin", begin)
    end = given_instant("backfill() expected an end", end)
    if begin > end:
        raise ValueError(f"expected the begin before the end, got {begin} and {end}.")
    if end > _now():
        raise ValueError(f"expected an end that is past, got {end}: later ones come by themselves.")
    schedule = get_schedule(name)
    if begin.astimezone(UTC) < EARLIEST:
        raise ValueError(f"expected a begin from 1970 on, got {begin}.")
    planned = occurrences_until(rule_of(schedule), begin - TICK, end)
    instants = [each.at for each in islice(planned, MAX_BACKFILL + 1)]
    if len(instants) > MAX_BACKFILL:
        raise ValueError(
            f"expected at most {MAX_BACKFILL} occurrences, got more from {begin} to {end}. "
            "Choose a narrower range."
        )
    return instants


def get_schedule(name: str) -> Schedule:
    """Return the row of a schedule; raise LookupError if there is none."""
    schedule: Schedule | None = _rows(name).first()
    if schedule is None:
        raise LookupError(
            f"there is no schedule {name}. manage.py jobs schedules list shows all; those of the "
            "code are written when a worker starts."
        )
    return schedule


def _enqueue(
    schedule: Schedule, instants: list[datetime], said: str, *, reopens: bool = False
) -> list[OccurrenceRow]:
    """Enqueue a job for each instant that has no row yet, and return their outcomes.

    *reopens*: for those that were missed or failed, too.
    """
    task = _task_of(schedule)
    chosen = Chosen(
        name=schedule.name,
        args=schedule.args,
        kwargs=schedule.kwargs,
        max_runs=schedule.max_runs,
        missed=schedule.missed,
        grace=schedule.grace,
        overlap="queue" if schedule.overlap == "queue" else "allow",
    )
    planned = [OccurrenceRow(schedule.name, at, OccurrenceOutcome.ENQUEUED) for at in instants]
    with job_cursor() as cursor:
        entered = queries.enter_occurrences(cursor, planned)
        if reopens:
            entered |= queries.reopen_occurrences(cursor, schedule.name, instants)
        new = [row for row in planned if (row.schedule, row.scheduled_for) in entered]
        try:
            done = [enqueue_occurrence(chosen, task, row.scheduled_for, []) for row in new]
        except Blocked as error:
            raise ValueError(f"schedule {schedule.name} cannot be run now: {error}") from error
        return note(cursor, [_with_note(row, said) for row in done])


def _with_note(row: OccurrenceRow, said: str) -> OccurrenceRow:
    """Return the row with the name of the person, and with notes about its job."""
    if row.job_id is None:
        return row
    return row._replace(note=f"{said}. {row.note}" if row.note else said)


def _check(schedule: Schedule, arguments: Arguments) -> None:
    """Raise ValueError unless a job of the schedule's task could have these arguments."""
    try:
        check_arguments(_task_of(schedule), *arguments)
    except TypeError as error:
        raise ValueError(str(error)) from None


def _task_of(schedule: Schedule) -> AnyTask:
    try:
        return find_task(schedule.task_path)
    except UnknownTask as error:
        raise ValueError(str(error)) from None


def _pages(instants: list[datetime]) -> Iterator[list[datetime]]:
    for first in range(0, len(instants), PAGE):
        yield instants[first : first + PAGE]


def _known(name: str, planned: list[Planned]) -> set[datetime]:
    if not planned:
        return set()
    return _instants_of(_rows_in(name, planned[0].at, planned[-1].at))


def _settled(name: str, begin: datetime, end: datetime) -> set[datetime]:
    """Return the instants of a range that no backfill enqueues."""
    is_open = Q(outcome__in=REOPENED, job_id=None)
    return _instants_of(_rows_in(name, begin, end).exclude(is_open))


def _rows_in(name: str, begin: datetime, end: datetime) -> Any:
    return occurrence_rows().filter(schedule=name, scheduled_for__gte=begin, scheduled_for__lte=end)


def _instants_of(rows: Any) -> set[datetime]:
    return {aware(at).astimezone(UTC) for at in rows.values_list("scheduled_for", flat=True)}


def _now() -> datetime:
    """Return the time of the server."""
    with job_cursor() as cursor:
        return queries.get_now(cursor)


def _rows(name: str) -> Any:
    if not isinstance(name, str):
        raise TypeError(
            f"expected the name of a schedule, got {shorten(repr(name))}. Without name= it is the "
            "path of the task, as text."
        )
    return rows_of(Schedule).filter(name=name)


def occurrence_rows() -> Any:
    """Return the occurrences that have a row, of all schedules."""
    return rows_of(Occurrence)


def _locked(name: str) -> Schedule:
    found = _rows(name).select_for_update().first()
    return found or get_schedule(name)


def _has_changed(name: str, count: int) -> bool:
    if not count:
        get_schedule(name)
    return bool(count)


def _by(done: str, by: str) -> str:
    return f"{done} by {by}" if by else f"{done} by hand"
