"""Plans of schedules that are due: pure, from their rows and the server's time.

An occurrence is on time up to ON_TIME after its instant, and all that are on time are enqueued.
Older ones are missed, and the row's policy says which of them are made up for.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import islice
from typing import Any, Protocol

from django_pgjobs.declaring.schedules import find_problems, find_task_problems
from django_pgjobs.occurrences.cron import Lacking
from django_pgjobs.occurrences.planning import (
    latest_occurrence,
    next_occurrence,
    occurrences,
    occurrences_until,
)
from django_pgjobs.occurrences.rule import Rule
from django_pgjobs.queries.schedules import OccurrenceRow, ScheduleRow
from django_pgjobs.status import OccurrenceOutcome
from django_pgjobs.values.given import LONGEST_SPAN
from django_pgjobs.values.moments import aware
from django_pgjobs.values.words import with_text

ON_TIME = timedelta(minutes=1)
# For how long what is on time may wait for its turn, where many are due at once.
MAX_BEHIND = timedelta(minutes=10)
# Of one schedule in one turn.
MAX_DUE = 100
TICK = timedelta(microseconds=1)


@dataclass(frozen=True)
class OccurrencePlan:
    """The plan of a row: occurrences to enqueue, one line on those that are left out.

    *next_at* None: never again, or the row is broken; then *error* says why. Or this process
    *lacks* something that another one may have.
    """

    due: tuple[datetime, ...] = ()
    left_out: OccurrenceRow | None = None
    next_at: datetime | None = None
    error: str = ""
    lacks: str = ""


class HasRule(Protocol):
    """What says when a schedule is due: a row as a statement returns it, or the model."""

    @property
    def cron(self) -> str | None: ...
    @property
    def every(self) -> float | None: ...
    @property
    def timezone(self) -> str: ...
    @property
    def skipped_time(self) -> str | None: ...
    @property
    def repeated_time(self) -> str | None: ...
    @property
    def starts_at(self) -> datetime | None: ...
    @property
    def ends_at(self) -> datetime | None: ...
    @property
    def except_dates(self) -> list[str]: ...


class HasPolicies(Protocol):
    """What says which occurrences have jobs: such a row, the model, or `control.Chosen`."""

    @property
    def name(self) -> str: ...
    @property
    def max_runs(self) -> int | None: ...
    @property
    def jitter(self) -> float: ...
    @property
    def missed(self) -> str: ...
    @property
    def grace(self) -> float: ...
    @property
    def overlap(self) -> str: ...


@dataclass(frozen=True)
class Policies:
    """The policies of a row, in Python's types."""

    name: str
    task: Any
    max_runs: int | None
    jitter: timedelta
    missed: str
    grace: timedelta
    overlap: str


def rule_of(row: HasRule) -> Rule:
    """Return the rule of a row; raise ValueError if it has none that can be."""
    if not all(isinstance(day, str) for day in row.except_dates):
        raise ValueError(f"expected except_dates to list dates, got {str(row.except_dates)[:200]}.")
    try:
        return _rule(
            row.cron,
            row.every,
            row.timezone,
            row.skipped_time,
            row.repeated_time,
            row.starts_at and aware(row.starts_at),
            row.ends_at and aware(row.ends_at),
            tuple(row.except_dates),
        )
    except (OverflowError, TypeError) as error:
        raise ValueError(str(error)) from None


# Checking a rule takes longer than planning by it.
@lru_cache(maxsize=4096)
def _rule(
    cron: str | None,
    every: float | None,
    timezone: str,
    skipped_time: str | None,
    repeated_time: str | None,
    starts: datetime | None,
    ends: datetime | None,
    except_dates: tuple[str, ...],
) -> Rule:
    return Rule(
        cron=cron,
        every=None if every is None else _length(every),
        timezone=timezone,
        skipped_time=skipped_time,
        repeated_time=repeated_time,
        starts=starts,
        ends=ends,
        except_dates=tuple(map(date.fromisoformat, except_dates)),
    )


def policies_of(row: HasPolicies, task: Any) -> Policies:
    """Return the policies of a row; raise ValueError if they are none.

    Lacking where only the task as it is declared here cannot have them.
    """
    policies = Policies(
        name=row.name,
        task=task,
        max_runs=row.max_runs,
        jitter=_length(row.jitter),
        missed=row.missed,
        grace=_length(row.grace),
        overlap=row.overlap,
    )
    of_task = next(find_task_problems(policies), None)
    for problem in find_problems(policies):
        raise (Lacking if problem == of_task else ValueError)(problem)
    return policies


def _length(seconds: float) -> timedelta:
    if not math.isfinite(seconds):
        raise ValueError(f"expected a finite number of seconds, got {seconds}.")
    # The column may hold a length of time that Python cannot.
    longest = LONGEST_SPAN.total_seconds()
    return timedelta(seconds=max(-longest, min(seconds, longest)))


