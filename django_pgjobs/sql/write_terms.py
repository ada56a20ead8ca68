"""What statements write: the terms of `terms.py` that insert jobs or end them."""

from __future__ import annotations

WRITE_TERMS = {
    # Of a job with a unique key: the columns that its enqueue writes, ...
    "unique_columns": """
        id, task_path, queue_name, backend, priority, args, kwargs, metadata, run_after,
        max_attempts, timeout, correlation_id, tags, concurrency_key, concurrency_limit,
        skips_waiting, rate_limit_keys, rate_cost, unique_key, unique_until_claimed, subject,
        max_losses, expires_at, on_failure, is_declared, batch_id, is_async
    """,
    # ... and of a statement's list of such jobs: what goes there.
    "unique_values": """
        {it}.id, %(task_path)s::text, %(queue_name)s::text, %(backend)s::text,
        %(priority)s::smallint, {it}.args::json, {it}.kwargs::json, %(metadata)s::json,
        COALESCE(
            %(run_after)s::timestamptz,
            statement_timestamp() + make_interval(secs => %(delay)s::double precision)
        ),
        %(max_attempts)s::integer, %(timeout)s::double precision, %(correlation_id)s::text,
        %(tags)s::text[], {it}.concurrency_key, %(concurrency_limit)s::integer,
        %(skips_waiting)s::boolean, {it}.rate_limit_keys, %(rate_cost)s::integer,
        {it}.unique_key, %(unique_until_claimed)s::boolean, %(subject)s::text,
        %(max_losses)s::integer, {{it}.expiry_as_asked}, %(on_failure)s::jsonb, TRUE,
        %(batch_id)s::bigint, %(is_async)s::boolean
    """,
    # Of a statement's list of jobs that end before they begin: CTEs that delete what they wait for,
    # and count in *leaving* how much that was.
    "leaving": """\
waived AS (
    DELETE FROM pgjobs_dependency AS edge
    WHERE edge.job_id = ANY (ARRAY(SELECT {it}.id FROM {it}))
    RETURNING edge.job_id
),
leaving AS (
    -- Counting them lets them go before anything is resolved.
    SELECT {it}.id, count(waived.job_id) AS steps
    FROM {it}
    LEFT JOIN waived ON waived.job_id = {it}.id
    GROUP BY {it}.id
)""",
    # Of such a job: SET what ends it as cancelled, beside its note.
    "end_of_waiting": (
        "status = 'cancelled', hold = NULL,"
        " waits_for = GREATEST({it}.waits_for - leaving.steps, 0),"
        " finished_at = statement_timestamp(),"
        " claim = mod(GREATEST({it}.claim, 0), 9000000000000000000) + 1"
    ),
}
