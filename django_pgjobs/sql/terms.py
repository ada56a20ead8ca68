r"""What statements say of a row again and again, each told once.

A file of SQL says `{pause.holds}` of the row it calls *pause*, or `{job.concurrency_key.limit}` of
a column; `load` puts the text below in its place, where `{it}` is that row or column. There are
no conditions, loops or arguments: a term is a column that the table does not have.

They are not views or functions of the database: a fix would need a migration, and workers of two
releases share the database during a deployment.
"""

from __future__ import annotations

import re

from django_pgjobs.sql.claim_terms import CLAIM_TERMS
from django_pgjobs.sql.number_terms import NUMBER_TERMS
from django_pgjobs.sql.rate_terms import RATE_TERMS
from django_pgjobs.sql.write_terms import WRITE_TERMS

TERMS = {
    # Of a job. It may run now; the indexes of ready jobs are partial on just this.
    "is_ready": "{it}.status = 'ready' AND {it}.due_at IS NULL AND {it}.hold IS NULL",
    # Beside `is_ready` or `is_in_line`, where the first such job is read in the order of an index.
    # That index holds it without asking; by any other way the planner counts a dear subquery, which
    # nothing calls. Where rows are locked it counts that by either way: then nothing else makes a
    # difference but the order. Else it takes a table for all but empty that a VACUUM saw before it
    # was filled, and would read all jobs and sort them, for each step of a walk.
    "is_walked": (
        "({it}.hold IS NULL"
        " OR (SELECT TRUE FROM generate_series(1, 100000000) AS n WHERE n = length({it}.hold)))"
    ),
    # Beside a batch, and `status = 'ready'` or that of a finished job: the same for the index of
    # jobs of batches that wait, or that have finished.
    "is_of_batches": (
        "({it}.batch_id IS NOT NULL"
        " OR (SELECT TRUE FROM generate_series(1, 100000000) AS n WHERE n = {it}.batch_id))"
    ),
    # Beside `status = 'running'`: the same for the index of running jobs.
    "is_of_workers": (
        "({it}.status = 'running'"
        " OR (SELECT TRUE FROM generate_series(1, 100000000) AS n WHERE n = {it}.worker_id))"
    ),
    # It runs. Not "status = 'running'", where it is found by its id: that would let the planner
    # walk the index of running jobs, which is full of dead entries, instead of the primary key.
    "runs": "{it}.status IN ('ready', 'running') AND {it}.status <> 'ready'",
    # It has its place in the order of its key, which a retry keeps; one for later has none yet.
    "is_in_line": (
        "{it}.status = 'ready' AND {it}.hold IS NULL"
        " AND ({it}.due_at IS NULL OR {it}.due_at IS DISTINCT FROM {it}.run_after)"
    ),
    # It is one of the given *ids*; unless the statement *waits*, one that is free.
    "is_to_finish": (
        "{it}.id = ANY (CASE WHEN %(waits)s::boolean THEN %(ids)s::bigint[] ELSE {ids.free} END)"
    ),
    # Of a parameter with ids of jobs: an array of those that run and that nobody else has locked;
    # now this statement has.
    "free": (
        "ARRAY(SELECT free.id FROM pgjobs_job_live AS free"
        " WHERE free.id = ANY (%({it})s::bigint[]) AND {free.runs}"
        " ORDER BY free.id FOR UPDATE SKIP LOCKED)"
    ),
    # Of a finished job: it ended with *status*, longer than *retention* ago and at most *span*
    # seconds before that, goes with no tree, and nobody waits who is still to learn that it did
    # not succeed. Bounds from subqueries, also of the status, hide the values: by statistics of
    # other jobs, all of them old, the planner would read all of a status and sort it.
    "is_past_retention": (
        "{it}.status = %(status)s::text"
        " AND {it}.status >= (SELECT %(status)s::text)"
        " AND {it}.status <= (SELECT %(status)s::text)"
        " AND {it}.finished_at < (SELECT"
        " statement_timestamp() - make_interval(secs => %(retention)s::double precision))"
        " AND {it}.finished_at >= (SELECT statement_timestamp()"
        " - make_interval(secs => %(retention)s::double precision + %(span)s::double precision))"
        " AND ({it}.batch_id IS NULL OR ("
        "SELECT batch.id FROM pgjobs_batch AS batch WHERE batch.id = {it}.batch_id LIMIT 1"
        ") IS NULL)"
        " AND {{it}.teaches_nobody}"
    ),
    # Of a finished job: it succeeded, or nobody waits who is still to learn that it did not.
    # Subqueries of one value: as a join the planner would read all dependencies. Not "=": where
    # most jobs wait for one, it would read them all for each job.
    "teaches_nobody": (
        "({it}.status = 'successful' OR ("
        "SELECT edge.id"
        " FROM pgjobs_dependency AS edge"
        " WHERE edge.predecessor_id >= {it}.id AND edge.predecessor_id <= {it}.id"
        " AND edge.after_failure <> 'run'"
        " AND ("
        "SELECT waiting.hold"
        " FROM pgjobs_job_live AS waiting"
        " WHERE waiting.id = edge.job_id AND waiting.status = 'ready'"
        " LIMIT 1) = 'dependencies'"
        " ORDER BY edge.predecessor_id, edge.job_id"
        " LIMIT 1) IS NULL)"
    ),
    # Of a parameter with the id of a batch: that and all below, as a recursive CTE.
    "tree": """\
tree AS (
    SELECT batch.id, batch.follows, batch.open_predecessors, batch.failed_predecessors
    FROM pgjobs_batch AS batch
    WHERE batch.id = %({it})s::bigint
    UNION ALL
    SELECT child.id, child.follows, child.open_predecessors, child.failed_predecessors
    FROM tree
    CROSS JOIN LATERAL (
        SELECT batch.id, batch.follows, batch.open_predecessors, batch.failed_predecessors
        FROM pgjobs_batch AS batch
        -- Not "=": where most batches have one parent, the planner reads all for each of them.
        WHERE batch.parent_id >= tree.id AND batch.parent_id <= tree.id
        OFFSET 0
    ) AS child
)""",
    # The roots of trees of which something is noted and not counted, as a CTE. As a plain join, a
    # worker would read all batches.
    "noted": """\
noted AS MATERIALIZED (
    SELECT DISTINCT batch.root_id
    FROM pgjobs_batch_change AS change
    CROSS JOIN LATERAL (
        SELECT one.root_id FROM pgjobs_batch AS one WHERE one.id = change.batch_id OFFSET 0
    ) AS batch
)""",
    # Of a batch: SELECT the sums of what is noted of it and not counted.
    "uncounted": (
        "SELECT COALESCE(sum(change.jobs), 0)::bigint AS jobs,"
        " COALESCE(sum(change.successful), 0)::bigint AS successful,"
        " COALESCE(sum(change.failed), 0)::bigint AS failed,"
        " COALESCE(sum(change.cancelled), 0)::bigint AS cancelled"
        " FROM pgjobs_batch_change AS change"
        " WHERE change.batch_id = {it}.id"
    ),
    # Of a row with a *batch_id*: that batch is not broken; it may be gone.
    "is_countable": (
        "COALESCE((SELECT batch.broken FROM pgjobs_batch AS batch"
        " WHERE batch.id = {it}.batch_id LIMIT 1), '') = ''"
    ),
    # All of it that `queries.jobs.JobRow` holds, in that order.
    "as_job_row": (
        "{it}.id, {it}.status, {it}.task_path, {it}.queue_name, {it}.priority, {it}.run_after,"
        " {it}.enqueued_at, {it}.started_at, {it}.last_attempted_at, {it}.finished_at,"
        " {it}.max_attempts, {it}.timeout, {it}.correlation_id, {it}.tags, {it}.args::text,"
        " {it}.kwargs::text, {it}.metadata::text, {it}.errors::text, {it}.result::text,"
        " {it}.worker_ids"
    ),
    # Of a job that runs: for how long, and is it to be cancelled?
    "as_run": (
        "date_part('epoch', statement_timestamp())"
        " - date_part('epoch', COALESCE({it}.last_attempted_at, statement_timestamp())),"
        " {it}.cancel_requested_at IS NOT NULL"
    ),
    # When it can run for the first time, or again: it may be later than now.
    "ready_from": "COALESCE({it}.ready_at, GREATEST({it}.enqueued_at, {it}.run_after))",
    # Since when it could have run.
    "waiting_since": "GREATEST(LEAST({{it}.ready_from}, statement_timestamp()), 'epoch')",
    # Of a ready job: what is asked of it where nobody has claimed it yet.
    "as_waiting": (
        "{it}.id, {it}.backend, {it}.queue_name, {it}.task_path, {it}.concurrency_key,"
        " {it}.rate_limit_keys, {it}.rate_cost, {it}.lane IS NOT NULL AS has_keys,"
        " {{it}.waiting_since} AS since"
    ),
    # When it is to run again, by the parameters of the change.
    "run_after_as_asked": (
        "COALESCE(%(run_after)s::timestamptz, statement_timestamp() + make_interval("
        "secs => %(delay)s::double precision + random() * %(spread)s::double precision))"
    ),
    # When a new one expires, by the parameters of the enqueue.
    "expiry_as_asked": (
        "COALESCE(%(expires)s::timestamptz,"
        " statement_timestamp() + make_interval(secs => %(expires_in)s::double precision))"
    ),
    # When one that is met expires: at the later of both; an enqueue that never expires wins.
    "expiry_of_both": (
        "NULLIF(GREATEST(COALESCE({it}.expires_at, 'infinity'),"
        " COALESCE({{it}.expiry_as_asked}, 'infinity')), 'infinity')"
    ),
    # Of a statement's list of jobs that ended: what is to be enqueued for those that failed.
    "follow_ups": """\
INSERT INTO pgjobs_job
        (task_path, queue_name, backend, is_async, priority, args, kwargs, correlation_id)
    SELECT
        {it}.on_failure ->> 'task_path'::text,
        COALESCE({it}.on_failure ->> 'queue_name'::text, 'default'),
        COALESCE({it}.on_failure ->> 'backend'::text, 'default'),
        COALESCE({it}.on_failure ->> 'is_async'::text, '') = 'true',
        COALESCE(({it}.on_failure ->> 'priority'::text)::smallint, 0),
        json_build_array({it}.id, {{it}.errors.in_words}),
        COALESCE({it}.on_failure -> 'kwargs'::text, '{}')::json,
        {it}.correlation_id
    FROM {it}
    WHERE {it}.status = 'failed' AND {it}.on_failure IS NOT NULL""",
    # Of a statement's list of jobs that ended, or were left as they were: what its batches are to
    # count.
    "changes_of_batches": """\
INSERT INTO pgjobs_batch_change (batch_id, successful, failed, cancelled)
    SELECT
        {it}.batch_id,
        count(*) FILTER (WHERE {it}.status = 'successful'),
        count(*) FILTER (WHERE {it}.status = 'failed'),
        count(*) FILTER (WHERE {it}.status = 'cancelled')
    FROM {it}
    WHERE {it}.batch_id IS NOT NULL AND {it}.status NOT IN ('ready', 'running')
    GROUP BY {it}.batch_id""",
    # Of a batch: it is not sealed, or a running job of it asks, or the one that has opened it.
    "takes_jobs": (
        "{it}.cancel_requested_at IS NULL AND ("
        "{it}.completed_at IS NULL AND ("
        "{it}.sealed_at IS NULL AND NOT EXISTS ("
        "SELECT FROM pgjobs_batch_change AS change"
        " WHERE change.batch_id = {it}.id AND (change.seals OR change.cancels))"
        " OR EXISTS (SELECT FROM asking WHERE asking.batch_id = {it}.id))"
        " OR EXISTS (SELECT FROM asking WHERE asking.id = {it}.opener_id))"
    ),
    # Of a parameter *job_id*, with *claim*: the job, unfinished until the caller commits, as a CTE.
    "asking": """\
asking AS MATERIALIZED (
    SELECT running.id, running.batch_id
    FROM pgjobs_job_live AS running
    WHERE
        running.id = %({it})s::bigint AND {running.runs} AND running.claim = %(claim)s::bigint
    FOR KEY SHARE
)""",
    # Of a parameter with the id of a batch: SELECT it, open until the caller commits; behind
    # *asking*.
    "taking": (
        "SELECT batch.id FROM pgjobs_batch AS batch"
        " WHERE batch.id = %({it})s::bigint AND {batch.takes_jobs} FOR KEY SHARE OF batch"
    ),
    # Of an array of errors, after an attempt that was the last: what is told of it.
    "in_words": (
        "COALESCE({it} -> -1 ->> 'exception_class'::text, '')"
        " OPERATOR(pg_catalog.||) CASE"
        " WHEN {it} -> -1 ->> 'message'::text OPERATOR(pg_catalog.<>) ''"
        " THEN ': ' OPERATOR(pg_catalog.||) ({it} -> -1 ->> 'message'::text) ELSE '' END"
    ),
    # Of a worker: it has not said goodbye, and its lease has not run out.
    "is_live": "{it}.ended_at IS NULL AND {it}.lease_expires_at > statement_timestamp()",
    # It also claims jobs: nobody has asked it to be quiet or to stop.
    "claims": (
        "{{it}.is_live} AND {it}.quiet_requested_at IS NULL AND {it}.stop_requested_at IS NULL"
    ),
    # All of it that `queries.worker_pages.WorkerRow` holds, in that order.
    "as_worker_row": (
        "{it}.id, {it}.name, {it}.host, {it}.pid, {it}.version, {it}.queues, {it}.excluded_queues,"
        " {it}.slots, {it}.listening, {it}.lost, {it}.ended_at IS NOT NULL,"
        " {it}.quiet_requested_at IS NOT NULL, {it}.stop_requested_at IS NOT NULL,"
        " {{it}.started_at.seconds_ago}, {{it}.heartbeat_at.seconds_ago},"
        " {{it}.ended_at.seconds_ago},"
        " date_part('epoch', {it}.lease_expires_at) - date_part('epoch', {it}.heartbeat_at),"
        " date_part('epoch', {it}.lease_expires_at) - date_part('epoch', statement_timestamp()),"
        " {it}.token_id"
    ),
    # Of a schedule: it is neither paused nor retired; its index is partial on just this.
    "is_in_force": "{it}.paused_at IS NULL AND {it}.retired_at IS NULL",
    # For how many seconds a worker could have taken it, to enqueue or to plan: NULL for never,
    # negative before it is due.
    "seconds_due": (
        "date_part('epoch', statement_timestamp()) - date_part('epoch', CASE"
        " WHEN isfinite({it}.next_at) THEN {it}.next_at"
        " WHEN {it}.next_at IS NOT NULL AND isfinite({it}.plan_from) THEN {it}.plan_from END)"
    ),
    # A turn may take it: one of the *tasks* that are here, and none of those *excluded*.
    "is_for_turn": (
        "{{it}.is_in_force} AND {it}.name <> ALL (%(excluded)s::text[])"
        " AND (%(tasks)s::text[] IS NULL OR {it}.task_path = ANY (%(tasks)s::text[]))"
    ),
    # Of a parameter *now*: what counts as that, the server's time where it is NULL.
    "or_servers": "COALESCE(%({it})s::timestamptz, statement_timestamp())",
    # Of the same: until when a schedule must have been due to be so many seconds *late*.
    "latest_due": "{{it}.or_servers} - make_interval(secs => %(late)s::double precision)",
    # Of a batch that follows others: something before it failed, which it minds.
    "lacks_success": "{it}.failed_predecessors > 0 AND NOT {it}.runs_after_failure",
    # Of a pause: it is in force now.
    "holds": "({it}.resume_at IS NULL OR {it}.resume_at > statement_timestamp())",
    # Of a token of the HTTP API: it is neither revoked nor past its end.
    "is_valid": (
        "{it}.revoked_at IS NULL"
        " AND ({it}.expires_at IS NULL OR {it}.expires_at > statement_timestamp())"
    ),
    # Of a pause: it is one of what the statement calls *job*: its queue, its task or its key.
    "is_of_job": (
        "(({it}.kind = 'queue' AND {it}.name = job.queue_name)"
        " OR ({it}.kind = 'task' AND {it}.name = job.task_path)"
        " OR ({it}.kind = 'key' AND job.concurrency_key LIKE {{it}.name.as_pattern}))"
    ),
    # Of an instant: the nearest one that Python has. JSON has no infinity either.
    "in_calendar": "LEAST(GREATEST({it}, '0001-01-02'), '9999-12-30')",
    # Of an instant: how long ago it was; infinity is a length, too.
    "seconds_ago": "date_part('epoch', statement_timestamp()) - date_part('epoch', {it})",
    # Of an instant that something ends at: NULL for one that Python does not have, the end is
    # never.
    "or_never": "CASE WHEN {it} < '9999-12-30' THEN {it} END",
    # Of a key or pattern such as "shop:*": the same in the notation of LIKE.
    "as_pattern": (
        r"replace(replace(replace(replace({it}, E'\\', E'\\\\'), '%%', E'\\%%'), '_', E'\\_'),"
        " '*', '%%')"
    ),
    # Of the table of limits: SELECT those that are patterns, for the limit below; the longest goes
    # first.
    "patterns": (
        "SELECT maximum.max_running, maximum.weight, maximum.pattern,"
        " {maximum.pattern.as_pattern} AS in_like"
        " FROM {it} AS maximum"
        " WHERE POSITION('*' IN maximum.pattern) > 0"
        " ORDER BY length(maximum.pattern) DESC"
    ),
    # Of a concurrency key: SELECT the row that limits it. That of the key itself goes first. The
    # statement reads the patterns once, as *key_pattern*: list_heads.sql asks for each lane.
    "limit": (
        "SELECT exact.max_running, exact.weight, exact.pattern"
        " FROM pgjobs_concurrency_limit AS exact"
        " WHERE exact.pattern = {it}"
        " UNION ALL"
        " SELECT key_pattern.max_running, key_pattern.weight, key_pattern.pattern"
        " FROM key_pattern"
        " WHERE {it} LIKE key_pattern.in_like"
        " LIMIT 1"
    ),
    # Of the first job of a lane, by which all of it is judged: SELECT how its key is limited.
    # *jobs* is how many may run; *next_id* the one whose turn it is, if the key keeps its order.
    # The bounds and the order name the index: where the planner is free to choose, it would walk
    # the primary key for the oldest.
    "limit_of_key": (
        "SELECT maximum.max_running, maximum.weight, maximum.pattern, maximum.jobs,"
        " CASE"
        " WHEN maximum.jobs = 1 AND {it}.concurrency_key IS NOT NULL AND NOT {it}.skips_waiting"
        " THEN LEAST({it}.id, ("
        "SELECT oldest.id"
        " FROM pgjobs_job_live AS oldest"
        " WHERE {oldest.is_in_line} AND {oldest.is_walked}"
        " AND oldest.concurrency_key >= {it}.concurrency_key"
        " AND oldest.concurrency_key <= {it}.concurrency_key"
        " ORDER BY oldest.concurrency_key, oldest.id"
        " LIMIT 1)) END AS next_id"
        " FROM ("
        "SELECT found.max_running, COALESCE(found.weight, 1) AS weight, found.pattern,"
        " GREATEST(COALESCE(found.max_running, {it}.concurrency_limit), 1) AS jobs"
        " FROM (SELECT) AS one"
        " LEFT JOIN LATERAL ({{it}.concurrency_key.limit}) AS found ON TRUE"
        ") AS maximum"
        # Else the planner copies the expressions to each of their uses.
        " OFFSET 0"
    ),
    # Of a concurrency key: SELECT its running jobs.
    "running": (
        "SELECT running.id"
        " FROM pgjobs_job_live AS running"
        " WHERE running.status <> 'ready' AND running.concurrency_key = {it}"
    ),
    **CLAIM_TERMS,
    **NUMBER_TERMS,
    **RATE_TERMS,
    **WRITE_TERMS,
}
USE = re.compile(r"\{(?P<it>[\w.()]+)\.(?P<term>\w+)\}")


def written_out(text: str) -> str:
    """Return a statement with its terms in full; raise KeyError for one that is none."""

    def told(found: re.Match[str]) -> str:
        return written_out(TERMS[found["term"]].replace("{it}", found["it"]))

    return USE.sub(told, text)
