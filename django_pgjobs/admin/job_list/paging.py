"""Paging by the place of a row instead of its number: every page costs the same.

Jobs come by id, newest first or oldest first; those of one finished status by the time of their
end, which is what the index on them is for. Going back means to read the other way round.
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
from django_pgjobs.values.bounds import MAX_BIGINT
from django_pgjobs.values.moments import aware
from django_pgjobs.values.payload import EARLIEST, LATEST, in_utc

FIRST_ID, LAST_ID = -MAX_BIGINT - 1, MAX_BIGINT
PLACE = re.compile(r"(?:(?P<moment>[0-9T:.+-]*)~)?(?P<id>-?[0-9]{1,19})", re.ASCII)


class PageStart(NamedTuple):
    """Where a page begins: a job, and its time if the order is by one (None: nobody knows)."""

    job_id: int
    moment: datetime | None = None


@dataclass(frozen=True)
class Order:
    """By id, or by a *column* of times; *is_onward* below asks for what comes later in it.

    With *is_sorted* the database is to collect the jobs by another index and to sort them: it
    might walk through all ids to find the few that match.
    """

    column: str = ""
    oldest_first: bool = False
    is_sorted: bool = False

    def parse(self, text: str) -> PageStart | None:
        """Return the place that `format` wrote, None if it cannot have."""
        found = PLACE.fullmatch(text)
        if found is None or (found["moment"] is not None) != bool(self.column):
            return None
        try:
            moment = datetime.fromisoformat(found["moment"]) if found["moment"] else None
        except ValueError:
            return None
        job_id = int(found["id"])
        if (moment is not None and moment.tzinfo is None) or not FIRST_ID <= job_id <= LAST_ID:
            return None
        return PageStart(job_id, in_utc(moment) if moment else None)

    def format(self, place: PageStart) -> str:
        """Return a place as the address of a page has it."""
        if not self.column:
            return str(place.job_id)
        moment = place.moment.isoformat() if place.moment else ""
        return f"{moment}~{place.job_id}"

    def place_of(self, job: Any) -> PageStart:
        """Return the place of a row."""
        moment = getattr(job, self.column) if self.column else None
        return PageStart(job.pk, aware(moment) if moment else None)

    def descends(self, *, is_onward: bool) -> bool:
        """Is the next row of that direction an older one?"""
        return is_onward is not self.oldest_first

    def fields(self, *, is_onward: bool) -> list[Any]:
        """Return what to order by."""
        by_id = F("id") + 0 if self.is_sorted else F("id")
        keys = [F(self.column), by_id] if self.column else [by_id]
        descends = self.descends(is_onward=is_onward)
        return [key.desc() if descends else key.asc() for key in keys]

    def beyond(self, place: PageStart, *, is_onward: bool) -> Q:
        """Return the condition of coming after *place*. Jobs without a time are the newest."""
        descends = self.descends(is_onward=is_onward)
        by_id = Q(id__lt=place.job_id) if descends else Q(id__gt=place.job_id)
        if not self.column:
            return by_id
        moment: Any = place.moment
        if moment is None:
            unknown = self.is_unknown & by_id
            return unknown | ~self.is_unknown if descends else unknown
        if moment in (EARLIEST, LATEST):
            moment = self._stored(moment, place.job_id)
        # The first condition is for the index, the second for jobs of the same time.
        return self._compare("lte" if descends else "gte", moment) & (
            self._compare("lt" if descends else "gt", moment) | by_id
        )

    @property
    def is_unknown(self) -> Q:
        """The condition of having no time to order by."""
        return Q(**{f"{self.column}__isnull": True})

    def _compare(self, lookup: str, moment: Any) -> Q:
        return Q(**{f"{self.column}__{lookup}": moment})

    def find_edge(self, jobs: QuerySet[Any], distance: int, *, is_onward: bool) -> PageStart | None:
        """Return the place that is *distance* jobs away, None if there are not so many.

        Only the index is read. Of jobs of the same time all are on this side of the place.
        """
        descends = self.descends(is_onward=is_onward)
        name = self.column or "id"
        key = F(name).desc() if descends else F(name).asc()
        column = shown_time(name) if self.column else F(name)
        rows = jobs.order_by(key).values_list(column, flat=True)[distance : distance + 1]
        for value in rows:
            if not self.column:
                return PageStart(value)
            moment = value and aware(value)
            # Behind times that can be shown there is no place to go on from.
            if moment is None or moment == (EARLIEST if descends else LATEST):
                return None
            return PageStart(FIRST_ID if descends else LAST_ID, moment)
        return None

    def within(self, edge: PageStart, *, is_onward: bool) -> Q:
        """Return the condition of not coming after *edge*."""
        name, value = (self.column, edge.moment) if self.column else ("id", edge.job_id)
        return Q(**{f"{name}__{'gte' if self.descends(is_onward=is_onward) else 'lte'}": value})

    def _stored(self, shown: datetime, job_id: int) -> Any:
        """Return the time of a job whose time may be shown as the nearest that can be."""
        stored = Job.objects.filter(pk=job_id).values(self.column)
        stored.query.has_plain_times = True
        return Coalesce(Subquery(stored), shown)
