"""One turn: the schedules that are due become jobs, each occurrence once.

All of a turn is one transaction on Django's connection. The rows of the schedules are locked first,
then the keys of their occurrences are entered, then jobs are inserted; a worker that dies leaves
nothing of it. An occurrence that is there already, because somebody skipped or backfilled it, gets
no job.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import Any, NoReturn

from django.db import Error as DatabaseError
from django.db import transaction

from django_pgjobs.compat import AnyTask
from django_pgjobs.declaring.own_tasks import is_ours
from django_pgjobs.declaring.registry import IMPORT_ERRORS, find_task
from django_pgjobs.enqueueing.meeting import noting_met
from django_pgjobs.exceptions import UnknownTask
from django_pgjobs.queries import schedules as queries
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.queries.database import job_database
from django_pgjobs.queries.schedules import OccurrenceRow, ScheduleRow, ScheduleUpdate
from django_pgjobs.schedules.jobs import (
    MAX_NOTE,
    Blocked,
    arguments_of,
    enqueue_occurrence,
    note,
    raise_unless_refused,
    with_job,
)
from django_pgjobs.schedules.plans import OccurrencePlan, plan
from django_pgjobs.schedules.short import short_transaction
from django_pgjobs.status import OccurrenceOutcome
from django_pgjobs.values.bounds import MAX_INTEGER
from django_pgjobs.values.payload import scrub

# Of one transaction.
MAX_SCHEDULES = 100
# For so many seconds a turn begins enqueues; what it does not reach is left to the next. Keys and
# receivers are the project's code, and others wait for the turn's locks meanwhile.
TURN_SECONDS = 1.0
OVERTAKEN = "A newer one was due as well, which would have cancelled it."


@dataclass
class ScheduleTurn:
    """One turn: the schedules that it took, and what it wrote."""

    # How many schedules it had; and those among them that only others can plan, because the task
    # or something else is not here.
    taken: int = 0
    unknown: dict[str, str] = field(default_factory=dict)
    # In how many seconds the next schedule is due, None if there is none; counted from `read_at`,
    # and by `monotonic()` from `asked_at` or a little later.
    wait: float | None = None
    asked_at: float = field(default_factory=monotonic)
    # Is one due that it did not get, because somebody has locked it?
    is_passed_over: bool = False
    # The server's time, None before anything was read.
    read_at: datetime | None = None
    # What was written of occurrences, and of schedules that are broken.
    occurrences: list[OccurrenceRow] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)

    # What a hook of `on_commit` raised, which a key or a receiver had registered: the turn has
    # been committed.
    hook_error: BaseException | None = None
    # Was it full, so that there may be more to do at once?
    is_full: bool = False
    # Until when it begins enqueues, by `monotonic()`.
    enqueues_until: float = 0.0
    # What was on time at this instant still counts as on time (see `plan`).
    since: datetime | None = None
    # Called from time to time, as a turn may take long.
    on_move: Callable[[], object] = lambda: None

    @property
    def is_over(self) -> bool:
        """Is there no time left to begin an enqueue?"""
        return monotonic() >= self.enqueues_until

    def note_wait(self, seconds: float | None) -> None:
        """Note that a schedule is due in so many seconds."""
        if seconds is not None:
            self.wait = seconds if self.wait is None else min(self.wait, seconds)


@dataclass
class _Case:
    """A schedule of the turn, and its next state."""

    row: ScheduleRow
    task: AnyTask
    plan: OccurrencePlan
    error: str = ""
    last_at: datetime | None = None
    last_job_id: int | None = None
    runs: int = 0
    # The first occurrence that the turn had no time for.
    left_at: datetime | None = None

    @property
    def next_at(self) -> datetime | None:
        """When it is due next; it ends when it has had its runs."""
        row = self.row
        has_ended = row.max_runs is not None and row.runs + self.runs >= row.max_runs
        return None if has_ended else self.left_at or self.plan.next_at

    def written(self) -> ScheduleUpdate:
        row = self.row
        # Without a new job, the note on the last one stays.
        error = self.plan.error or self.error or ("" if self.last_at else row.error)
        return ScheduleUpdate(
            row.name,
            self.next_at,
            (row.next_at or row.plan_from or row.now) if self.plan.error else None,
            self.last_at or row.last_at,
            self.last_job_id or row.last_job_id,
            # The column holds no more; a row of SQL may be there already.
            min(row.runs + self.runs, MAX_INTEGER),
            scrub(error, MAX_NOTE),
        )


def fire_due(
    *,
    late: float = 0.0,
    excluded: Collection[str] = (),
    tasks: Sequence[str] | None = None,
    max_schedules: int = MAX_SCHEDULES,
    now: datetime | None = None,
    since: datetime | None = None,
    on_move: Callable[[], object] = lambda: None,
) -> ScheduleTurn:
    """Enqueue what has been due for *late* seconds or more, in a transaction of its own.

    Left out are the schedules *excluded*, and those of other tasks than *tasks* (None: of none, and
    the turn's `unknown` names those whose task is not here). *now* stands for the server's time, in
    tests. If others that were full came before, *since* is when the first one was. *on_move* is
    called now and then. Raise Blocked, or what the database raises; then nothing has happened.
    """
    turn = ScheduleTurn(since=since, on_move=on_move)
    rows: list[ScheduleRow] = []
    is_written = False
    chosen: dict[str, Any] = {"late": late, "tasks": tasks, "now": now}
    try:
        with short_transaction() as cursor:
            rows = queries.take_due_schedules(
                cursor, excluded=excluded, max_schedules=max_schedules, **chosen
            )
            turn.taken, turn.is_full = len(rows), len(rows) >= max_schedules
            others, turn.asked_at = [*excluded, *(row.name for row in rows)], monotonic()
            ahead = queries.look_ahead(cursor, excluded=others, **chosen)
            turn.wait, turn.is_passed_over, turn.read_at = ahead
            _fire(cursor, rows, turn, now or turn.read_at)
            is_written = True  # then comes the commit, and then the hooks of on_commit
    except IMPORT_ERRORS as error:
        # Not what an enqueue raises, which `enqueue_occurrence` catches.
        if isinstance(error, Blocked) or not rows:
            raise
        if not is_written or isinstance(error, DatabaseError):
            _raise_blocked(rows, error)
        turn.hook_error = error
    return turn


def _raise_blocked(rows: Sequence[ScheduleRow], error: BaseException) -> NoReturn:
    name = rows[0].name if len(rows) == 1 else None
    if isinstance(error, DatabaseError):
        raise_unless_refused(name, error)
    raise Blocked(name, f"{type(error).__name__}: {error}".strip()) from error


def _fire(cursor: Cursor, rows: Sequence[ScheduleRow], turn: ScheduleTurn, now: datetime) -> None:
    """Do what the plans of these schedules say, and write when they are due next."""
    cases = {case.row.name: case for case in _cases(rows, turn)}
    if not cases:
        return
    _enqueue(cursor, cases, turn)
    queries.write_schedules(cursor, [case.written() for case in cases.values()])
    for name, case in cases.items():
        if case.next_at is not None:
            turn.note_wait((case.next_at - now).total_seconds())
        if error := case.plan.error or case.error:
            turn.errors[name] = error


def _cases(rows: Sequence[ScheduleRow], turn: ScheduleTurn) -> Iterable[_Case]:
    for row in rows:
        try:
            task = find_task(row.task_path)
        except UnknownTask as error:
            # Another worker may have it.
            turn.unknown[row.name] = str(error)
            continue
        found = plan(row, task, since=turn.since)
        if found.lacks:
            turn.unknown[row.name] = found.lacks
        else:
            yield _Case(row, task, found)


def _enqueue(cursor: Cursor, cases: Mapping[str, _Case], turn: ScheduleTurn) -> None:
    """Enter the occurrences of the turn, and enqueue a job for each that is new."""
    planned = [
        OccurrenceRow(name, instant, OccurrenceOutcome.ENQUEUED)
        for name, case in cases.items()
        for instant in case.plan.due
    ]
    left_out = [case.plan.left_out for case in cases.values() if case.plan.left_out]
    if not planned and not left_out:
        return
    entered = queries.enter_occurrences(cursor, [*planned, *left_out])
    new = [row for row in planned if (row.schedule, row.scheduled_for) in entered]
    turn.occurrences += [row for row in left_out if (row.schedule, row.scheduled_for) in entered]
    unfinished = _unfinished(cursor, [cases[row.schedule] for row in new])
    turn.enqueues_until = monotonic() + TURN_SECONDS
    found = _enqueue_new(_fairly(new, turn), cases, unfinished, turn)
    _leave(cursor, [row for row in new if row not in found], cases, turn)
    done = note(cursor, [found[row] for row in new if row in found])
    turn.occurrences += done
    for row in done:
        _count(cases[row.schedule], row)


def _fairly(new: Sequence[OccurrenceRow], turn: ScheduleTurn) -> list[OccurrenceRow]:
    """Return the occurrences in the order in which schedules get their share of the turn's time.

    It begins with others where the turn before was full: not always the same ones come first.
    """
    names = list(dict.fromkeys(row.schedule for row in new))
    if turn.since is not None:
        random.shuffle(names)
    places = {name: place for place, name in enumerate(names)}
    return sorted(new, key=lambda row: places[row.schedule])


def _enqueue_new(
    new: Sequence[OccurrenceRow],
    cases: Mapping[str, _Case],
    unfinished: dict[str, list[int]],
    turn: ScheduleTurn,
) -> dict[OccurrenceRow, OccurrenceRow]:
    """Enqueue jobs until the time of the turn is over; return the outcomes of those reached.

    Each schedule has its first occurrence before any has its second: one whose keys take long and
    that is far behind does not hold up the others.
    """
    plain = set(_plain(new, cases, unfinished))
    newest = {row.schedule: row for row in new}
    firsts: dict[str, OccurrenceRow] = {}
    rest = [row for row in new if firsts.setdefault(row.schedule, row) is not row]
    found: dict[OccurrenceRow, OccurrenceRow] = {}
    for rows in (list(firsts.values()), rest):
        _enqueue_together([row for row in rows if row in plain], cases, turn, found)
        for row in rows:
            if row in found:
                continue
            # One at least: what is slow comes to an end as well.
            if found and turn.is_over:
                break
            turn.on_move()
            case = cases[row.schedule]
            if case.row.overlap == "cancel" and row is not newest[row.schedule]:
                found[row] = row._replace(outcome=OccurrenceOutcome.SKIPPED, note=OVERTAKEN)
                continue
            known = unfinished.setdefault(row.schedule, [])
            found[row] = enqueue_occurrence(case.row, case.task, row.scheduled_for, known)
    return found


def _leave(
    cursor: Cursor, left: Sequence[OccurrenceRow], cases: Mapping[str, _Case], turn: ScheduleTurn
) -> None:
    """Leave to the next turn what this one had no time for."""
    if not left:
        return
    queries.leave_occurrences(cursor, left)
    turn.is_full = True
    for row in left:
        case = cases[row.schedule]
        case.left_at = min(case.left_at or row.scheduled_for, row.scheduled_for)


def _plain(
    new: Sequence[OccurrenceRow],
    cases: Mapping[str, _Case],
    unfinished: Mapping[str, Sequence[int]],
) -> list[OccurrenceRow]:
    """Return the occurrences that nothing overlaps, or that may overlap."""
    counts = Counter(row.schedule for row in new)
    alone = {name for name, count in counts.items() if count == 1 and unfinished.get(name) == []}
    return [
        row for row in new if row.schedule in alone or cases[row.schedule].row.overlap == "allow"
    ]


def _enqueue_together(
    rows: Sequence[OccurrenceRow],
    cases: Mapping[str, _Case],
    turn: ScheduleTurn,
    found: dict[OccurrenceRow, OccurrenceRow],
) -> None:
    """Enqueue many jobs of a task in few statements; enter what became of those *found*.

    Where that raises, or jitter asks for more, none is: one by one shows whose fault it is.
    """
    groups: dict[str, list[tuple[OccurrenceRow, Any]]] = {}
    for row in rows:
        of = cases[row.schedule].row
        if not of.jitter and (item := _item_of(of)) is not None:
            groups.setdefault(of.task_path, []).append((row, item))
    for group in groups.values():
        task = cases[group[0][0].schedule].task
        if len(group) < 2 or not is_ours(task.get_backend()):
            continue
        # The session hears nothing while the keys of a statement are made, and ends if that takes
        # long: the first statements show how long they take.
        begin, size = 0, 1
        while begin < len(group) and not (found and turn.is_over):
            part = group[begin : begin + size]
            began_at = monotonic()
            if not _enqueue_part(task, part, found):
                break
            turn.on_move()
            begin += len(part)
            pace = max(monotonic() - began_at, 1e-6) / len(part)
            size = max(1, min(10 * size, int((turn.enqueues_until - monotonic()) / pace)))


def _enqueue_part(
    task: AnyTask,
    part: Sequence[tuple[OccurrenceRow, Any]],
    found: dict[OccurrenceRow, OccurrenceRow],
) -> bool:
    """Enqueue some jobs of a task in one statement; return whether that is done."""
    names = {row.schedule for row, _ in part}
    backend: Any = task.get_backend()
    try:
        with transaction.atomic(using=job_database()), noting_met() as met:
            ids = backend.enqueue_many(task, [item for _, item in part])
    except DatabaseError as error:
        raise_unless_refused(names.pop() if len(names) == 1 else None, error)
        return False
    except IMPORT_ERRORS:  # it is raised again by the one whose fault it is
        return False
    for (row, _), job_id in zip(part, ids, strict=True):
        found[row] = with_job(row, int(job_id), met)
    return True


def _item_of(row: ScheduleRow) -> tuple[Any, ...] | dict[str, Any] | None:
    """Return the arguments as `enqueue_many` takes them, None if it does not."""
    try:
        args, kwargs = arguments_of(row)
    except Exception:  # it is raised again by the one whose fault it is
        return None
    return None if args and kwargs else kwargs or tuple(args)


def _count(case: _Case, row: OccurrenceRow) -> None:
    """Note the outcome of its occurrence in the schedule."""
    if row.outcome == OccurrenceOutcome.FAILED:
        case.error = f"{row.scheduled_for.isoformat(' ', 'seconds')}: {row.note}"
    if row.job_id is not None:
        case.error = ""
        case.last_at, case.last_job_id = row.scheduled_for, row.job_id
        case.runs += 1


def _unfinished(cursor: Cursor, cases: Sequence[_Case]) -> dict[str, list[int]]:
    """Return the unfinished jobs of the schedules whose policy asks for them."""
    names = sorted({case.row.name for case in cases if case.row.overlap in ("skip", "cancel")})
    found: dict[str, list[int]] = {name: [] for name in names}
    for name, job_id in queries.list_unfinished(cursor, names) if names else []:
        found[name].append(job_id)
    return found
