r"""What statements say of a row again and again, each told once.

A file of SQL says `{pause.holds}` of the row it calls *pause*, or `{job.concurrency_key.limit}` of
a column; `load` puts the text below in its place, where `{it}` is that row or column. There are
no conditions, loops or arguments: a term is a column that the table does not have.

They are not views or functions of the database: a fix would need a migration, and workers of two
releases share the database during a deployment.
"""

from __future__ import annotations

import re

TERMS = {
    # Of a job. It may run now; the indexes of ready jobs are partial on just this.
    "is_ready": "{it}.status = 'ready' AND {it}.due_at IS NULL AND {it}.hold IS NULL",
    # It may run now, has no keys, and the claim of a worker may take it, beside its *open_lanes*.
    "is_claimable": (
        "{{it}.is_ready} AND {it}.lane IS NULL"
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
    # Of the lanes without keys that a claim is given: those that may give jobs now, in a CTE of
    # this name, and behind one with the tasks that may not. That has no row for a worker that may
    # not claim: then no task is other than what is not there.
    "open_lanes": """\
excluded AS MATERIALIZED (
    SELECT %(unknown_paths)s::text[] OPERATOR(pg_catalog.||) ARRAY(
        SELECT pause.name
        FROM pgjobs_pause AS pause
        WHERE pause.kind = 'task' AND {pause.holds}
    ) AS task_paths
    FROM pgjobs_worker AS worker
    WHERE
        worker.id = %(worker_id)s::bigint AND {worker.is_live}
),
lane AS (
    SELECT backend, queue_name, is_async, floor_urgency, floor_id, jobs
    FROM unnest(
        %(lane_backends)s::text[], %(lane_queues)s::text[], %(lane_asyncs)s::boolean[],
        %(floor_urgencies)s::integer[], %(floor_ids)s::bigint[], %(lane_jobs)s::integer[]
    ) AS lane (backend, queue_name, is_async, floor_urgency, floor_id, jobs)
    WHERE NOT EXISTS (
        SELECT FROM pgjobs_pause AS pause
        WHERE pause.kind = 'queue' AND pause.name = lane.queue_name AND {pause.holds}
    )
    AND (%(counted)s::boolean OR NOT EXISTS (
        SELECT FROM pgjobs_queue_settings AS queue
        WHERE queue.queue_name = lane.queue_name AND queue.max_running IS NOT NULL
    ))
)""",
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
    # not succeed.
    "is_past_retention": (
        "{it}.status = %(status)s::text"
        " AND {it}.finished_at"
        " < statement_timestamp() - make_interval(secs => %(retention)s::double precision)"
        " AND {it}.finished_at >= statement_timestamp()"
        " - make_interval(secs => %(retention)s::double precision + %(span)s::double precision)"
        " AND ({it}.batch_id IS NULL OR ("
        "SELECT batch.id FROM pgjobs_batch AS batch WHERE batch.id = {it}.batch_id LIMIT 1"
        ") IS NULL)"
        " AND {{it}.teaches_nobody}"
    ),
    # Of a finished job: it succeeded, or nobody waits who is still to learn that it did not.
    # Subqueries of one value: as a join the planner would read all dependencies.
    "teaches_nobody": (
        "({it}.status = 'successful' OR ("
        "SELECT edge.id"
        " FROM pgjobs_dependency AS edge"
        " WHERE edge.predecessor_id = {it}.id AND edge.after_failure <> 'run'"
        " AND ("
        "SELECT waiting.hold"
        " FROM pgjobs_job_live AS waiting"
        " WHERE waiting.id = edge.job_id AND waiting.status = 'ready'"
        " LIMIT 1) = 'dependencies'"
        " LIMIT 1) IS NULL)"
    ),
    # Of a parameter with the id of a batch: the ids of that and of all below, as a recursive CTE.
    "tree": """\
tree AS (
    SELECT batch.id
    FROM pgjobs_batch AS batch
    WHERE batch.id = %({it})s::bigint
    UNION ALL
    SELECT child.id
    FROM tree
    CROSS JOIN LATERAL (
        SELECT batch.id
        FROM pgjobs_batch AS batch
        WHERE batch.parent_id = tree.id
        OFFSET 0
    ) AS child
)""",
    # The roots of trees of which something is noted and not counted, as a CTE.
    "noted": """\
noted AS MATERIALIZED (
    SELECT DISTINCT batch.root_id
    FROM pgjobs_batch_change AS change JOIN pgjobs_batch AS batch ON batch.id = change.batch_id
)""",
    # Of a row with a *batch_id*: that batch is not broken; it may be gone.
    "is_countable": (
        "COALESCE((SELECT batch.broken FROM pgjobs_batch AS batch"
        " WHERE batch.id = {it}.batch_id LIMIT 1), '') = ''"
    ),
    # Of a row with a *batch_id*: of results jobs of that batch are still to be made.
    "goes_on": (
        "((SELECT batch.cancel_requested_at FROM pgjobs_batch AS batch"
        " WHERE batch.id = {it}.batch_id LIMIT 1) IS NULL"
        " OR EXISTS (SELECT FROM pgjobs_batch_page AS page"
        " WHERE page.batch_id = {it}.batch_id AND NOT page.is_kept))"
    ),
    # All of it that `queries.jobs.JobRow` holds, in that order.
    "as_job_row": (
        "{it}.id, {it}.status, {it}.task_path, {it}.queue_name, {it}.priority, {it}.run_after,"
        " {it}.enqueued_at, {it}.started_at, {it}.last_attempted_at, {it}.finished_at,"
        " {it}.max_attempts, {it}.timeout, {it}.correlation_id, {it}.tags, {it}.args::text,"
        " {it}.kwargs::text, {it}.metadata::text, {it}.errors::text, {it}.result::text,"
        " {it}.worker_ids"
    ),
    # What it says of when it starts, as JSON text, if it may lack what its task declares, else
    # NULL. In the order of `queries.filling.Control`, which begins with the queue and the priority.
    "as_undeclared": (
        "CASE WHEN NOT {it}.is_declared THEN json_build_array("
        "{it}.concurrency_key, {it}.concurrency_limit, {it}.skips_waiting, {it}.rate_limit_keys,"
        " {it}.rate_cost, {it}.unique_key, {it}.unique_until_claimed)::text END"
    ),
    # When it can run for the first time, or again: it may be later than now.
    "ready_from": "COALESCE({it}.ready_at, GREATEST({it}.enqueued_at, {it}.run_after))",
    # Since when it could have run.
    "waiting_since": "GREATEST(LEAST({{it}.ready_from}, statement_timestamp()), 'epoch')",
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
        (task_path, queue_name, backend, is_async, priority, args, correlation_id)
    SELECT
        {it}.on_failure ->> 'task_path'::text,
        COALESCE({it}.on_failure ->> 'queue_name'::text, 'default'),
        COALESCE({it}.on_failure ->> 'backend'::text, 'default'),
        COALESCE({it}.on_failure ->> 'is_async'::text, '') = 'true',
        COALESCE(({it}.on_failure ->> 'priority'::text)::smallint, 0),
        json_build_array({it}.id, {{it}.errors.in_words}),
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
    # Of a statement's list of live jobs: SELECT how many there are of each queue, and of all.
    "sizes": """\
SELECT
        sized.queue_name,
        GROUPING(sized.queue_name) = 1 AS is_sum,
        count(*) AS jobs,
        count(*) FILTER (WHERE sized.kind = 'ready') AS ready,
        count(*) FILTER (WHERE sized.kind = 'running') AS running,
        count(*) FILTER (WHERE sized.kind = 'scheduled') AS scheduled,
        count(*) FILTER (WHERE sized.kind = 'retrying') AS retrying,
        count(*) FILTER (WHERE sized.kind = 'held') AS held,
        min(sized.waiting_since) AS waiting_since
    FROM (
        SELECT
            {it}.queue_name,
            CASE
                WHEN {it}.status = 'running' THEN 'running'
                WHEN {it}.hold IS NOT NULL THEN 'held'
                WHEN {it}.due_at IS NULL THEN 'ready'
                WHEN {it}.attempts > 0 THEN 'retrying'
                ELSE 'scheduled'
            END AS kind,
            CASE WHEN {{it}.is_ready} THEN {{it}.waiting_since} END AS waiting_since
        FROM {it}
    ) AS sized
    GROUP BY GROUPING SETS ((sized.queue_name), ())""",
    # Of a parameter, seconds after which a minute is written: the end of the last one that is.
    "minute_written": (
        "date_trunc('minute',"
        " statement_timestamp() - make_interval(secs => %({it})s::double precision), 'UTC')"
    ),
    # Of the table of live jobs: a CTE *sized*, behind those that it needs: what
    # `queries.numbers.Size` holds of each queue and of all together, counted now if they are few,
    # else as the newest sample says. Without a row there are many, and no sample.
    "sizes_now": """\
few AS MATERIALIZED (
    SELECT count(*) <= %(max_jobs)s::bigint AS holds
    FROM (SELECT job.id FROM {it} AS job ORDER BY job.id LIMIT %(max_jobs)s::bigint + 1) AS oldest
),
found AS MATERIALIZED (
    SELECT
        job.queue_name, job.status, job.hold, job.due_at, job.attempts, job.ready_at,
        job.enqueued_at, job.run_after
    FROM {it} AS job
    WHERE (SELECT few.holds FROM few)
    ORDER BY job.id
    LIMIT %(max_jobs)s::bigint + 1
),
counted AS (
    {found.sizes}
),
sized AS MATERIALIZED (
    SELECT
        counted.queue_name, counted.ready, counted.running, counted.scheduled, counted.retrying,
        counted.held, counted.waiting_since, statement_timestamp() AS measured_at,
        FALSE AS is_cut
    FROM counted
    WHERE (SELECT few.holds FROM few)
    UNION ALL
    SELECT
        sample.queue_name, sample.ready, sample.running, sample.scheduled, sample.retrying,
        sample.held, sample.waiting_since, sample.measured_at, sample.is_cut
    FROM pgjobs_queue_sample AS sample
    WHERE
        NOT (SELECT few.holds FROM few)
        AND sample.measured_at = (
            SELECT latest.measured_at
            FROM pgjobs_queue_sample AS latest
            WHERE latest.measured_at <= statement_timestamp()
            ORDER BY latest.measured_at DESC
            LIMIT 1
        )
)""",
    # Of a statement's list of jobs that it has ended, or not: what statistics count.
    "statistics": """\
INSERT INTO pgjobs_statistic (begins_at, queue_name, task_path, failed, cancelled)
    SELECT
        date_trunc('minute', statement_timestamp(), 'UTC'), {it}.queue_name, {it}.task_path,
        count(*) FILTER (WHERE {it}.status = 'failed'),
        count(*) FILTER (WHERE {it}.status = 'cancelled')
    FROM {it}
    WHERE {it}.status NOT IN ('ready', 'running')
    GROUP BY {it}.queue_name, {it}.task_path""",
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
    # Of a parameter *job_id*, with *claim*: SELECT the job, unfinished until the caller commits.
    "asking": (
        "SELECT running.id, running.batch_id"
        " FROM pgjobs_job_live AS running"
        " WHERE running.id = %({it})s::bigint AND {running.runs}"
        " AND running.claim = %(claim)s::bigint"
        " FOR KEY SHARE"
    ),
    # Of an array of errors, after an attempt that was the last: what is told of it.
    "in_words": (
        "COALESCE({it} -> -1 ->> 'exception_class'::text, '')"
        " OPERATOR(pg_catalog.||) ': '"
        " OPERATOR(pg_catalog.||) COALESCE({it} -> -1 ->> 'message'::text, '')"
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
        " date_part('epoch', {it}.lease_expires_at) - date_part('epoch', statement_timestamp())"
    ),
    # Of a pause: it is in force now.
    "holds": "({it}.resume_at IS NULL OR {it}.resume_at > statement_timestamp())",
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
        " WHERE {oldest.is_in_line}"
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
    # Of the row of a rate limit: how many may come at once.
    "burst_in_force": "COALESCE({it}.burst, {it}.count)",
    # Of the key of a rate limit: SELECT the limit. That of the key itself goes first.
    "rate_limit": (
        "SELECT rate_limit.name, rate_limit.count, rate_limit.period,"
        " {rate_limit.burst_in_force} AS burst,"
        # As an interval: whole microseconds, rounded up, for the clock has no smaller ones.
        " make_interval(secs =>"
        " ceil(rate_limit.period * 1000000::double precision) / 1000000::double precision"
        ") AS period_in_force"
        " FROM pgjobs_rate_limit AS rate_limit"
        " WHERE rate_limit.name IN ({it}, split_part({it}, ':', 1))"
        " ORDER BY rate_limit.name = {it} DESC"
        " LIMIT 1"
    ),
    # Of the key of a rate limit: SELECT its state. The limit keeps the planner from joining it with
    # all states.
    "rate_state": (
        "SELECT state.taken_at, state.taken_since"
        " FROM pgjobs_rate_state AS state WHERE state.key = {it} LIMIT 1"
    ),
    # Of the state of a rate limit: SELECT what it remembers, *instant* and how many tokens were
    # taken *since* then, those of the instant included.
    "taken": (
        "SELECT {entry.instant.in_calendar} AS instant,"
        " GREATEST(entry.since::bigint, 0) AS since"
        " FROM unnest({it}.taken_at, {it}.taken_since) AS entry (instant, since)"
    ),
    # Of the state of a rate limit, which may be missing, beside its *rule* and what is *wanted*
    # (its *cost*): from when on so many tokens are there; NULL if nothing is in the way. This is
    # the rule itself, in docs/rate-limits.md: a window that begins with what was taken before
    # holds no more than the count, and no more than the burst and what comes with time.
    "free_at": (
        "(SELECT max(LEAST(taken.instant + CASE"
        " WHEN taken.since + wanted.cost::bigint > rule.count THEN rule.period_in_force"
        " WHEN taken.since + wanted.cost::bigint <= rule.burst THEN '0'::interval"
        " ELSE make_interval(secs => ceil("
        "(taken.since + wanted.cost::bigint - rule.burst)::double precision"
        " * rule.period * 1000000::double precision / rule.count::double precision"
        ") / 1000000::double precision)"
        " END, '9999-12-30'))"
        " FROM ({{it}.taken}) AS taken)"
    ),
    # Of the same beside its *rule*: how many tokens there are now by the same rule; below zero: so
    # many turns were given ahead. NULL if there is no such limit.
    "tokens": (
        "CASE WHEN rule.count IS NOT NULL THEN LEAST(rule.burst, ("
        "SELECT min(CASE"
        " WHEN taken.instant > statement_timestamp() THEN -taken.since"
        " ELSE LEAST("
        "rule.count - taken.since,"
        " rule.burst - taken.since + floor("
        "date_part('epoch', statement_timestamp() - taken.instant)"
        " * rule.count::double precision / rule.period"
        ")::bigint)"
        " END)"
        " FROM ({{it}.taken}) AS taken"
        " WHERE taken.instant > statement_timestamp() - rule.period_in_force"
        ")) END"
    ),
    # Of the same: more there are not, by the oldest entry alone; NULL if it does not tell.
    "remaining_at_oldest": (
        "CASE WHEN array_lower({it}.taken_at, 1) = 1 AND array_lower({it}.taken_since, 1) = 1"
        " AND {it}.taken_at[1] > statement_timestamp() - rule.period_in_force"
        " THEN rule.count - GREATEST({it}.taken_since[1]::bigint, 0) END"
    ),
    # Of a turn (*instant*, *cost*) beside the *state* and the *rule* of its key: SELECT what the
    # state remembers then, and when all tokens are free again. What has left the window by then
    # is forgotten. Of a limit above a hundred the tokens of a hundredth of the period are one
    # entry with the instant of the last of them.
    "recorded": (
        "SELECT array_agg(entry.instant ORDER BY entry.instant) AS taken_at,"
        " array_agg(entry.since ORDER BY entry.instant) AS taken_since,"
        " {it}.instant + rule.period_in_force AS next_free"
        " FROM ("
        "SELECT max(each.instant) AS instant, LEAST(max(each.since), 2147483647)::integer AS since"
        " FROM ("
        "SELECT taken.instant, taken.since + {it}.cost::bigint AS since"
        " FROM ({state.taken}) AS taken"
        " WHERE taken.instant > {it}.instant - rule.period_in_force"
        " UNION ALL SELECT {it}.instant, {it}.cost::bigint"
        ") AS each"
        " GROUP BY date_bin("
        "CASE WHEN rule.count > 100"
        " THEN make_interval(secs => rule.period / 100::double precision)"
        " ELSE '1 us'::interval END,"
        " each.instant, 'epoch')"
        ") AS entry"
    ),
}
USE = re.compile(r"\{(?P<it>[\w.()]+)\.(?P<term>\w+)\}")


def written_out(text: str) -> str:
    """Return a statement with its terms in full; raise KeyError for one that is none."""

    def told(found: re.Match[str]) -> str:
        return written_out(TERMS[found["term"]].replace("{it}", found["it"]))

    return USE.sub(told, text)