def plan(row: ScheduleRow, task: Any, *, since: datetime | None = None) -> OccurrencePlan:
    """Say what is to be done about a schedule that is due or to be planned.

    What was on time at *since* still counts as on time, because it had to wait for its turn; for
    MAX_BEHIND at most, so that a scheduler with too much to do leaves something out.
    """
    on_time_from = row.now.astimezone(UTC) - ON_TIME
    if since is not None:
        waited = min(max(row.now - since, timedelta()), MAX_BEHIND)
        on_time_from -= waited
    try:
        return _planned(row, _known_rule(row), policies_of(row, task), on_time_from)
    except Lacking as error:
        return OccurrencePlan(lacks=str(error))
    except Exception as error:  # whatever is in a row, it is an error of this row
        name = type(error).__name__
        said = str(error) if isinstance(error, ValueError) else with_text(name, error)
        return OccurrencePlan(error=f"It is not planned: {said}")


def _known_rule(row: ScheduleRow) -> Rule:
    """Return the rule of a row; raise Lacking where another process knew it a moment ago."""
    try:
        return rule_of(row)
    except ValueError as error:
        # A change of the rule would have it planned anew. If nobody takes it, it is broken.
        if row.next_at is not None and row.next_at > row.now - ON_TIME:
            raise Lacking(str(error)) from None
        raise


def _planned(
    row: ScheduleRow, rule: Rule, policies: Policies, on_time_from: datetime
) -> OccurrencePlan:
    now = row.now.astimezone(UTC)
    left = None if policies.max_runs is None else policies.max_runs - row.runs
    if left is not None and left <= 0:
        return OccurrencePlan()
    if row.next_at is not None:
        first: datetime | None = row.next_at.astimezone(UTC)
    elif row.plan_from is not None and row.plan_from < now:
        first = _next(rule, row.plan_from.astimezone(UTC) - TICK)
    else:
        first = _next(rule, now)
    if first is None or first > now:
        return OccurrencePlan(next_at=first)
    found = _due(row, first, rule, policies, on_time_from)
    # Of those that an overlap cancels only the newest has a job.
    if left is not None and left < len(found.due) and policies.overlap != "cancel":
        # Not all of these need become jobs: whether it ends is seen after them.
        return replace(found, due=found.due[:left], next_at=found.due[left])
    return found


def _due(
    row: ScheduleRow, first: datetime, rule: Rule, policies: Policies, on_time_from: datetime
) -> OccurrencePlan:
    """Divide what is due by now, from *first* on, into what is enqueued and what is left out."""
    now = row.now.astimezone(UTC)
    made_up: list[datetime] = []
    begin = max(first, on_time_from)
    if first < on_time_from:
        made_up = _made_up(rule, policies, first, now, on_time_from)
    on_time, following = _on_time(rule, begin, now)
    if policies.missed == "latest" and on_time:
        made_up = []
    due = [*made_up, *on_time][:MAX_DUE]
    next_at = following
    if len(made_up) + len(on_time) >= MAX_DUE:
        next_at = _next(rule, due[-1])
    left_out = None
    if first < on_time_from and first not in due:
        end = due[0] if due else begin
        left_out = OccurrenceRow(
            row.name,
            first,
            OccurrenceOutcome.MISSED,
            f"No worker was there; nor until {end.isoformat(' ', 'seconds')}.",
        )
    return OccurrencePlan(tuple(due), left_out, next_at)


def _made_up(
    rule: Rule, policies: Policies, first: datetime, now: datetime, on_time_from: datetime
) -> list[datetime]:
    """Return the missed occurrences that are enqueued all the same."""
    end = on_time_from - TICK
    begin = max(first, now - min(policies.grace, now - first))
    if policies.missed == "skip" or begin > end:
        return []
    if policies.missed == "all":
        return _instants(rule, begin, end, MAX_DUE)
    latest = latest_occurrence(rule, begin - TICK, end)
    return [] if latest is None else [latest.at]


def _on_time(rule: Rule, begin: datetime, now: datetime) -> tuple[list[datetime], datetime | None]:
    """Return up to MAX_DUE occurrences from *begin* to *now*, and the one after *now*.

    One walk finds both, because each is a search. What comes after more than MAX_DUE is not told.
    """
    found: list[datetime] = []
    for each in islice(occurrences(rule, begin - TICK), MAX_DUE):
        if each.at > now:
            return found, each.at
        found.append(each.at)
    return found, None


def _instants(rule: Rule, begin: datetime, end: datetime, count: int) -> list[datetime]:
    """Return the occurrences from *begin* to *end*, both included."""
    return [each.at for each in islice(occurrences_until(rule, begin - TICK, end), count)]


def _next(rule: Rule, after: datetime) -> datetime | None:
    found = next_occurrence(rule, after)
    return None if found is None else found.at


def delay_of(name: str, instant: datetime, jitter: timedelta) -> timedelta:
    """Return how much later a job starts: the same for everybody who calculates it."""
    digest = hashlib.blake2b(f"{name}\n{instant.timestamp()}".encode(), digest_size=8).digest()
    return jitter * (int.from_bytes(digest) / 2**64)
