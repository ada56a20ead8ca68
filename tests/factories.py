"""Rows made by SQL of the tests' own: what they say does not pass through the package."""

from __future__ import annotations

import json
from hashlib import sha256
from secrets import token_urlsafe
from types import SimpleNamespace
from typing import Any

from django.db import connections
from psycopg import sql
from psycopg.types.json import Json, Jsonb

JSON_COLUMNS = ("args", "kwargs", "metadata", "result", "progress")
BATCH_COLUMNS = ("step", "callbacks")


def ago(seconds: float) -> sql.Composable:
    """Return SQL of an instant in the past."""
    return sql.SQL("statement_timestamp() - make_interval(secs => {})").format(seconds)


def make_job(task_path: str = "tests.tasks.add", *, using: str = "default", **columns: Any) -> int:
    """Insert one job with *columns* and return its id; the database fills in the rest.

    JSON columns take Python values; anything may be a `psycopg.sql.SQL` expression:
    `make_job(run_after=sql.SQL("now() + interval '1 hour'"))`.
    """
    return make_jobs(1, task_path, using=using, **columns)[0]


def make_jobs(
    count: int, task_path: str = "tests.tasks.add", *, using: str = "default", **columns: Any
) -> list[int]:
    """Insert *count* equal jobs in one statement and return their ids in order."""
    if task_path == "tests.tasks.add":
        columns.setdefault("args", [1, 2])
    rows = _insert("pgjobs_job", {"task_path": task_path, **columns}, count=count, using=using)
    return sorted(rows)


def make_batch(
    name: str = "batch", *, parent_id: int | None = None, using: str = "default", **columns: Any
) -> int:
    """Insert one batch, which is sealed unless *columns* say otherwise, and return its id."""
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT nextval(pg_get_serial_sequence('pgjobs_batch', 'id'))")
        [(next_id,)] = cursor.fetchall()
        cursor.execute("SELECT root_id, flow_id FROM pgjobs_batch WHERE id = %s", [parent_id])
        batch_id = columns.pop("id", next_id)
        [(root_id, flow_id)] = cursor.fetchall() or [(batch_id, batch_id)]
    given = {
        "id": batch_id,
        "root_id": root_id,
        "parent_id": parent_id,
        "flow_id": flow_id,
        "name": name,
        "sealed_at": sql.SQL("now()"),
    }
    if columns.get("follows"):
        given["step"] = {"task_path": "tests.tasks.add"}
    return _insert("pgjobs_batch", given | columns, count=1, using=using)[0]


def make_worker(
    name: str = "test:1", *, lease_seconds: float = 60.0, using: str = "default", **columns: Any
) -> int:
    """Insert a worker's row and return its id; negative *lease_seconds*: its lease is over."""
    expires = sql.SQL("clock_timestamp() + make_interval(secs => {})").format(lease_seconds)
    given = {
        "name": name,
        "host": "test",
        "pid": 1,
        "version": "0",
        "lease_expires_at": expires,
        "backends": ["default"],
        "slots": 1,
        "task_paths": ["tests.tasks.add"],
        "excluded_queues": [],
        "lost": False,
        "listening": False,
    }
    return _insert("pgjobs_worker", given | columns, count=1, using=using)[0]


def make_running_job(
    worker_id: int | None = None, *, using: str = "default", **columns: Any
) -> SimpleNamespace:
    """Insert a job that a worker runs (a new worker by default) and return its row."""
    if worker_id is None:
        worker_id = make_worker(using=using)
    now = sql.SQL("clock_timestamp()")
    given = {
        "status": "running",
        "worker_id": worker_id,
        "claim": 1,
        "attempts": 1,
        "started_at": now,
        "last_attempted_at": now,
        "worker_ids": ["test:1"],
    }
    return get_job(make_job(using=using, **(given | columns)), using=using)


