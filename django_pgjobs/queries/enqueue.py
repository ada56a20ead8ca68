"""Statements that enqueue."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple, TypedDict

from django_pgjobs.queries.cursor import (
    PLACEHOLDER,
    Cursor,
    Process,
    fetch,
    process_statement,
    process_text,
)
from django_pgjobs.queries.jobs import JobRow
from django_pgjobs.sql import qualified
from django_pgjobs.sql.terms import written_out
from django_pgjobs.sql.write_terms import START_VALUES, TASK_VALUES

# The part of the statements on unique keys that the SQL of a QuerySet replaces.
LINES = re.compile(r"\AWITH line AS \(\n.*?\n\),\nfresh AS", re.DOTALL)
# What an enqueue does that meets a live job with its unique key.
MEET, LOCK, MERGE = "enqueue_unique_jobs", "enqueue_or_lock_jobs", "enqueue_or_merge_jobs"
INSTANTS = ("run_after", "enqueued_at", "started_at", "last_attempted_at", "finished_at")


class TaskColumns(TypedDict):
    """The columns of a job that every task has options for.

    The job runs at *run_after* or *delay* seconds after it is enqueued; both None: at once.
    *metadata* is JSON text, *timeout* in seconds.
    """

    task_path: str
    queue_name: str
    backend: str
    priority: int
    run_after: datetime | None
    delay: float | None
    max_attempts: int
    timeout: float | None
    correlation_id: str
    tags: list[str]
    metadata: str
    is_async: bool


class StartColumns(TypedDict):
    """The columns that plain jobs leave empty and that are the same for all jobs of a task.

    *subject* is a reference to a row of the project; *concurrency_limit* holds where no row says
    another; with *skips_waiting* a key keeps no order; *rate_cost* is in tokens of each limit.
    The job expires at *expires* or *expires_in* seconds after it is enqueued; both None: never.
    *on_failure* is JSON text.
    """

    subject: str | None
    concurrency_limit: int | None
    skips_waiting: bool
    rate_cost: int
    max_losses: int | None
    expires: datetime | None
    expires_in: float | None
    on_failure: str | None


class UniqueColumns(TaskColumns, StartColumns):
    """The columns of jobs with a unique key, and what happens to the live job that has it.

    *merge* names how the database merges its arguments with the new ones; with *replaces* they
    and its options are replaced; with *prolongs* it expires at the later of both times. It is
    moved by *max_wait* seconds after it was enqueued at most, and grows to *max_bytes* of
    arguments. A new job belongs to the batch *batch_id*, or to none.
    """

    unique_until_claimed: bool
    merge: str
    replaces: bool
    prolongs: bool
    max_wait: float | None
    max_bytes: int
    batch_id: int | None


class JobLine(NamedTuple):
    """What differs from one job of a task to the next; *args* and *kwargs* are JSON text."""

    args: str
    kwargs: str
    concurrency_key: str | None = None
    rate_limit_keys: str | None = None
    unique_key: str | None = None


# What goes into each column of a job that is inserted alone.
JOB_VALUES = {
    column: written_out(value)
    for column, value in {
        **TASK_VALUES,
        **START_VALUES,
        "args": "%(args)s::json",
        "kwargs": "%(kwargs)s::json",
        "concurrency_key": "%(concurrency_key)s::text",
        "rate_limit_keys": "%(rate_limit_keys)s::text",
    }.items()
}
RETURNED = "RETURNING id, timezone('UTC', enqueued_at), timezone('UTC', run_after)"
# What stands in the columns that an INSERT does not name: in those that plain jobs leave empty, ...
PLAIN: StartColumns = {
    "subject": None,
    "concurrency_limit": None,
    "skips_waiting": False,
    "rate_cost": 1,
    "max_losses": None,
    "expires": None,
    "expires_in": None,
    "on_failure": None,
}
# ... and in all.
EMPTY: Mapping[str, Any] = {
    "queue_name": "default",
    "backend": "default",
    "priority": 0,
    "timeout": None,
    "correlation_id": "",
    "tags": [],
    "metadata": "{}",
    "is_async": False,
    "args": "[]",
    "kwargs": "{}",
    **PLAIN,
}


def insert_job(
    cursor: Cursor, row: TaskColumns, line: JobLine, start: StartColumns | None
) -> tuple[int, datetime, datetime | None]:
    """Insert one job on Django's connection; return its id, `enqueued_at` and `run_after`.

    *start* is None for `PLAIN`. The INSERT names what is not empty: the ten other columns of a
    plain job would cost a fifth of the server's time.
    """
    params = {**row, **(start or {}), **line._asdict()}
    given = tuple(
        name
        for name, value in params.items()
        # A value of a class of the project's may say to equal more.
        if type(value) is not type(empty := EMPTY.get(name)) or value != empty
    )
    # Its times are in UTC: the cursor need not learn to read such as have a zone.
    cursor.execute(_insertion(given, Process.schema), params)
    [(job_id, enqueued_at, run_after)] = cursor.fetchall()
    start_at = None if run_after is None else run_after.replace(tzinfo=UTC)
    return job_id, enqueued_at.replace(tzinfo=UTC), start_at


@lru_cache(maxsize=256)
def _insertion(given: tuple[str, ...], schema: str | None) -> str:
    """Return the INSERT of one job into the columns of the parameters that are *given*."""
    values = {
        column: value
        for column, value in JOB_VALUES.items()
        if column == "is_declared" or set(PLACEHOLDER.findall(value)) & set(given)
    }
    names, contents = ", ".join(values), ", ".join(values.values())
    head = f"INSERT INTO pgjobs_job ({names})"
    return qualified(f"{head} VALUES ({contents}) {RETURNED}", schema)


def insert_jobs(
    cursor: Cursor, row: TaskColumns, lines: Sequence[JobLine], start: StartColumns | None
) -> list[int]:
    """Insert a job of one task per line; return their ids in the order given.

    *start* is None if the lines have no keys either.
    """
    params = {**row, **_texts(lines)}
    if start is None:
        return [job_id for (job_id,) in fetch(cursor, "enqueue_jobs", params)]
    params |= start
    params["concurrency_keys"] = [line.concurrency_key for line in lines]
    params["rate_limit_keys"] = [line.rate_limit_keys for line in lines]
    return [job_id for (job_id,) in fetch(cursor, "enqueue_keyed_jobs", params)]


def _texts(lines: Sequence[JobLine]) -> dict[str, object]:
    return {
        "args": "\n".join([line.args for line in lines]),
        "kwargs": "\n".join([line.kwargs for line in lines]),
    }


class KnownJob(NamedTuple):
    """A job that was inserted, or met by its unique key; *job* if it was asked for in full."""

    id: int
    unique_key: str | None
    is_new: bool
    job: JobRow | None
    backend: str


class UniqueResult(NamedTuple):
    """The result of an enqueue with unique keys.

    *lines* came to *jobs* different keys (a job without one counts as one); *known* of them
    were inserted or met, *inserted* are new.
    """

    lines: int
    jobs: int
    known: int
    inserted: int
    listed: list[KnownJob]


def insert_unique_jobs(
    cursor: Cursor,
    how: str,
    row: UniqueColumns,
    lines: Sequence[JobLine],
    *,
    detailed: bool = False,
) -> UniqueResult:
    """Insert jobs with unique keys by the statement *how*: MEET, LOCK or MERGE; list them all."""
    params = {
        **row,
        **_texts(lines),
        "concurrency_keys": [line.concurrency_key for line in lines],
        "rate_limit_keys": [line.rate_limit_keys for line in lines],
        "unique_keys": [line.unique_key for line in lines],
        "max_listed": len(lines),
        "detailed": detailed,
    }
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


def _unique(rows: list[Any]) -> UniqueResult:
    lines, jobs, known, inserted, listed, met = rows[0][:6]
    met_ids = set(json.loads(met or "[]"))
    entries: list[list[Any]] = json.loads(listed or "[]")
    return UniqueResult(lines, jobs, known, inserted, [_known(entry, met_ids) for entry in entries])


def _known(entry: list[Any], met: set[int]) -> KnownJob:
    job_id, unique_key, columns = entry
    if columns is None:
        return KnownJob(job_id, unique_key, job_id not in met, None, "")
    *values, backend = columns
    row = dict(zip(JobRow._fields, values, strict=True))
    for name in INSTANTS:
        row[name] = datetime.fromisoformat(row[name]) if row[name] else None
    return KnownJob(job_id, unique_key, job_id not in met, JobRow(**row), backend)


class CompiledSelect(NamedTuple):
    """A SELECT that Django's compiler made of a QuerySet, with its parameters.

    Its columns are the JSON of the kwargs and, with *has_keys*, the concurrency key, the rate
    limits (text[]) and the unique key, an empty text where a row gives none that is usable.
    """

    sql: str
    params: Sequence[Any]
    has_keys: bool


RATE_LIMITS = (
    "CASE WHEN EXISTS (SELECT FROM pg_catalog.unnest(source.rate_limits) AS name"
    " WHERE octet_length(name) NOT BETWEEN 1 AND 512) THEN '' ELSE (SELECT string_agg("
    ' DISTINCT name COLLATE "C", E\'\\n\' ORDER BY name COLLATE "C")'
    " FROM pg_catalog.unnest(source.rate_limits) AS name) END"
)
CHOSEN = (
    "SELECT row_number() OVER () AS number, '[]' AS args, source.kwargs, source.concurrency_key,"
    f" {RATE_LIMITS} AS rate_limit_keys, source.unique_key"
)
KEYED_SOURCE = "source (kwargs, concurrency_key, rate_limits, unique_key)"


def insert_jobs_from(
    cursor: Cursor,
    selection: CompiledSelect,
    row: TaskColumns,
    start: StartColumns | None,
    *,
    batch_id: int | None = None,
) -> int:
    """Insert a job for every row of *selection*, in a batch or in none; return the number of jobs.

    *start* is None if they have no keys, no subject and no limit of losses.
    """
    columns = {"{job.task_columns}": "{job.task_values}", "kwargs": "source.kwargs"}
    if start:
        columns["{job.start_columns}"] = "{job.start_values}"
    if batch_id is not None:
        columns["batch_id"] = "%(batch_id)s::bigint"
    if selection.has_keys:
        columns |= {"concurrency_key": "source.concurrency_key", "rate_limit_keys": RATE_LIMITS}
    names, values = ", ".join(columns), ", ".join(columns.values())
    head = process_text(f"INSERT INTO pgjobs_job ({names}) SELECT {values}")
    source = KEYED_SOURCE if selection.has_keys else "source (kwargs)"
    selected, selected_params = _with_names(selection)
    params = {**row, **(start or {}), "batch_id": batch_id, **selected_params}
    cursor.execute(f"{head} FROM ({selected}) AS {source}", params)
    return cursor.rowcount


def insert_unique_jobs_from(
    cursor: Cursor, how: str, selection: CompiledSelect, row: UniqueColumns, *, max_listed: int
) -> UniqueResult:
    """Insert a job for every row of *selection* by the statement *how*."""
    selected, selected_params = _with_names(selection)
    params = {**row, **selected_params, "max_listed": max_listed, "detailed": False}
    head = f"WITH line AS ({process_text(CHOSEN)} FROM ({selected}) AS {KEYED_SOURCE}), fresh AS"
    cursor.execute(LINES.sub(lambda found: head, process_statement(how)), params)
    return _unique(cursor.fetchall())


def _with_names(selection: CompiledSelect) -> tuple[str, dict[str, Any]]:
    """Return the SQL with a name for each of its parameters, and their values by these names."""
    names = (f"%(selected_{place})s" for place in itertools.count())
    selected = re.sub(
        "%[s%]", lambda found: "%%" if found[0] == "%%" else next(names), selection.sql
    )
    return selected, {f"selected_{place}": each for place, each in enumerate(selection.params)}
