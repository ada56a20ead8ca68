"""Statements that enqueue."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django_pgjobs.queries.cursor import Cursor, fetch, statement
from django_pgjobs.queries.jobs import JobRow

# What the SQL of a QuerySet takes the place of in the statements on unique keys.
LINES = re.compile(r"\AWITH line AS \(\n.*?\n\),\nfresh AS", re.DOTALL)
# What becomes of an enqueue that meets a live job with its unique key.
MEET, LOCK, MERGE = "enqueue_unique_jobs", "enqueue_or_lock_jobs", "enqueue_or_merge_jobs"
INSTANTS = ("run_after", "enqueued_at", "started_at", "last_attempted_at", "finished_at")
COMMON_COLUMNS = (
    "task_path",
    "queue_name",
    "backend",
    "priority",
    "metadata",
    "max_attempts",
    "timeout",
    "correlation_id",
    "tags",
    "run_after",
    "delay",
)
KEY_COLUMNS = ("subject", "concurrency_limit", "skips_waiting", "rate_cost", "max_losses")


def insert_job(cursor: Cursor, row: Mapping[str, Any]) -> tuple[int, datetime, datetime | None]:
    """Insert one job; return its id, `enqueued_at` and `run_after`."""
    [(job_id, enqueued_at, run_after)] = fetch(cursor, "enqueue_job", row)
    return job_id, enqueued_at, run_after


def insert_jobs(cursor: Cursor, row: Mapping[str, Any]) -> list[int]:
    """Insert many jobs of one task; return their ids in the order given."""
    return [job_id for (job_id,) in fetch(cursor, "enqueue_jobs", row)]


def insert_keyed_job(
    cursor: Cursor, row: Mapping[str, Any]
) -> tuple[int, datetime, datetime | None]:
    """Insert one job that has keys; return its id, `enqueued_at` and `run_after`."""
    [(job_id, enqueued_at, run_after)] = fetch(cursor, "enqueue_keyed_job", row)
    return job_id, enqueued_at, run_after


def insert_keyed_jobs(cursor: Cursor, row: Mapping[str, Any]) -> list[int]:
    """Insert many jobs that have keys; return their ids in the order given."""
    return [job_id for (job_id,) in fetch(cursor, "enqueue_keyed_jobs", row)]


class Known(NamedTuple):
    """A job that was inserted, or met by its unique key; *job* if it was asked for in full."""

    id: int
    unique_key: str | None
    is_new: bool
    job: JobRow | None
    backend: str


class Unique(NamedTuple):
    """What came of an enqueue with unique keys.

    *lines* came to *jobs* different keys (a job without one counts as one); *known* of them
    were inserted or met, *inserted* are new.
    """

    lines: int
    jobs: int
    known: int
    inserted: int
    listed: list[Known]


def insert_unique_jobs(
    cursor: Cursor, how: str, row: Mapping[str, Any], *, detailed: bool = False
) -> Unique:
    """Insert jobs with unique keys by the statement *how*: MEET, LOCK or MERGE; list them all."""
    params = {**row, "max_listed": len(row["unique_keys"]), "detailed": detailed}
    return _unique(fetch(cursor, how, params))


def merge_arguments(cursor: Cursor, former: str, latter: str, *, merge: str) -> str:
    """Return the JSON text of both arguments merged, as MERGE does it."""
    params = {"former": former, "latter": latter, "merge": merge}
    [(text,)] = fetch(cursor, "merge_arguments", params)
    return str(text)


def get_unique_job(cursor: Cursor, *, unique_key: str, task_path: str) -> tuple[int, str] | None:
    """Return id and status of the job that occupies a unique key, None if it is free."""
    params = {"unique_key": unique_key, "task_path": task_path}
    rows = fetch(cursor, "get_unique_job", params)
    return (rows[0][0], rows[0][1]) if rows else None


def _unique(rows: list[Any]) -> Unique:
    lines, jobs, known, inserted, listed, met = rows[0][:6]
    met_ids = set(json.loads(met or "[]"))
    entries: list[list[Any]] = json.loads(listed or "[]")
    return Unique(lines, jobs, known, inserted, [_known(entry, met_ids) for entry in entries])


def _known(entry: list[Any], met: set[int]) -> Known:
    job_id, unique_key, columns = entry
    if columns is None:
        return Known(job_id, unique_key, job_id not in met, None, "")
    *values, backend = columns
    row = dict(zip(JobRow._fields, values, strict=True))
    for name in INSTANTS:
        row[name] = datetime.fromisoformat(row[name]) if row[name] else None
    return Known(job_id, unique_key, job_id not in met, JobRow(**row), backend)


class Selection(NamedTuple):
    """A SELECT that Django's compiler made of a QuerySet, with its parameters.

    Its columns are the JSON of the kwargs and, with *has_keys*, the concurrency key, the rate
    limits (text[]) and the unique key, an empty text where a row gives none that is usable.
    """

    sql: str
    params: Sequence[Any]
    has_keys: bool


RATE_LIMITS = (
    "CASE WHEN EXISTS (SELECT FROM unnest(source.rate_limits) AS name"
    " WHERE octet_length(name) NOT BETWEEN 1 AND 512) THEN '' ELSE (SELECT string_agg("
    ' DISTINCT name COLLATE "C", E\'\\n\' ORDER BY name COLLATE "C")'
    " FROM unnest(source.rate_limits) AS name) END"
)
KEYED_SOURCE = "source (kwargs, concurrency_key, rate_limits, unique_key)"


def insert_jobs_from(cursor: Cursor, selection: Selection, row: Mapping[str, Any]) -> int:
    """Insert a job for every row of *selection*; return the number of jobs.

    *row* has KEY_COLUMNS if the jobs have keys, a subject or a limit of losses.
    """
    columns = [*COMMON_COLUMNS, *(KEY_COLUMNS if "subject" in row else ())]
    names, values, source = "", "", "source (kwargs)"
    if "subject" in row:
        names = ", subject, concurrency_limit, skips_waiting, rate_cost, max_losses"
        values = ", %s::text, %s::integer, %s::boolean, %s::integer, %s::integer"
    # The only composed part is what Django's compiler made.
    if selection.has_keys:
        names += ", concurrency_key, rate_limit_keys"
        values += f", source.concurrency_key, {RATE_LIMITS}"
        source = KEYED_SOURCE
    query = (
        "INSERT INTO pgjobs_job (task_path, queue_name, backend, priority, metadata, max_attempts,"  # noqa: S608
        f" timeout, correlation_id, tags, run_after{names}, kwargs)"
        " SELECT %s::text, %s::text, %s::text, %s::smallint, %s::json, %s::integer,"
        " %s::double precision, %s::text, %s::text[],"
        " COALESCE(%s::timestamptz,"
        f" statement_timestamp() + make_interval(secs => %s::double precision)){values},"
        f" source.kwargs FROM ({selection.sql}) AS {source}"
    )
    cursor.execute(query, [*(row[column] for column in columns), *selection.params])
    return cursor.rowcount


def insert_unique_jobs_from(
    cursor: Cursor, how: str, selection: Selection, row: Mapping[str, Any], *, max_listed: int
) -> Unique:
    """Insert a job for every row of *selection* by the statement *how*."""
    params = {**row, "max_listed": max_listed, "detailed": False}
    names = iter(range(len(selection.params)))

    def name(found: re.Match[str]) -> str:
        return "%%" if found[0] == "%%" else f"%(selected_{next(names)})s"

    selected = re.sub(r"%[s%]", name, selection.sql)
    params |= {f"selected_{place}": value for place, value in enumerate(selection.params)}
    head = (
        "WITH line AS (SELECT row_number() OVER () AS number, '[]' AS args, source.kwargs,"  # noqa: S608
        f" source.concurrency_key, {RATE_LIMITS} AS rate_limit_keys, source.unique_key"
        f" FROM ({selected}) AS {KEYED_SOURCE}), fresh AS"
    )
    cursor.execute(LINES.sub(lambda found: head, statement(how)), params)
    return _unique(cursor.fetchall())