def use_rate(key: str, tokens: int = 1, *, ago: float = 0.0, using: str = "default") -> None:
    """Let tokens of a rate limit's key have been taken *ago* seconds ago; below zero: a turn."""
    with connections[using].cursor() as cursor:
        cursor.execute(
            "INSERT INTO pgjobs_rate_state (key, next_free, taken_at, taken_since)"
            " SELECT %s, turn.instant + interval '1 hour', ARRAY[turn.instant], ARRAY[%s]"
            " FROM (SELECT clock_timestamp() - make_interval(secs => %s)) AS turn (instant)",
            [key, tokens, ago],
        )


def let_rates_pass(seconds: float, *, using: str = "default") -> None:
    """Let so much time pass for all rate limits."""
    with connections[using].cursor() as cursor:
        cursor.execute(
            "UPDATE pgjobs_rate_state AS state SET"
            " next_free = state.next_free - make_interval(secs => given.seconds),"
            " taken_at = ARRAY("
            "SELECT taken.instant - make_interval(secs => given.seconds)"
            " FROM unnest(state.taken_at) WITH ORDINALITY AS taken (instant, place)"
            " ORDER BY taken.place)"
            " FROM (SELECT %s::double precision) AS given (seconds)",
            [seconds],
        )


def get_job(job_id: int | str, *, using: str = "default") -> SimpleNamespace:
    """Return the row of a job as it is committed or seen now; JSON columns decoded."""
    row = _get("pgjobs_job", int(job_id), using)
    for column in (*JSON_COLUMNS, "errors"):
        value = getattr(row, column)
        setattr(row, column, json.loads(value) if isinstance(value, str) else value)
    return row


def get_worker(worker_id: int, *, using: str = "default") -> SimpleNamespace:
    """Return the row of a worker."""
    return _get("pgjobs_worker", worker_id, using)


def count_jobs(*, using: str = "default", **columns: Any) -> int:
    """Return how many jobs there are with these values: `count_jobs(status="failed")`."""
    conditions = [
        sql.SQL("{} = {}").format(sql.Identifier(name), value) for name, value in columns.items()
    ]
    query = sql.SQL("SELECT count(*) FROM pgjobs_job WHERE {}").format(
        sql.SQL(" AND ").join([sql.SQL("true"), *conditions])
    )
    with connections[using].cursor() as cursor:
        cursor.execute(query)
        return int(cursor.fetchone()[0])


def _get(table: str, row_id: int, using: str) -> SimpleNamespace:
    query = sql.SQL("SELECT * FROM {} WHERE id = {}").format(sql.Identifier(table), row_id)
    with connections[using].cursor() as cursor:
        cursor.execute(query)
        row = cursor.fetchone()
        assert row is not None, f"no row {row_id} in {table}"
        return SimpleNamespace(**dict(zip([c.name for c in cursor.description], row, strict=True)))


def _insert(table: str, columns: dict[str, Any], *, count: int, using: str) -> list[int]:
    values = [_literal(name, value) for name, value in columns.items()]
    query = sql.SQL(
        "INSERT INTO {} ({}) SELECT {} FROM generate_series(1, {}) RETURNING id"
    ).format(
        sql.Identifier(table),
        sql.SQL(", ").join(map(sql.Identifier, columns)),
        sql.SQL(", ").join(values),
        count,
    )
    with connections[using].cursor() as cursor:
        cursor.execute(query)
        return [row[0] for row in cursor.fetchall()]


def _literal(column: str, value: Any) -> sql.Composable:
    if isinstance(value, sql.Composable):
        return value
    if value is not None and column in (*JSON_COLUMNS, *BATCH_COLUMNS):
        return sql.SQL("{}::json").format(Json(value))
    if column in ("errors", "on_failure"):
        return sql.SQL("{}").format(Jsonb(value))
    if isinstance(value, list):
        return sql.SQL("{}::text[]").format(value)
    return sql.Literal(value)


def make_token(name: str = "test", *, using: str = "default", **columns: Any) -> str:
    """Insert a token of the HTTP API that may do everything, and return its secret."""
    secret = f"pgj_{token_urlsafe(32)}"
    given = {
        "name": name,
        "prefix": secret[:8],
        "digest": sha256(secret.encode()).hexdigest(),
        "verbs": ["work", "enqueue", "read", "manage"],
    }
    _insert("pgjobs_token", given | columns, count=1, using=using)
    return secret
