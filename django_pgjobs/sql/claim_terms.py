"""What claims say: the terms of `terms.py` that find the jobs a worker may take, and take them."""

from __future__ import annotations

# Of the recursive CTE that it is the body of: a walk from place to place, the nth of these.
_PLACES = """\
(
        SELECT job.backend, job.queue_name, job.is_async, -job.priority AS urgency, 1 AS place
        FROM pgjobs_job_live AS job
        WHERE
            {job.is_ready} AND {job.is_walked} AND job.lane {lane}
        ORDER BY job.backend, job.queue_name, job.is_async, -job.priority
        LIMIT 1
    )
    UNION ALL
    SELECT following.*, {it}.place + 1
    FROM {it}
    CROSS JOIN LATERAL (
        SELECT job.backend, job.queue_name, job.is_async, -job.priority AS urgency
        FROM pgjobs_job_live AS job
        WHERE
            {job.is_ready} AND {job.is_walked} AND job.lane {lane}
            AND (job.backend, job.queue_name, job.is_async, -job.priority)
            > ({it}.backend, {it}.queue_name, {it}.is_async, {it}.urgency)
        ORDER BY job.backend, job.queue_name, job.is_async, -job.priority
        LIMIT 1
    ) AS following"""

CLAIM_TERMS = {
    # Where jobs may run now, without keys and with keys: each backend, queue, kind and priority.
    "plain_places": _PLACES.replace("{lane}", "IS NULL"),
    "keyed_places": _PLACES.replace("{lane}", "IS NOT NULL"),
    # Of a job: it may run now, has no keys, and a worker may take it, by what is *excluded*.
    "is_claimable": (
        "{{it}.is_ready} AND {{it}.is_walked} AND {it}.lane IS NULL"
        " AND {it}.task_path <> ALL ((SELECT excluded.task_paths FROM excluded)::text[])"
        " AND {it}.id <> ALL (%(passed_over)s::bigint[])"
    ),
    # Of a lane without keys: SELECT its jobs that the claim may take, from its floor on, in order.
    "claimable_jobs": (
        "SELECT -job.priority AS urgency, job.id"
        " FROM pgjobs_job_live AS job"
        " WHERE {job.is_claimable}"
        " AND job.backend = {it}.backend AND job.queue_name = {it}.queue_name"
        " AND job.is_async = {it}.is_async"
        " AND (-job.priority, job.id) >= ({it}.floor_urgency, {it}.floor_id)"
        " ORDER BY -job.priority, job.id"
    ),
    # The tasks whose jobs a claim may not take, as a CTE of this name. It has no row for a worker
    # that may not claim: then no task is other than what is not there.
    "excluded": """\
excluded AS MATERIALIZED (
    SELECT %(passed_over_paths)s::text[] OPERATOR(pg_catalog.||) ARRAY(
        SELECT pause.name
        FROM pgjobs_pause AS pause
        WHERE pause.kind = 'task' AND {pause.holds}
    ) AS task_paths
    FROM pgjobs_worker AS worker
    WHERE
        worker.id = %(worker_id)s::bigint AND {worker.is_live}
)""",
    # SELECT the lanes without keys that a claim is given, but those of paused queues.
    "unpaused": """\
SELECT nth, backend, queue_name, is_async, floor_urgency, floor_id, jobs
    FROM unnest(
        %(lane_backends)s::text[], %(lane_queues)s::text[], %(lane_asyncs)s::boolean[],
        %(floor_urgencies)s::integer[], %(floor_ids)s::bigint[], %(lane_jobs)s::integer[]
    ) WITH ORDINALITY
        AS lane (backend, queue_name, is_async, floor_urgency, floor_id, jobs, nth)
    WHERE NOT EXISTS (
        SELECT FROM pgjobs_pause AS pause
        WHERE pause.kind = 'queue' AND pause.name = lane.queue_name AND {pause.holds}
    )""",
    # Those of them that may give jobs without counting what runs, in a CTE named lane behind the
    # *excluded* tasks.
    "open_lanes": """\
{lane.excluded},
lane AS (
    {lane.unpaused}
    AND NOT EXISTS (
        SELECT FROM pgjobs_queue_settings AS queue
        WHERE queue.queue_name = lane.queue_name AND queue.max_running IS NOT NULL
    )
)""",
    # Of a statement's list of jobs that are locked: the claim of these by a worker. It raises the
    # fencing token by chance: after a failover that lost commits a job may have the id of another
    # one, which somebody still runs and would write to under a number that both came to by steps
    # of one. Four million attempts of a job keep below 2^53.
    "claim": """\
UPDATE pgjobs_job_live AS job
SET
    status = 'running',
    claim = mod(GREATEST(job.claim, 0), 8999999990000000000) + 1
        + floor(random() * 2147483648::double precision)::bigint,
    attempts = LEAST(GREATEST(job.attempts, 0), 2147483646) + 1,
    worker_id = %(worker_id)s::bigint,
    worker_ids = CASE
        WHEN array_ndims(job.worker_ids) = 1 AND array_lower(job.worker_ids, 1) = 1
            THEN array_remove(job.worker_ids, NULL)
    END OPERATOR(pg_catalog.||) %(worker_name)s::text,
    started_at = GREATEST(LEAST(job.started_at, statement_timestamp()), 'epoch'),
    last_attempted_at = statement_timestamp(),
    note = ''
WHERE job.id = ANY (ARRAY(SELECT {it}.id FROM {it})) AND job.status = 'ready'
RETURNING
    {job.as_claimed_row}""",
    # Of a job: what it says of when it starts, as JSON text, if it may lack what its task
    # declares, else NULL. In the order of `queries.filling.Control`, which begins with the queue
    # and the priority.
    "as_undeclared": (
        "CASE WHEN NOT {it}.is_declared THEN json_build_array("
        "{it}.concurrency_key, {it}.concurrency_limit, {it}.skips_waiting, {it}.rate_limit_keys,"
        " {it}.rate_cost, {it}.unique_key, {it}.unique_until_claimed)::text END"
    ),
    # Of a job: all of it that `queries.claims.ClaimedRow` holds but the last, in that order.
    "as_claimed_row": """\
{it}.id, {it}.claim, {it}.attempts, {it}.max_attempts, {it}.lost_count, {it}.max_losses,
    {it}.interruptions, {it}.timeout, {it}.priority, {it}.backend,
    {it}.queue_name, {it}.task_path, {it}.args::text, {it}.kwargs::text,
    date_part('epoch', COALESCE({it}.last_attempted_at, statement_timestamp()))
    - date_part('epoch', {{it}.waiting_since}),
    CASE
        WHEN %(detailed)s::boolean OR {it}.task_path = ANY (%(detailed_paths)s::text[])
            THEN json_build_object(
                'enqueued_at', {it}.enqueued_at, 'run_after', {it}.run_after,
                'started_at', {it}.started_at, 'last_attempted_at', {it}.last_attempted_at,
                'tags', {it}.tags,
                'metadata', {it}.metadata::text, 'errors', {it}.errors::text,
                'worker_ids', {it}.worker_ids
            )::text
    END,
    {it}.correlation_id,
    date_part('epoch', {it}.expires_at) - date_part('epoch', statement_timestamp()),
    {it}.lane,
    {{it}.as_undeclared},
    {it}.batch_id,
    CASE
        WHEN {it}.schedule IS NOT NULL
            THEN json_build_array({it}.schedule, {it}.scheduled_for)::text
    END,
    {it}.is_async""",
}
