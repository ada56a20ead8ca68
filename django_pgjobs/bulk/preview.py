"""What a bulk change would be about, counted as far as that is cheap, before it is confirmed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import (
    BigIntegerField,
    BooleanField,
    Case,
    DateTimeField,
    Q,
    QuerySet,
    Value,
    When,
)
from django.db.models.functions import Cast

from django_pgjobs.bulk.actions import Action, ChosenOptions
from django_pgjobs.bulk.dependants import count_dependants, find_dependants
from django_pgjobs.bulk.selection import Selection
from django_pgjobs.bulk.trees import is_small_tree
from django_pgjobs.bulk.walk import ORDER, Narrow, Place, Walk
from django_pgjobs.conf import get_conf
from django_pgjobs.exceptions import TooSlow
from django_pgjobs.models import Job
from django_pgjobs.models.fields import shown_time
from django_pgjobs.queries.budget import time_budget
from django_pgjobs.queries.database import job_database
from django_pgjobs.status import FINISHED, UNFINISHED, JobStatus

# Jobs that are counted; beyond it is "more than 10,000".
MAX_COUNTED = 10_000
# Jobs of each status that are counted among those that are skipped.
MAX_SKIPPED = 1_000
# Rows of each status that are looked at, the newest ones, when the lookups may keep few of them.
# All statuses together are 40,000.
MAX_ROWS = 10_000
COUNT_SECONDS = 0.3
# Most seconds for counting exactly what was not counted so far.
EXACT_SECONDS = 1.0
# On a page that is to be there at once: seconds for both together, and the least for the latter.
QUICK_SECONDS = 0.1
LEAST_SECONDS = 0.01
# What ends unfinished jobs, and with them those that wait for them.
ENDING = ("cancel", "discard")
MAX_GROUPS = 10
MAX_SAMPLES = 5
NONE: ChosenOptions = {}
MORE: ChosenOptions = {"reset_attempts": True}
YES, NO = Value(True), Value(False)


class Row(NamedTuple):
    """What is read of each job that is counted.

    *is_suitable*: it would be changed; *suits_more*: it would be if attempts are reset.
    """

    pk: int
    status: str
    queue_name: str
    task_path: str
    attempts: int
    enqueued_at: datetime
    is_suitable: bool
    suits_more: bool


@dataclass
class Preview:
    """The jobs of a selection as far as they were counted.

    *suitable* jobs would be changed, *more* of those that are skipped if their attempts were
    reset (None: too many to count). The numbers are lower bounds if *is_capped*, if not all
    rows were looked at (*is_cut*), or if there was no time to count (*is_unknown*). Then
    *exact* jobs would be changed, None if that takes too long to count. *statuses* and *groups*
    (by queue and task) are of all that would be changed, or of a *sample* of so many of them.
    *dependants* others are cancelled with them (None: too long to count).
    """

    suitable: int = 0
    more: int | None = 0
    statuses: list[tuple[str, int]] = field(default_factory=list)
    skipped: list[tuple[str, int]] = field(default_factory=list)
    groups: list[tuple[str, str, int]] = field(default_factory=list)
    other_groups: int = 0
    sample: int | None = None
    samples: list[Row] = field(default_factory=list)
    is_capped: bool = False
    is_cut: bool = False
    is_unknown: bool = False
    exact: int | None = None
    dependants: int | None = 0

    @property
    def is_partial(self) -> bool:
        """Was not all counted that would be changed, by reading it?"""
        return self.is_capped or self.is_cut or self.is_unknown

    @property
    def total(self) -> int | None:
        """How many jobs would be changed, None if that is not known exactly."""
        return self.exact if self.is_partial else self.suitable

    @property
    def is_counted(self) -> bool:
        """Would more time to count tell nothing else?"""
        if self.dependants is None:
            return False
        return not self.is_partial or (None not in (self.exact, self.more) and self.sample is None)

    def put(self, places: Counter[Place], *, sample: int | None = None) -> None:
        """Tell where jobs are, all of them or a *sample* of so many."""
        statuses: Counter[str] = Counter()
        groups: Counter[tuple[str, str]] = Counter()
        for (status, *group), count in places.items():
            statuses[status] += count
            groups[group[0], group[1]] += count
        self.statuses = statuses.most_common()
        self.groups = [(*names, count) for names, count in groups.most_common(MAX_GROUPS)]
        self.other_groups = max(len(groups) - MAX_GROUPS, 0)
        self.sample = sample


class IndexRange(NamedTuple):
    """Where to look: a condition and an *order* of an index, and what may be found there: jobs
    that are suited, and *others* with this condition (None: there are none).

    Without the order, a limit makes the planner scan the table.
    """

    where: Q
    order: str
    has_suitable: bool
    others: Q | None


def preview(
    action: Action, selection: Selection, narrow: Narrow, *, is_quick: bool = False
) -> Preview:
    """Return what *action* would be about; *narrow* leaves out what the person may not touch.

    *is_quick*: what takes longer than QUICK_SECONDS to count is left out.
    """
    began = time.monotonic()
    try:
        with time_budget(job_database(), QUICK_SECONDS if is_quick else COUNT_SECONDS):
            found = _preview(action, selection, narrow)
    except TooSlow:
        found = Preview(is_unknown=True, more=None, dependants=None)
        if is_quick:
            return found
    left = max(QUICK_SECONDS - (time.monotonic() - began), LEAST_SECONDS) if is_quick else None
    if found.is_partial:
        _count_exactly(found, action, selection, narrow, quick_seconds=left)
    elif action.name in ENDING:
        jobs = _walk_of(action, selection, narrow, NONE).jobs()
        found.dependants = count_dependants(jobs, quick_seconds=left)
    return found


def _walk_of(action: Action, selection: Selection, narrow: Narrow, options: ChosenOptions) -> Walk:
    """Return the walk that the change takes."""
    suits = action.suits(options)
    return Walk(selection, action.statuses, suits, narrow, spared=action.spared)


def _count_exactly(
    found: Preview,
    action: Action,
    selection: Selection,
    narrow: Narrow,
    *,
    quick_seconds: float | None,
) -> None:
    """Note how many jobs the change would walk to, how many more if attempts are reset, how many
    others are cancelled with them, and where they are; none of it may take longer than
    EXACT_SECONDS, or all together than *quick_seconds*.
    """
    is_quick = quick_seconds is not None
    further, ends = _more_of(action, selection, narrow), action.name in ENDING
    found.more, found.dependants = None if further else 0, None if ends else 0
    try:
        with time_budget(
            job_database(), quick_seconds or EXACT_SECONDS, together=is_quick
        ) as go_on:
            walk = _walk_of(action, selection, narrow, NONE)
            found.exact = walk.total()
            if further is not None:
                go_on()
                found.more = further.total()
            if ends:
                go_on()
                found.dependants = find_dependants(walk.jobs(), go_on)
            go_on()
            found.put(walk.places())
    except TooSlow:
        pass


def _more_of(action: Action, selection: Selection, narrow: Narrow) -> Walk | None:
    """Return the walk to what a change takes besides if attempts are reset, None if to nothing.

    An action is for the finished jobs of a status whatever is chosen, so these have not finished.
    """
    if action.suits(MORE) == action.suits(NONE):
        return None
    live = tuple(status for status in action.statuses if status in UNFINISHED)
    return Walk(selection, live, action.suits(MORE) & ~action.suits(NONE), narrow)


def _preview(action: Action, selection: Selection, narrow: Narrow) -> Preview:
    jobs = Job.objects.using(job_database())
    places, is_cut = _places(jobs, action, selection)
    chosen, suits = selection.conditions(), action.suits(NONE)
    suitable = [
        _rows(narrow(jobs.filter(place.where & chosen & suits)), place.order, YES)
        for place in places
        if place.has_suitable
    ]
    others = [
        _rows(
            narrow(jobs.filter(place.where & chosen & place.others)),
            place.order,
            NO,
            suits_more=_flag(action.suits(MORE)),
        )[: MAX_SKIPPED + 1]
        for place in places
        if place.others is not None
    ]
    # One statement, so that one limit of time holds for all of it.
    wanted = [_join([part[: MAX_COUNTED + 1] for part in suitable])[: MAX_COUNTED + 1]]
    rows = [Row._make(row) for row in _join([*(wanted if suitable else []), *others])]
    found = _count([row for row in rows if row.is_suitable])
    rest = [row for row in rows if not row.is_suitable]
    found.skipped = Counter(row.status for row in rest).most_common()
    more = sum(row.suits_more for row in rest)
    found.more = None if any(count > MAX_SKIPPED for _, count in found.skipped) and more else more
    if is_cut:
        found.is_cut = True
        found.sample = min(found.suitable, MAX_COUNTED)
    return found


def _rows(
    jobs: QuerySet[Job], order: str, is_suitable: Value, suits_more: Any = NO
) -> QuerySet[Any, Any]:
    """Return the query for the rows of jobs."""
    flagged = jobs.annotate(is_suitable=is_suitable, suits_more=suits_more)
    return flagged.order_by(order).values_list(*Row._fields)


def _join(parts: list[QuerySet[Any, Any]]) -> Any:
    """Return one query for the rows of all parts."""
    return parts[0].union(*parts[1:], all=True) if parts else []


def _count(rows: list[Row]) -> Preview:
    found = Preview(
        suitable=len(rows), samples=rows[:MAX_SAMPLES], is_capped=len(rows) > MAX_COUNTED
    )
    # Not the one that tells that there are more: the page names the number.
    counted = rows[:MAX_COUNTED]
    places = Counter((row.status, row.queue_name, row.task_path) for row in counted)
    found.put(places, sample=len(counted) if found.is_capped else None)
    return found


def _flag(condition: Q) -> Case:
    return Case(When(condition, then=Value(True)), default=False, output_field=BooleanField())


def _places(
    jobs: QuerySet[Job], action: Action, selection: Selection
) -> tuple[list[IndexRange], bool]:
    """Return where to look, and whether that leaves something out."""
    pin = Q(finished_at=None)
    if selection.until is not None:
        pin |= Q(finished_at__lte=selection.until)
    if selection.is_of_ids:
        return [IndexRange(pin, "-id", True, ~action.suits(NONE))], False
    # If any finished job is one of the selection, the limit is met soon.
    is_plain = set(selection.lookups) <= {"status", "status__in"}
    is_dense = is_plain and get_conf().ADMIN_PERMISSION is None and action.spared is None
    bounded = selection.statuses & UNFINISHED if is_dense else selection.statuses
    # The index of batches leads to the jobs of a small one.
    is_small = is_small_tree(selection, MAX_ROWS)
    bounds = {} if is_small else _bounds(jobs, bounded, selection.until)
    places = []
    # What people look for comes first: of what follows, the limit may leave nothing.
    for status in (*ORDER, JobStatus.READY, JobStatus.RUNNING):
        if status not in selection.statuses:
            continue
        is_live = status in UNFINISHED
        where = bounds.get("live", Q()) if is_live else bounds.get(status, pin)
        suits = status in action.statuses
        # But for those that it spares, an action is for all finished jobs of a status, or for none.
        others = ~action.suits(NONE) if is_live or not suits else action.spared
        order = "-id" if is_live or is_small else "-finished_at"
        places.append(IndexRange(Q(status=status) & where, order, suits, others))
    return places, bool(bounds)


def _bounds(jobs: QuerySet[Job], statuses: Collection[str], until: datetime | None) -> dict[str, Q]:
    """Return the condition of the newest rows of the live partition and of each status.

    There is none for a status with fewer rows than are read.
    """
    no_id, no_time = Cast(Value(None), BigIntegerField()), Cast(Value(None), DateTimeField())
    parts = []
    if UNFINISHED.intersection(statuses):
        live = jobs.filter(status__in=sorted(UNFINISHED)).order_by("-id")
        parts.append(live.values_list(Value("live"), "id", no_time))
    for status in sorted(FINISHED.intersection(statuses)):
        ended = jobs.filter(status=status, finished_at__lte=until)
        # By the index alone: the id is not in it.
        parts.append(
            ended.order_by("-finished_at").values_list(
                Value(status), no_id, shown_time("finished_at")
            )
        )
    parts = [part[MAX_ROWS : MAX_ROWS + 1] for part in parts]
    bounds: dict[str, Q] = {}
    for place, job_id, moment in parts[0].union(*parts[1:], all=True) if parts else ():
        if place == "live":
            bounds[place] = Q(id__gt=job_id)
        else:
            # Those that ended in the same instant are not told apart: many may, by one statement.
            bounds[place] = Q(finished_at__gte=moment, finished_at__lte=until)
    return bounds
