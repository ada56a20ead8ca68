"""What a page asks on its own or together with something else: whole SELECTs as terms."""

from __future__ import annotations

ASKED_TERMS = {
    # Of a parameter, seconds (NULL: none): what list_classes.sql tells, which has the parameters.
    "class_rows": """\
SELECT attempts.name, {attempts.waits.class_sums}, {attempts.runs.class_sums}
FROM (
    SELECT
        statistic.name,
        -- Short lists are stored packed. So they are unpacked once, and not for each class.
        array_cat(statistic.waits, '{}'::bigint[]) AS waits,
        array_cat(statistic.runs, '{}'::bigint[]) AS runs
    FROM ({by_task.by_name}) AS statistic
    WHERE
        statistic.begins_at
        >= statement_timestamp() - make_interval(secs => %({it})s::double precision)
        -- Where the clock was set back, there are later ones.
        AND statistic.begins_at <= statement_timestamp()
        AND (%(task_paths)s::text[] IS NULL OR statistic.name = ANY (%(task_paths)s::text[]))
    OFFSET 0
) AS attempts
GROUP BY attempts.name""",
    # Of a parameter, seconds: what list_long_runs.sql tells, which has the parameters.
    "long_runs": """\
SELECT
    job.id, job.task_path, job.queue_name, job.worker_id, worker.name AS worker_name,
    date_part('epoch', statement_timestamp() - {job.last_attempted_at.in_calendar}) AS seconds,
    job.progress::text, statement_timestamp() AS now
FROM pgjobs_job_live AS job
JOIN pgjobs_worker AS worker ON worker.id = job.worker_id
WHERE
    job.status = 'running' AND {worker.is_live}
    AND job.last_attempted_at
    <= statement_timestamp() - make_interval(secs => %({it})s::double precision)
    AND (%(ids)s::bigint[] IS NULL OR job.id = ANY (%(ids)s::bigint[]))
ORDER BY job.last_attempted_at, job.id
LIMIT %(max_runs)s::integer""",
    # Of a parameter, the most lanes: what list_missing_rates.sql tells, which has the parameters.
    "missing_rates": r"""WITH RECURSIVE head AS (
    (
        SELECT
            job.backend, job.queue_name, job.is_async, -job.priority AS urgency, job.lane,
            job.rate_limit_keys, job.rate_cost
        FROM pgjobs_job_live AS job
        WHERE {job.is_ready} AND {job.is_walked} AND job.lane IS NOT NULL
        ORDER BY job.backend, job.queue_name, job.is_async, -job.priority, job.lane, job.id
        LIMIT 1
    )
    UNION ALL
    SELECT following.*
    FROM head
    CROSS JOIN LATERAL (
        SELECT
            job.backend, job.queue_name, job.is_async, -job.priority AS urgency, job.lane,
            job.rate_limit_keys, job.rate_cost
        FROM pgjobs_job_live AS job
        WHERE
            {job.is_ready} AND {job.is_walked} AND job.lane IS NOT NULL
            AND (job.backend, job.queue_name, job.is_async, -job.priority, job.lane)
            > (head.backend, head.queue_name, head.is_async, head.urgency, head.lane)
        ORDER BY job.backend, job.queue_name, job.is_async, -job.priority, job.lane, job.id
        LIMIT 1
    ) AS following
),
wanted AS (
    SELECT waited.key, bounded.rate_cost::integer AS cost, TRUE AS has_jobs
    FROM (
        SELECT head.rate_limit_keys, head.rate_cost
        FROM head
        LIMIT %({it})s::integer
    ) AS bounded
    CROSS JOIN pg_catalog.unnest(string_to_array(bounded.rate_limit_keys, E'\n')) AS waited (key)
    UNION ALL
    SELECT declared.name, declared.cost, FALSE
    FROM unnest(%(names)s::text[], %(costs)s::integer[]) AS declared (name, cost)
    -- A limit for each key that is in use is enough. The character after the colon ends the range.
    WHERE NOT EXISTS (
        SELECT FROM pgjobs_rate_limit AS one
        WHERE one.name > declared.name || ':' AND one.name < declared.name || chr(59)
    )
)
SELECT
    wanted.key, bool_or(wanted.has_jobs) AS has_jobs, rule.name AS limit_name, rule.burst,
    CASE WHEN rule.name IS NOT NULL THEN max(wanted.cost) END AS cost
FROM wanted
LEFT JOIN LATERAL ({wanted.key.rate_limit}) AS rule ON TRUE
WHERE rule.name IS NULL OR wanted.cost > rule.burst
GROUP BY wanted.key, rule.name, rule.burst
ORDER BY
    row_number() OVER (
        PARTITION BY COALESCE(rule.name, split_part(wanted.key, ':', 1)) ORDER BY wanted.key
    ),
    wanted.key
LIMIT %(max_keys)s::integer""",
    # Of a parameter, the most jobs of a place that are looked at: CTEs, the last of which are the
    # first jobs of each place. Needs *max_lanes*, the places that are asked.
    "first_jobs": """\
plain AS (
    {plain.plain_places}
    WHERE plain.place < %(max_lanes)s::integer
),
keyed AS (
    {keyed.keyed_places}
    WHERE keyed.place < %(max_lanes)s::integer
),
first_job AS MATERIALIZED (
    SELECT plain_job.*
    FROM plain
    CROSS JOIN LATERAL (
        SELECT {job.as_waiting}
        FROM pgjobs_job_live AS job
        WHERE
            {job.is_ready} AND {job.is_walked} AND job.lane IS NULL
            AND job.backend = plain.backend AND job.queue_name = plain.queue_name
            AND job.is_async = plain.is_async
            -- Equal, in words that leave an order which only this index has.
            AND -job.priority >= plain.urgency AND -job.priority <= plain.urgency
        ORDER BY -job.priority, job.id
        LIMIT %({it})s::integer
    ) AS plain_job
    UNION ALL
    SELECT keyed_job.*
    FROM keyed
    CROSS JOIN LATERAL (
        SELECT {job.as_waiting}
        FROM pgjobs_job_live AS job
        WHERE
            {job.is_ready} AND {job.is_walked} AND job.lane IS NOT NULL
            AND job.backend = keyed.backend AND job.queue_name = keyed.queue_name
            AND job.is_async = keyed.is_async AND -job.priority = keyed.urgency
        ORDER BY job.lane, job.id
        LIMIT %({it})s::integer
    ) AS keyed_job
)""",
    # Of a ready job: what the terms here ask of it.
    "as_waiting": (
        "{it}.id, {it}.backend, {it}.queue_name, {it}.task_path, {it}.concurrency_key,"
        " {it}.rate_limit_keys, {it}.rate_cost, {it}.lane IS NOT NULL AS has_keys,"
        " {{it}.waiting_since} AS since"
    ),
    # Of the CTE of first jobs: SELECT the queue and the path of tasks whose jobs wait for a worker
    # that knows them: live ones serve their queue, and none of these does. Jobs of other tasks pass
    # by such jobs, so they are among the first of their place, or among those that a worker has put
    # off. Needs *max_due* (jobs that become ready next), *within_seconds* (in this time), *notes*
    # (those of jobs that were put off for it) and *max_rows*.
    "unknown_tasks": """\
WITH worker AS MATERIALIZED (
    SELECT live.backends, live.queues, live.excluded_queues, live.task_paths
    FROM pgjobs_worker AS live
    WHERE {live.is_live}
),
waiting AS MATERIALIZED (
    SELECT {it}.backend, {it}.queue_name, {it}.task_path FROM {it}
    UNION
    SELECT due.backend, due.queue_name, due.task_path
    FROM (
        SELECT job.backend, job.queue_name, job.task_path, job.note, job.hold
        FROM pgjobs_job_live AS job
        WHERE
            job.status = 'ready'
            AND job.due_at <= statement_timestamp()
            + make_interval(secs => %(within_seconds)s::double precision)
        ORDER BY job.due_at
        LIMIT %(max_due)s::integer
    ) AS due
    WHERE due.hold IS NULL AND due.note = ANY (%(notes)s::text[])
)
SELECT DISTINCT asked.queue_name, asked.task_path
FROM (
    SELECT
        waiting.queue_name, waiting.task_path,
        bool_or(waiting.task_path = ANY (worker.task_paths)) AS is_known
    FROM waiting
    JOIN worker
        ON waiting.backend = ANY (worker.backends)
        AND (worker.queues IS NULL OR waiting.queue_name = ANY (worker.queues))
        AND waiting.queue_name <> ALL (worker.excluded_queues)
    GROUP BY waiting.backend, waiting.queue_name, waiting.task_path
) AS asked
WHERE NOT asked.is_known
ORDER BY asked.queue_name, asked.task_path
LIMIT %(max_rows)s::integer""",
    # Of the CTE of first jobs, beside those of unknown tasks and of old jobs: SELECT of each of
    # *waiting_names*, queues, the job that has waited longest.
    # Without those that a pause, an unknown task or a rate limit that lets none go keeps for sure.
    "oldest_jobs": """\
SELECT DISTINCT ON (job.queue_name) job.queue_name, job.id, job.since, job.has_keys
FROM (
    SELECT {it}.* FROM {it}
    UNION ALL
    SELECT {old.as_waiting}
    FROM old_job AS old
    WHERE {old.is_ready}
) AS job
WHERE
    job.queue_name = ANY (%(waiting_names)s::text[])
    AND NOT {job.is_vain}
    AND NOT EXISTS (
        SELECT FROM pgjobs_pause AS pause
        WHERE {pause.holds} AND {pause.is_of_job}
    )
    AND NOT EXISTS (
        SELECT FROM unknown
        WHERE unknown.queue_name = job.queue_name AND unknown.task_path = job.task_path
    )
ORDER BY job.queue_name, job.since, job.id""",
}
