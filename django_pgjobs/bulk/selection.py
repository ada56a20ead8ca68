"""Which jobs a bulk change is about, pinned to those that existed when somebody saw them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypedDict

from django.db.models import Q

from django_pgjobs.bulk.lookups import InvalidLookup, conditions
from django_pgjobs.queries.bulk import pin_jobs
from django_pgjobs.queries.database import job_cursor
from django_pgjobs.status import JobStatus
from django_pgjobs.values.bounds import is_whole


class StoredSelection(TypedDict):
    """A selection as JSON: *until* is ISO text."""

    lookups: dict[str, Any]
    until: str | None
    max_id: int | None


@dataclass(frozen=True)
class Selection:
    """Jobs by `lookups`, as far as they existed and had finished when it was pinned.

    Until then *until* and *max_id* are None. Jobs that are enqueued or finish later are not those
    that somebody looked at; and a requeue of failed jobs that fail again would never end.
    """

    lookups: Mapping[str, Any] = field(default_factory=dict)
    until: datetime | None = None
    max_id: int | None = None

    @classmethod
    def ids(cls, ids: Iterable[int]) -> Selection:
        """Return the selection of some jobs by their ids."""
        return cls({"id__in": sorted({int(job_id) for job_id in ids})})

    @classmethod
    def from_json(cls, value: Any) -> Selection:
        """Return what `to_json` wrote; raise InvalidLookup if it cannot have."""
        if not isinstance(value, dict) or not isinstance(value.get("lookups"), dict):
            raise InvalidLookup(f"expected a selection, got {value!r:.80}.")
        conditions(value["lookups"])
        until, max_id = value.get("until"), value.get("max_id")
        try:
            instant = None if until is None else datetime.fromisoformat(until)
        except (TypeError, ValueError):
            raise InvalidLookup(f"expected a date and a time, got {until!r:.80}.") from None
        if max_id is not None and not is_whole(max_id):
            raise InvalidLookup(f"expected the id of a job, got {max_id!r:.80}.")
        return cls(value["lookups"], instant, max_id)

    def to_json(self) -> StoredSelection:
        """Return the selection as a JSON value."""
        return {
            "lookups": _plain(self.lookups),
            "until": self.until.isoformat() if self.until else None,
            "max_id": self.max_id,
        }

    def pinned(self) -> Selection:
        """Return the selection of what there is now."""
        if self.until is not None and self.max_id is not None:
            return self
        with job_cursor() as cursor:
            max_id, now = pin_jobs(cursor)
        return replace(self, until=now, max_id=max_id)

    @property
    def is_of_ids(self) -> bool:
        """Are the jobs named one by one?"""
        return "id" in self.lookups or "id__in" in self.lookups

    @property
    def statuses(self) -> frozenset[str]:
        """The statuses that the lookups leave over."""
        left = frozenset(JobStatus.values)
        if "status" in self.lookups:
            left &= {self.lookups["status"]}
        if "status__in" in self.lookups:
            left &= set(self.lookups["status__in"])
        return left

    def conditions(self) -> Q:
        """Return the conditions of the lookups and of what pins the selection."""
        found = conditions(self.lookups)
        if self.max_id is not None:
            found &= Q(id__lte=self.max_id)
        return found


def _plain(value: Any) -> Any:
    """Return *value* with instants as text, at every depth."""
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    # A lazy text or a choice of an enum is written as what it stands for.
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, str) else value
