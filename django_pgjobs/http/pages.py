"""Lists in pages: each answer says with which cursor the next one begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.db.models import QuerySet

from django_pgjobs.http.requests import ApiRequest, wrong_parameter
from django_pgjobs.values.job_ids import parse_job_id

MAX_LIMIT = 100
DEFAULT_LIMIT = 50
QUERY = ("cursor", "limit")


def page_of(
    request: ApiRequest, rows: QuerySet[Any], show: Callable[[Any], dict[str, Any]], name: str
) -> dict[str, Any]:
    """Return a page of rows, newest first, as the field *name*, and the cursor of the next."""
    limit = limit_of(request)
    before = identifier_of(request, "cursor")
    if before is not None:
        rows = rows.filter(pk__lt=before)
    found: Sequence[Any] = list(rows.order_by("-pk")[: limit + 1])
    shown = found[:limit]
    cursor = str(shown[-1].pk) if len(found) > limit else None
    return {name: [show(row) for row in shown], "cursor": cursor}


def limit_of(request: ApiRequest, *, most: int = MAX_LIMIT) -> int:
    """Return how many the client wants to have."""
    return request.query_integer("limit", 1, most, default=DEFAULT_LIMIT)


def identifier_of(request: ApiRequest, name: str) -> int | None:
    """Return the id in a parameter, None without it; raise Problem (422)."""
    text = request.query(name, max_length=19)
    if text is None:
        return None
    number = parse_job_id(text)
    if number is None:
        raise wrong_parameter(name, "expected an id, which is a text of digits")
    return number
