"""Paging by the place of a row instead of its number: every page costs the same.

Jobs come by id, newest first; those of one finished status by the time of their end, which is
what the index on them is for. Going back means to read the other way round.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import F, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce

from django_pgjobs.models import Job
from django_pgjobs.models.fields import shown_time
from django_pgjobs.values.payload import EARLIEST, LATEST, in_utc

FIRST_ID, LAST_ID = -(2**63), 2**63 - 1
PLACE = re.compile(r"(?:(?P<end>[0-9T:.+-]*)~)?(?P<id>-?[0-9]{1,19})", re.ASCII)


class Place(NamedTuple):
    """Where a page begins: a job, and for finished ones when it ended (None: nobody knows)."""

    job_id: int
    finished_at: datetime | None = None


@dataclass(frozen=True)
class Order:
    """One of the two orders; *is_older* below asks for what comes later in it.

    With *is_sorted* the database is to collect the jobs by another index and to sort them: it
    might walk through all ids to find the few that match.
    """

    by_end: bool
    is_sorted: bool = False

    def parse(self, text: str) -> Place | None:
        """Return the place that `format` wrote, None if it cannot have."""
        found = PLACE.fullmatch(text)
        if found is None or (found["end"] is not None) != self.by_end:
            return None
        try:
            end = datetime.fromisoformat(found["end"]) if found["end"] else None
        except ValueError:
            return None
        job_id = int(found["id"])
        if (end is not None and end.tzinfo is None) or not FIRST_ID <= job_id <= LAST_ID:
            return None
        return Place(job_id, in_utc(end) if end else None)

    def format(self, place: Place) -> str:
        """Return a place as the address of a page has it."""
        if not self.by_end:
            return str(place.job_id)
        end = place.finished_at.isoformat() if place.finished_at else ""
        return f"{end}~{place.job_id}"

    def place_of(self, job: Any) -> Place:
        """Return the place of a row."""
        return Place(job.pk, job.finished_at if self.by_end else None)

    def fields(self, *, is_older: bool) -> list[Any]:
        """Return what to order by."""
        by_id = F("id") + 0 if self.is_sorted else F("id")
        keys = [F("finished_at"), by_id] if self.by_end else [by_id]
        return [key.desc() if is_older else key.asc() for key in keys]

    def beyond(self, place: Place, *, is_older: bool) -> Q:
        """Return the condition of coming after *place*. Jobs without an end come first."""
        by_id = Q(id__lt=place.job_id) if is_older else Q(id__gt=place.job_id)
        if not self.by_end:
            return by_id
        end: Any = place.finished_at
        if end is None:
            unknown = Q(finished_at__isnull=True) & by_id
            return unknown | Q(finished_at__isnull=False) if is_older else unknown
        end = _stored_end(end, place.job_id) if end in (EARLIEST, LATEST) else end
        # The first condition is for the index, the second for jobs that ended at once.
        if is_older:
            return Q(finished_at__lte=end) & (Q(finished_at__lt=end) | by_id)
        return Q(finished_at__gte=end) & (Q(finished_at__gt=end) | by_id)

    def find_edge(self, jobs: QuerySet[Any], distance: int, *, is_older: bool) -> Place | None:
        """Return the place that is *distance* jobs away, None if there are not so many.

        Only the index is read. Of jobs that ended at once all are on this side of the place.
        """
        name = "finished_at" if self.by_end else "id"
        key = F(name).desc() if is_older else F(name).asc()
        column = shown_time(name) if self.by_end else F(name)
        rows = jobs.order_by(key).values_list(column, flat=True)[distance : distance + 1]
        for value in rows:
            if not self.by_end:
                return Place(value)
            # Behind times that can be shown there is no place to go on from.
            if value is None or value == (EARLIEST if is_older else LATEST):
                return None
            return Place(FIRST_ID if is_older else LAST_ID, value)
        return None

    def within(self, edge: Place, *, is_older: bool) -> Q:
        """Return the condition of not coming after *edge*."""
        name, value = ("finished_at", edge.finished_at) if self.by_end else ("id", edge.job_id)
        return Q(**{f"{name}__{'gte' if is_older else 'lte'}": value})


def _stored_end(shown: datetime, job_id: int) -> Any:
    """Return when a job ended whose end may be shown as the nearest time that can be."""
    stored = Job.objects.filter(pk=job_id).values("finished_at")
    stored.query.has_plain_times = True  # type: ignore[attr-defined]
    return Coalesce(Subquery(stored), shown)
