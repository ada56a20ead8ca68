"""What statements write: the terms of `terms.py` that insert jobs or end them."""

from __future__ import annotations

# Of a new job: the columns that every task has options for, as `queries.enqueue.TaskColumns` has
# them, and what goes there.
TASK_VALUES = {
    "task_path": "%(task_path)s::text",
    "queue_name": "%(queue_name)s::text",
    "backend": "%(backend)s::text",
    "priority": "%(priority)s::smallint",
    "metadata": "%(metadata)s::json",
    "run_after": (
        "COALESCE(%(run_after)s::timestamptz,"
        " statement_timestamp() + make_interval(secs => %(delay)s::double precision))"
    ),
    "max_attempts": "%(max_attempts)s::integer",
    "timeout": "%(timeout)s::double precision",
    "correlation_id": "%(correlation_id)s::text",
    "tags": "%(tags)s::text[]",
    "is_declared": "TRUE",
    "is_async": "%(is_async)s::boolean",
}
# Of the same: what plain jobs leave empty, as `queries.enqueue.StartColumns` has it.
START_VALUES = {
    "subject": "%(subject)s::text",
    "concurrency_limit": "%(concurrency_limit)s::integer",
    "skips_waiting": "%(skips_waiting)s::boolean",
    "rate_cost": "%(rate_cost)s::integer",
    "max_losses": "%(max_losses)s::integer",
    "expires_at": "{job.expiry_as_asked}",
    "on_failure": "%(on_failure)s::jsonb",
}
WRITE_TERMS = {
    "task_columns": ", ".join(TASK_VALUES),
    "task_values": ", ".join(TASK_VALUES.values()),
    "start_columns": ", ".join(START_VALUES),
    "start_values": ", ".join(START_VALUES.values()),
    # Of a job: no other one of its task may have its unique key. The index is partial on just this,
    # but for the subquery, which is dear by any other way (`is_walked`).
    "occupies_key": (
        "{it}.unique_key IS NOT NULL AND ({it}.claim = 0 OR NOT {it}.unique_until_claimed)"
        " AND ({it}.unique_key IS NOT NULL OR (SELECT TRUE"
        " FROM generate_series(1, 100000000) AS n WHERE n = length({it}.unique_key)))"
    ),
    # Of a job that is inserted: where another one does. A table has no name here.
    "on_occupied_key": (
        "ON CONFLICT (unique_key, task_path)"
        " WHERE unique_key IS NOT NULL AND (claim = 0 OR NOT unique_until_claimed)"
    ),
    # The lines of an enqueue with unique keys, as a CTE; enqueue_from puts a QuerySet there.
    "with_keys": """\
{it} AS (
    SELECT number, args, kwargs, concurrency_key, rate_limit_keys, unique_key
    FROM unnest(
        string_to_array(%(args)s::text, E'\\n'), string_to_array(%(kwargs)s::text, E'\\n'),
        %(concurrency_keys)s::text[], %(rate_limit_keys)s::text[], %(unique_keys)s::text[]
    ) WITH ORDINALITY
        AS {it} (args, kwargs, concurrency_key, rate_limit_keys, unique_key, number)
)""",
    # Of such lines: the first of each key, which becomes a job, as a CTE *fresh*; ids follow the
    # order of the lines.
    "firsts": """\
fresh AS MATERIALIZED (
    SELECT
        nextval('pgjobs_job_id_seq') AS id, first.args, first.kwargs, first.concurrency_key,
        first.rate_limit_keys, first.unique_key, 0 AS merged_count
    FROM (
        SELECT args, kwargs, concurrency_key, rate_limit_keys, unique_key
        FROM (
            SELECT DISTINCT ON (unique_key, CASE WHEN unique_key IS NULL THEN number END)
                number, args, kwargs, concurrency_key, rate_limit_keys, unique_key
            FROM {it}
            ORDER BY unique_key, CASE WHEN unique_key IS NULL THEN number END, number
        ) AS {it}
        ORDER BY number
    ) AS first
)""",
    # Of a statement's list of jobs, one for each unique key: INSERT them. In the order of keys, so
    # that two batches never wait for each other in a circle.
    "saved_by_key": """\
INSERT INTO pgjobs_job_live AS job (
        id, {job.task_columns}, {job.start_columns}, args, kwargs, concurrency_key,
        rate_limit_keys, unique_key, unique_until_claimed, merged_count, batch_id
    )
    SELECT
        {it}.id, {job.task_values}, {job.start_values}, {it}.args::json, {it}.kwargs::json,
        {it}.concurrency_key, {it}.rate_limit_keys, {it}.unique_key,
        %(unique_until_claimed)s::boolean, {it}.merged_count, %(batch_id)s::bigint
    FROM {it}
    ORDER BY {it}.unique_key COLLATE "C"
    {job.on_occupied_key}""",
    # Of a statement's list of jobs that it inserted or changed: which of them it *met*, and what is
    # told of all. Not by a join: the planner may expect one row where there are a million.
    "told": """\
met AS (
    SELECT {it}.id FROM {it} EXCEPT SELECT fresh.id FROM fresh
)
SELECT
    (SELECT count(*) FROM line) AS lines, (SELECT count(*) FROM fresh) AS jobs,
    (SELECT count(*) FROM {it}) AS known,
    (SELECT count(*) FROM {it}) - (SELECT count(*) FROM met) AS inserted,
    {{it}.listed}""",
    # Of such a list: some of the jobs, and the ids of some that were met.
    "listed": """\
(
        SELECT json_agg(
            json_build_array(
                known.id, known.unique_key,
                CASE WHEN %(detailed)s::boolean THEN json_build_array(
                    {(known.job).as_job_row}, (known.job).backend
                ) END
            )
            ORDER BY known.id
        )::text
        FROM (
            SELECT {it}.id, {it}.unique_key, {it}.job FROM {it}
            LIMIT %(max_listed)s::integer
        ) AS known
    ) AS listed,
    (
        SELECT json_agg(listed.id)::text
        FROM (SELECT met.id FROM met LIMIT %(max_listed)s::integer) AS listed
    ) AS met""",
    # Of a job whose attempt came to an *outcome*: its errors with that one, if it is one, and with
    # *max_errors* without the second oldest.
    "errors_with_outcome": """\
CASE
        WHEN jsonb_typeof({it}.errors) <> 'array' THEN '[]'
        WHEN outcome.error IS NULL OR jsonb_array_length({it}.errors) < %(max_errors)s::integer
            THEN {it}.errors
        ELSE {it}.errors - 1
    END || CASE
        WHEN outcome.error IS NULL THEN '[]'
        ELSE outcome.error::jsonb || jsonb_build_object(
            'worker', {it}.worker_ids[cardinality({it}.worker_ids)],
            'started_at',
            statement_timestamp() - make_interval(secs => outcome.age + outcome.duration),
            'failed_at', statement_timestamp() - make_interval(secs => outcome.age)
        )
    END""",
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
    # Of a job that ended while it waited: tell idle workers that its key may be free.
    "key_told": (
        "CASE WHEN {it}.concurrency_key IS NOT NULL"
        " AND EXISTS (SELECT FROM pgjobs_worker AS worker WHERE worker.listening)"
        " THEN pg_notify('pgjobs', {it}.queue_name) END"
    ),
}
