"""`manage.py jobs show` and `explain`: all that is stored of a job, and why it does not run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError
from django.utils.dateparse import parse_datetime

from django_pgjobs.control.explain import explain
from django_pgjobs.control.explanation import Explanation
from django_pgjobs.declaring.registry import discover_tasks
from django_pgjobs.management.history import list_history, write_history
from django_pgjobs.management.printing import Write, in_english, json_text, local_time
from django_pgjobs.models import Batch, Job
from django_pgjobs.queries.database import rows_of
from django_pgjobs.status import UNFINISHED, JobStatus
from django_pgjobs.values.words import CONTROL

# As they come from the database: what Python cannot decode is shown all the same.
COLUMNS = [field.name for field in Job._meta.fields]
# What stands in the first line, what follows the others, and what only the engine reads.
ELSEWHERE = {"id", "status", "errors", "claim", "is_declared", "is_async"}
# What is shown even where it is as in every other job, and before the rest.
FIRST = ("task_path", "args", "kwargs", "queue_name", "priority", "attempts")
DEFAULTS = {field.name: field.get_default() for field in Job._meta.fields}


@in_english()
def explain_job(write: Write, job_id: int, *, as_json: bool) -> None:
    """Print why a job does not run, or what it does; raise CommandError if it is gone."""
    found = _explain(job_id)
    if as_json:
        write(json_text(asdict(found)))
        return
    label = str(JobStatus(found.status).label)
    if found.status == JobStatus.READY:
        label = "ready to run" if found.is_ready_to_run else "waiting"
    write(f"job {found.job_id}: {label.lower()}")
    _write_reasons(write, found)


@in_english()
def show_job(write: Write, job_id: int, *, as_json: bool) -> None:
    """Print a job; raise CommandError if it is gone.

    For people without what is as in every other job, and with why an unfinished one does not run.
    """
    row = rows_of(Job).filter(pk=job_id).values(*COLUMNS).first()
    if row is None:
        raise _gone(job_id)
    history = list_history(Job, job_id)
    if as_json:
        told = None if history is None else [entry._asdict() for entry in history]
        write(json_text(row | {"history": told}))
        return
    write(f"job {job_id}: {_cell(row['status'])}")
    shown = dict(_worth_telling(row))
    width = max(map(len, shown))
    for name, text in shown.items():
        write(f"  {name.ljust(width)}  {text}")
    if row["status"] in UNFINISHED:
        write("why")
        _write_reasons(write, _explain(job_id))
    _write_errors(write, row["errors"])
    write_history(write, "", history)
    _tell_of_batch(write, row["batch_id"])


def _explain(job_id: int) -> Explanation:
    discover_tasks()
    try:
        return explain(job_id)
    except LookupError as error:
        raise CommandError(str(error)) from error


def _gone(job_id: int) -> CommandError:
    return CommandError(f"there is no job {job_id}.")


def _write_reasons(write: Write, found: Explanation) -> None:
    for reason in found.reasons:
        write(f"  {reason.text} [{reason.code}]")


def _worth_telling(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in dict.fromkeys((*FIRST, *COLUMNS)):
        value = row[name]
        if name in FIRST or not (name in ELSEWHERE or value is None or value == DEFAULTS[name]):
            yield name, _cell(value)


def _cell(value: object) -> str:
    """Return a value in one line."""
    if isinstance(value, datetime):
        return local_time(value)
    if isinstance(value, dict | list):
        value = json.dumps(value, ensure_ascii=False)
    return str(value).translate(CONTROL)


def _write_errors(write: Write, errors: list[Any]) -> None:
    """Write a line per failed attempt, newest first, and the traceback of the newest."""
    if not errors:
        return
    write("failed attempts, newest first")
    # Raw SQL may have put anything into the list.
    told = [each if isinstance(each, dict) else {"message": each} for each in reversed(errors)]
    for each in told:
        line = [
            each.get("attempt"),
            _as_instant(each.get("failed_at")),
            each.get("exception_class"),
            each.get("message"),
        ]
        write("  " + "  ".join(_cell(value) for value in line if value is not None))
    if newest := told[0].get("traceback"):
        write(str(newest).rstrip())


def _tell_of_batch(write: Write, batch_id: int | None) -> None:
    """Write where to look for who cancelled it, if its batch is cancelled."""
    if batch_id is None:
        return
    if rows_of(Batch).filter(pk=batch_id, cancel_requested_at__isnull=False).exists():
        write(f"its batch is cancelled: see `jobs workflows show {batch_id}`.")


def _as_instant(text: Any) -> Any:
    """Return the time that a text says, the text itself if it says none."""
    try:
        return parse_datetime(text) or text
    except (TypeError, ValueError):
        return text
