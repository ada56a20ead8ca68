"""Going through a selection in pages, by an index, from a position that can be stored.

A position holds a time as PostgreSQL writes it: Python has no datetime for some.

A selection is walked in legs. Finished jobs of one status are a leg in the order of their end,
for which there is an index; those that have none (rows of others) are one in the order of the
ids, and so are all unfinished jobs. A page looks at so many rows of a leg, whether the lookups
keep one of them or none: so it takes a short time however few jobs are selected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Required, TypedDict

from django.db.models import Count, DateTimeField, F, Q, QuerySet, TextField, Value
from django.db.models.functions import Cast

from django_pgjobs.bulk.lookups import names_masked
from django_pgjobs.bulk.selection import Selection
from django_pgjobs.models import Job
from django_pgjobs.permissions import Verb, narrow
from django_pgjobs.queries.budget import walking
from django_pgjobs.queries.database import job_database
from django_pgjobs.status import FINISHED, UNFINISHED, JobStatus

# Jobs that one transaction changes.
PAGE_JOBS = 1_000
# Rows of a leg that one page looks at.
WINDOW_ROWS = 20_000
# How the finished statuses follow each other: what people ask for most comes first.
ORDER = (JobStatus.FAILED, JobStatus.CANCELLED, JobStatus.SUCCESSFUL)

Narrow = Callable[[QuerySet[Job]], QuerySet[Job]]
# A status, a queue and a task.
Place = tuple[str, str, str]


class Position(TypedDict, total=False):
    """Where a walk has got to, as it is stored in JSON.

    *leg* is always there. *at* is the value of the last row in the order of the leg, absent at its
    begin; *id* tells rows apart that share it, None: all of them were looked at.
    """

    leg: Required[int]
    at: Any
    id: int | None


def allowed_to(user: Any, verb: Verb, selection: Selection) -> Narrow:
    """Return what leaves over of jobs those that *user* may do this to.

    If the selection tells something of masked values, also those only that *user* may see.
    """
    verbs = (verb, Verb.REVEAL) if names_masked(selection.lookups) else (verb,)

    def allowed(jobs: QuerySet[Job]) -> QuerySet[Job]:
        for each in verbs:
            jobs = narrow(user, each, jobs)
        return jobs

    return allowed


@dataclass(frozen=True)
class Leg:
    """A part of the walk: jobs of some statuses, in the order of *by*."""

    by: str
    where: Q


def legs_of(selection: Selection, statuses: tuple[str, ...]) -> list[Leg]:
    """Return the legs that lead to all jobs of *selection* with one of *statuses*."""
    wanted = selection.statuses & set(statuses)
    before = Q(finished_at__lte=selection.until) if selection.until else Q()
    if selection.is_of_ids:
        return [Leg("id", Q(status__in=sorted(wanted)) & (before | Q(finished_at=None)))]
    legs = []
    live = sorted(wanted & UNFINISHED)
    if live:
        legs.append(Leg("id", Q(status__in=live)))
    for status in ORDER:
        if status in wanted & FINISHED:
            has_end = Q(status=status, finished_at__isnull=False)
            legs.append(Leg("finished_at", has_end & before))
            legs.append(Leg("id", Q(status=status, finished_at=None)))
    return legs


class Walk:
    """The jobs of a selection that suit *condition* and that *narrow* leaves over.

    *spared*, if given: they are all jobs of *statuses* but those that meet this condition.
    """

    def __init__(
        self,
        selection: Selection,
        statuses: tuple[str, ...],
        condition: Q,
        narrow: Narrow,
        *,
        spared: Q | None = None,
        page_jobs: int | None = None,
        window_rows: int | None = None,
    ) -> None:
        self.legs = legs_of(selection, statuses)
        self._selection = selection
        self._condition = selection.conditions() & condition
        self._narrow = narrow
        self._spared = spared
        self._page_jobs = page_jobs or PAGE_JOBS
        self._window_rows = window_rows or WINDOW_ROWS

    def page(self, position: Position | None) -> tuple[list[int], Position | None]:
        """Return the ids of the next page and the position after it, None at the end."""
        here = position or {"leg": 0}
        if here["leg"] >= len(self.legs):
            return [], None
        leg = self.legs[here["leg"]]
        with walking(job_database()):
            ids, end = self._read(leg, here)
        return [job_id for job_id, _ in ids], self._next(here, leg, ids, end)

    def _read(self, leg: Leg, here: Position) -> tuple[list[Any], Any]:
        """Return the jobs of a page with their places in the leg, and where its window ends."""
        rows = _jobs().filter(leg.where & _after(leg, here))
        end = None if self._selection.is_of_ids else self._window_end(leg, rows)
        found = self._narrow(rows.filter(self._condition))
        if end is not None:
            found = found.filter(**{f"{leg.by}__lte": _value(leg, end)})
        order = ("id",) if leg.by == "id" else (leg.by, "id")
        return list(found.order_by(*order).values_list("id", _stored(leg))[: self._page_jobs]), end

    def jobs(self) -> QuerySet[Job]:
        """Return all of the jobs at once; to read them may take long."""
        return self._all(self._condition)

    def total(self) -> int:
        """Return how many jobs there are, which may take long."""
        if self._spared is None:
            return self.jobs().count()
        # Two indexes tell these two numbers; to tell the one, each row would be read.
        chosen = self._selection.conditions()
        spared = self._all(chosen & self._spared).count()
        return self._all(chosen).count() - spared

    def places(self) -> Counter[Place]:
        """Return where how many of the jobs are, which may take longer than their total."""
        columns = ("status", "queue_name", "task_path")
        counts = self.jobs().order_by().values_list(*columns).annotate(jobs=Count("*"))
        return Counter({(row[0], row[1], row[2]): row[3] for row in counts})

    def pages(self) -> Iterator[list[int]]:
        """Yield the ids of page after page."""
        position: Position | None = {"leg": 0}
        while position is not None:
            ids, position = self.page(position)
            if ids:
                yield ids

    def _all(self, condition: Q) -> QuerySet[Job]:
        places = Q()
        for leg in self.legs:
            places |= leg.where
        return self._narrow(_jobs().filter(places & condition)) if self.legs else _jobs().none()

    def _window_end(self, leg: Leg, rows: QuerySet[Job]) -> Any:
        """Return where the window ends, None if the leg ends before it does."""
        values = rows.order_by(F(leg.by)).values_list(_stored(leg), flat=True)
        return next(iter(values[self._window_rows : self._window_rows + 1]), None)

    def _next(self, here: Position, leg: Leg, ids: list[Any], end: Any) -> Position | None:
        if len(ids) == self._page_jobs:
            job_id, at = ids[-1]
            return {"leg": here["leg"], "at": at, "id": job_id if leg.by != "id" else None}
        if end is not None:
            return {"leg": here["leg"], "at": end, "id": None}
        following = here["leg"] + 1
        return {"leg": following} if following < len(self.legs) else None


def _jobs() -> QuerySet[Job]:
    return Job.objects.using(job_database())


def _stored(leg: Leg) -> Any:
    """Return what selects the place of a row in a leg, as a position holds it."""
    return F("id") if leg.by == "id" else Cast(leg.by, TextField())


def _value(leg: Leg, at: Any) -> Any:
    """Return what a position holds, to be compared with the column."""
    return at if leg.by == "id" else Cast(Value(at), DateTimeField())


def _after(leg: Leg, here: Position) -> Q:
    """Return the condition of the rows that the walk has not looked at yet."""
    at = here.get("at")
    if at is None:
        return Q()
    if leg.by == "id":
        return Q(id__gt=at)
    moment = _value(leg, at)
    if here.get("id") is None:
        return Q(finished_at__gt=moment)
    # The first condition is for the index.
    return Q(finished_at__gte=moment) & (Q(finished_at__gt=moment) | Q(id__gt=here["id"]))
