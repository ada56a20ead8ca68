"""Jobs as a file, sent row by row: JSON lines, or CSV that a spreadsheet opens safely."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any, TypedDict

from django.db.models.functions import Cast
from django.http import StreamingHttpResponse
from django.utils import timezone

from django_pgjobs.bulk.actions import ACTIONS
from django_pgjobs.bulk.selection import Selection
from django_pgjobs.bulk.walk import Walk, allowed_to
from django_pgjobs.declaring.redaction import MASK, redact
from django_pgjobs.models import Job
from django_pgjobs.models.fields import PlainJSONField, Undecodable
from django_pgjobs.permissions import Verb, is_narrowed, narrow
from django_pgjobs.queries.database import job_database
from django_pgjobs.values.moments import aware
from django_pgjobs.values.notes import without_others

MAX_ROWS = 100_000
# Payloads of so many jobs are held at a time; each is a megabyte at most.
PAGE_JOBS = 200
COLUMNS = (
    "id", "status", "task_path", "queue_name", "priority", "attempts", "max_attempts",
    "lost_count", "max_losses", "enqueued_at", "run_after", "due_at", "ready_at", "expires_at",
    "started_at", "last_attempted_at", "finished_at", "timeout", "backend", "correlation_id",
    "tags", "note", "hold", "concurrency_key", "rate_limit_keys", "unique_key", "subject",
    "schedule", "scheduled_for", "worker_ids", "args", "kwargs", "metadata", "progress", "result",
    "errors",
)  # fmt: skip
SECRET = ("args", "kwargs", "metadata", "progress", "result", "errors")
# What a spreadsheet takes for a formula; an apostrophe in front makes it text.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


class ExportOptions(TypedDict):
    """What a person chose: "jsonl" or "csv", and whether secrets are in it."""

    file_format: str
    reveal: bool


def stream_jobs(user: Any, selection: Selection, options: ExportOptions) -> StreamingHttpResponse:
    """Return the file of the selected jobs that *user* may see, of 100,000 at most.

    Secrets are masked unless the options say *reveal*, which needs the permission for it.
    """
    rows = _rows(user, selection, reveal=bool(options["reveal"]))
    is_csv = options["file_format"] == "csv"
    moment = timezone.now().strftime("%Y%m%d-%H%M%S")
    response = StreamingHttpResponse(
        _csv_lines(rows) if is_csv else _json_lines(rows),
        content_type="text/csv; charset=utf-8" if is_csv else "application/x-ndjson",
    )
    name = f"jobs-{moment}.{'csv' if is_csv else 'jsonl'}"
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    response["X-Content-Type-Options"] = "nosniff"
    return response


def _rows(user: Any, selection: Selection, *, reveal: bool) -> Iterator[dict[str, Any]]:
    """Yield the columns of job after job, page by page."""
    action = ACTIONS["export"]
    allowed = allowed_to(user, Verb.VIEW, selection)
    walk = Walk(selection, action.statuses, action.suits({}), allowed, page_jobs=PAGE_JOBS)
    sees_all = not is_narrowed(user)
    left = MAX_ROWS
    for ids in walk.pages():
        jobs = Job.objects.using(job_database()).filter(pk__in=ids[:left]).order_by("id")
        open_ids: set[int] = set()
        if reveal:
            open_ids = set(narrow(user, Verb.REVEAL, jobs).values_list("pk", flat=True))
        # As text: Django's own field raises for numbers that Python does not read.
        plain = jobs.annotate(errors_as_text=Cast("errors", PlainJSONField()))
        for row in plain.values(*COLUMNS[:-1], "errors_as_text"):
            row["errors"] = row.pop("errors_as_text")
            row["note"] = row["note"] if sees_all else without_others(row["note"])
            is_open = row["id"] in open_ids
            yield row if is_open else {name: _mask(name, value) for name, value in row.items()}
        left -= len(ids)
        if left <= 0:
            return


def _mask(name: str, value: Any) -> Any:
    if name not in SECRET or value is None:
        return value
    # What Python cannot read it cannot mask either.
    return MASK if isinstance(value, Undecodable) else redact(value)


def _json_lines(rows: Iterator[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        yield json.dumps(row, default=_plain, ensure_ascii=False) + "\n"


def _plain(value: Any) -> str:
    return aware(value).isoformat() if isinstance(value, datetime) else str(value)


class _Echo:
    """A file whose write() hands back the line."""

    def write(self, text: str) -> str:
        return text


def _csv_lines(rows: Iterator[dict[str, Any]]) -> Iterator[str]:
    writer = csv.writer(_Echo())
    yield writer.writerow(COLUMNS)
    for row in rows:
        yield writer.writerow([_cell(row[name]) for name in COLUMNS])


def _cell(value: Any) -> Any:
    """Return a value as one cell that no spreadsheet computes."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, dict | list):
        text = json.dumps(value, default=_plain, ensure_ascii=False)
    else:
        text = _plain(value)
    text = text.replace("\0", "")
    return f"'{text}" if text.startswith(FORMULA) else text
