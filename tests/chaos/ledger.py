"""Every change of a job in the order of the commits, written by a trigger.

It is the table's truth over time: a claim that the server rolled back is not in it, a claim
whose answer was lost is. `track_commit_timestamp` tells when each change became true; who sees a
change commits after it, so by these instants the changes are in an order that all agree with.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import psycopg

SETTINGS = {"track_commit_timestamp": "on"}

COLUMNS = (
    *("status", "claim", "attempts", "max_attempts", "lost_count", "worker_id", "task_path"),
    *("queue_name", "concurrency_key", "concurrency_limit", "skips_waiting", "rate_limit_keys"),
    *("rate_cost", "unique_key", "unique_until_claimed", "hold", "due_at", "run_after"),
    "cancel_requested_at",
)

CREATE = f"""
CREATE TABLE chaos_change (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    xid xid NOT NULL DEFAULT pg_current_xact_id()::xid,
    asked_at timestamptz NOT NULL DEFAULT statement_timestamp(),
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    job_id bigint NOT NULL,
    status text, claim bigint, attempts integer, max_attempts integer, lost_count integer,
    worker_id bigint, task_path text, queue_name text, concurrency_key text,
    concurrency_limit integer, skips_waiting boolean, rate_limit_keys text, rate_cost integer,
    unique_key text, unique_until_claimed boolean, hold text, due_at timestamptz,
    run_after timestamptz, cancel_requested_at timestamptz
);
CREATE FUNCTION chaos_note() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- Not prepared: somebody changes the types of columns.
    EXECUTE 'INSERT INTO public.chaos_change (job_id, {", ".join(COLUMNS)})
        SELECT $1.id, {", ".join(f"$1.{name}" for name in COLUMNS)}' USING NEW;
    RETURN NULL;
END $$;
CREATE TRIGGER chaos_note AFTER INSERT OR UPDATE ON pgjobs_job
    FOR EACH ROW EXECUTE FUNCTION chaos_note();

CREATE TABLE chaos_limit (
    xid xid NOT NULL DEFAULT pg_current_xact_id()::xid,
    kind text NOT NULL, name text NOT NULL, max_running integer
);
CREATE FUNCTION chaos_note_limit() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO public.chaos_limit (kind, name, max_running)
    VALUES (TG_ARGV[0], to_jsonb(NEW) ->> TG_ARGV[1], NEW.max_running);
    RETURN NULL;
END $$;
CREATE TRIGGER chaos_note_limit AFTER INSERT OR UPDATE ON pgjobs_concurrency_limit
    FOR EACH ROW EXECUTE FUNCTION chaos_note_limit('key', 'pattern');
CREATE TRIGGER chaos_note_limit AFTER INSERT OR UPDATE ON pgjobs_queue_settings
    FOR EACH ROW EXECUTE FUNCTION chaos_note_limit('queue', 'queue_name');
"""

TIMES = ("due_at", "run_after", "cancel_requested_at")
READ = f"""
SELECT
    job_id,
    EXTRACT(EPOCH FROM pg_xact_commit_timestamp(xid))::float8,
    EXTRACT(EPOCH FROM asked_at)::float8,
    EXTRACT(EPOCH FROM made_at)::float8,
    {", ".join(f"EXTRACT(EPOCH FROM {n})::float8" if n in TIMES else n for n in COLUMNS)}
FROM chaos_change
ORDER BY 2, seq
"""
READ_LIMITS = """
SELECT kind, name, max_running, EXTRACT(EPOCH FROM pg_xact_commit_timestamp(xid))::float8
FROM chaos_limit ORDER BY 4
"""


class Change(NamedTuple):
    """A row of `pgjobs_job` as one statement left it; instants in seconds since 1970.

    *committed* is when it became true, *asked* when the server got the statement, *made* when it
    wrote the row.
    """

    job: int
    committed: float = 0.0
    asked: float = 0.0
    made: float = 0.0
    status: str = "ready"
    claim: int = 0
    attempts: int = 0
    max_attempts: int | None = None
    lost_count: int = 0
    worker_id: int | None = None
    task_path: str = "t"
    queue_name: str = "default"
    concurrency_key: str | None = None
    concurrency_limit: int | None = None
    skips_waiting: bool = False
    rate_limit_keys: str | None = None
    rate_cost: int = 1
    unique_key: str | None = None
    unique_until_claimed: bool = False
    hold: str | None = None
    due_at: float | None = None
    run_after: float | None = None
    cancel_requested_at: float | None = None

    @property
    def is_finished(self) -> bool:
        """Whether the job has come to an end."""
        return self.status not in ("ready", "running")

    @property
    def is_startable(self) -> bool:
        """Whether nothing but limits and pauses keeps it from running."""
        return self.status == "ready" and self.due_at is None and self.hold is None

    @property
    def is_in_line(self) -> bool:
        """Whether later jobs of its key have to wait for it: it waits, if only for a retry."""
        is_planned = self.due_at is not None and self.due_at == self.run_after
        return self.status == "ready" and self.hold is None and not is_planned


class Limit(NamedTuple):
    """From *committed* on, so many of a key or queue may run."""

    kind: str
    name: str
    max_running: int | None
    committed: float = 0.0


def read_changes(connection: psycopg.Connection[Any]) -> list[Change]:
    """Return all changes in the order of their commits."""
    return [Change(*row) for row in connection.execute(READ).fetchall()]


def read_limits(connection: psycopg.Connection[Any]) -> list[Limit]:
    """Return all changes of limits in the order of their commits."""
    return [Limit(*row) for row in connection.execute(READ_LIMITS).fetchall()]
