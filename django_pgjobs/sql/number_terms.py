"""What statements say of numbers: the terms of `terms.py` that count."""

from __future__ import annotations

# Classes of time that statistics count by: as many as `queries.statistics` has.
_CLASSES = range(1, 29)

# Of the parameter of `ended_lately`: SELECT the newest jobs that ended with each status.
_NEWEST = "    UNION ALL\n".join(
    """\
    (
        SELECT job.status, job.queue_name, job.task_path, job.finished_at
        FROM pgjobs_job_finished AS job
        WHERE
            job.status = '{status}' AND job.finished_at >= {{it}.minute_written}
            AND job.finished_at <= statement_timestamp()
        ORDER BY job.finished_at DESC
        LIMIT %(max_jobs)s::integer + 1
    )
""".replace("{status}", status)
    for status in ("successful", "failed", "cancelled")
)

NUMBER_TERMS = {
    # Of a job that waits and cannot start now: for its first attempt, for the next one, or without
    # a time (`status.WAITING` says the same to QuerySets).
    "is_scheduled": (
        "{it}.status = 'ready' AND {it}.hold IS NULL AND {it}.due_at IS NOT NULL"
        " AND {it}.attempts <= 0"
    ),
    "is_retrying": (
        "{it}.status = 'ready' AND {it}.hold IS NULL AND {it}.due_at IS NOT NULL"
        " AND {it}.attempts >= 1"
    ),
    "is_blocked": "{it}.status = 'ready' AND {it}.hold IS NOT NULL",
    # Of a statistic: always so, told for the index, which begins with the period.
    "is_of_any_period": "{it}.period = ANY ('{part,minute,5 minutes,15 minutes,4 hours,day}')",
    # Of a parameter, whether by task, else by queue: SELECT what ended and came in of each *name*,
    # as the sums say, and the parts that are in no sum yet.
    "by_name": """\
    SELECT
        part.begins_at,
        CASE WHEN %({it})s::boolean THEN part.task_path ELSE part.queue_name END AS name,
        {part.counts}
    FROM pgjobs_statistic AS part
    WHERE part.period = 'part'
    UNION ALL
    SELECT
        summed.begins_at,
        CASE WHEN %({it})s::boolean THEN summed.task_path ELSE summed.queue_name END,
        {summed.counts}
    FROM pgjobs_statistic_sum AS summed
    WHERE
        {summed.is_of_any_period}
        AND CASE
            WHEN %({it})s::boolean THEN summed.task_path ELSE summed.queue_name
        END IS NOT NULL""",
    # Of a statistic.
    "counts": (
        "{it}.enqueued, {it}.successful, {it}.failed, {it}.cancelled, {it}.retried, {it}.lost,"
        " {it}.waits, {it}.runs"
    ),
    # Of a table of statistics: CTEs that add up rows of one period that are old enough to rows of
    # the next longer one, as roll_up_statistics.sql is told: *gone* become those *entered*. What
    # becomes one row is in one page: pages by time alone, if they had fewer rows than there are
    # names, would add up nothing. Not all rows are sorted, for there may be a backlog of millions.
    "rolled_up": """\
old AS MATERIALIZED (
    SELECT oldest.id
    FROM (
        SELECT
            statistic.id, statistic.begins_at, statistic.queue_name, statistic.task_path
        FROM {it} AS statistic
        WHERE
            statistic.period = %(period)s::text
            AND statistic.begins_at < to_timestamp(
                floor(
                    (date_part('epoch', statement_timestamp()) - %(keep)s::double precision)
                    / %(step)s::double precision
                ) * %(step)s::double precision
            )
        ORDER BY statistic.begins_at
        LIMIT %(max_rows)s::integer * 20
    ) AS oldest
    ORDER BY
        floor(date_part('epoch', oldest.begins_at) / %(step)s::double precision),
        oldest.queue_name, oldest.task_path
    LIMIT %(max_rows)s::integer
),
gone AS (
    DELETE FROM {it} AS statistic
    WHERE statistic.id = ANY (ARRAY(SELECT old.id FROM old))
    RETURNING
        to_timestamp(
            floor(date_part('epoch', statistic.begins_at) / %(step)s::double precision)
            * %(step)s::double precision
        ) AS begins_at,
        statistic.queue_name, statistic.task_path, statistic.enqueued, statistic.successful,
        statistic.failed, statistic.cancelled, statistic.retried, statistic.lost,
        statistic.waited, statistic.ran, statistic.waits, statistic.runs
),
class AS (
    SELECT
        gone.begins_at, gone.queue_name, gone.task_path, each.place,
        LEAST(GREATEST(sum(each.wait), 0), 1e12)::bigint AS waits,
        LEAST(GREATEST(sum(each.run), 0), 1e12)::bigint AS runs
    FROM gone
    CROSS JOIN LATERAL unnest(gone.waits, gone.runs) WITH ORDINALITY AS each (wait, run, place)
    GROUP BY gone.begins_at, gone.queue_name, gone.task_path, each.place
),
classes AS (
    SELECT
        class.begins_at, class.queue_name, class.task_path,
        array_agg(class.waits ORDER BY class.place) AS waits,
        array_agg(class.runs ORDER BY class.place) AS runs
    FROM class
    GROUP BY class.begins_at, class.queue_name, class.task_path
),
added AS (
    SELECT
        gone.begins_at, gone.queue_name, gone.task_path,
        LEAST(sum(gone.enqueued), 1e12)::bigint AS enqueued,
        LEAST(sum(gone.successful), 1e12)::bigint AS successful,
        LEAST(sum(gone.failed), 1e12)::bigint AS failed,
        LEAST(sum(gone.cancelled), 1e12)::bigint AS cancelled,
        LEAST(sum(gone.retried), 1e12)::bigint AS retried,
        LEAST(sum(gone.lost), 1e12)::bigint AS lost,
        LEAST(sum(gone.waited), 1e15) AS waited,
        LEAST(sum(gone.ran), 1e15) AS ran
    FROM gone
    GROUP BY gone.begins_at, gone.queue_name, gone.task_path
),
entered AS (
    INSERT INTO {it} (
        period, begins_at, queue_name, task_path, enqueued, successful, failed, cancelled,
        retried, lost, waited, ran, waits, runs
    )
    SELECT
        %(into)s::text, added.begins_at, added.queue_name, added.task_path, added.enqueued,
        added.successful, added.failed, added.cancelled, added.retried, added.lost,
        added.waited, added.ran, COALESCE(classes.waits, '{}'), COALESCE(classes.runs, '{}')
    FROM added
    -- In arrays NULL equals NULL, and unlike IS NOT DISTINCT FROM that can be hashed.
    LEFT JOIN classes
        ON classes.begins_at = added.begins_at
        AND ARRAY[classes.queue_name::text, classes.task_path::text]
        OPERATOR(pg_catalog.=) ARRAY[added.queue_name::text, added.task_path::text]
    RETURNING *
)""",
    # Of lists of counts by classes of time: their sums, as one list. Each place is an aggregate of
    # its own: rows of the lists' elements, as unnest makes, take three times as long.
    "class_sums": "ARRAY["
    + ", ".join(f"LEAST(GREATEST(sum({{it}}[{place}]), 0), 1e15)::bigint" for place in _CLASSES)
    + "]",
    # Of a statement's list of live jobs: how many there are of each queue, and behind that, in a
    # CTE of the name *size*, also of all together.
    "sizes": """\
counted AS MATERIALIZED (
    SELECT
        {it}.queue_name,
        count(*) AS jobs,
        count(*) FILTER (WHERE {{it}.is_ready}) AS ready,
        count(*) FILTER (WHERE {it}.status = 'running') AS running,
        count(*) FILTER (WHERE {{it}.is_scheduled}) AS scheduled,
        count(*) FILTER (WHERE {{it}.is_retrying}) AS retrying,
        count(*) FILTER (WHERE {{it}.is_blocked}) AS blocked,
        min({{it}.waiting_since}) FILTER (WHERE {{it}.is_ready}) AS waiting_since
    FROM {it}
    GROUP BY {it}.queue_name
),
size AS (
    SELECT
        NULL AS queue_name, TRUE AS is_sum, COALESCE(sum(counted.jobs), 0)::bigint AS jobs,
        COALESCE(sum(counted.ready), 0)::bigint AS ready,
        COALESCE(sum(counted.running), 0)::bigint AS running,
        COALESCE(sum(counted.scheduled), 0)::bigint AS scheduled,
        COALESCE(sum(counted.retrying), 0)::bigint AS retrying,
        COALESCE(sum(counted.blocked), 0)::bigint AS blocked,
        min(counted.waiting_since) AS waiting_since
    FROM counted
    UNION ALL
    SELECT
        counted.queue_name, FALSE, counted.jobs, counted.ready, counted.running,
        counted.scheduled, counted.retrying, counted.blocked, counted.waiting_since
    FROM counted
)""",
    # Of a parameter, seconds after which a minute is written: the end of the last one that is.
    "minute_written": (
        "date_trunc('minute',"
        " statement_timestamp() - make_interval(secs => %({it})s::double precision), 'UTC')"
    ),
    # Of a parameter, seconds after which a minute is written: CTEs of a statement that is given
    # *seconds*, *bucket_seconds* and *max_jobs*. The *span* of time that it tells of, up to the end
    # of the last minute that is written; what has finished since then, *newest*; and whether that
    # is *few*, so that it counts as well.
    "ended_lately": """\
span AS MATERIALIZED (
    SELECT
        to_timestamp(
            floor(
                (date_part('epoch', statement_timestamp()) - %(seconds)s::double precision)
                / %(bucket_seconds)s::integer::double precision
            ) * %(bucket_seconds)s::integer::double precision
        ) AS since,
        {{it}.minute_written} AS closed
),
-- The time itself, and not that of the span, lets the planner know that few are asked for of many.
newest AS MATERIALIZED (
{newest}),
few AS MATERIALIZED (
    SELECT
        is_few AS holds, CASE WHEN is_few THEN statement_timestamp() ELSE span.closed END AS upto
    FROM span
    CROSS JOIN (SELECT count(*) <= %(max_jobs)s::integer AS is_few FROM newest) AS counted
)""".replace("{newest}", _NEWEST),
    # Of the *span* of `ended_lately`: a CTE *bucket* of its buckets, up to that of now. Each is
    # read and added up by itself: to find the bucket of each row takes as long as to read it.
    "buckets": """\
bucket AS (
    SELECT
        each.number,
        to_timestamp(
            each.number::double precision * %(bucket_seconds)s::integer::double precision
        ) AS begins_at,
        LEAST(
            to_timestamp(
                (each.number + 1)::double precision
                * %(bucket_seconds)s::integer::double precision
            ),
            {it}.closed
        ) AS ends_at
    FROM {it}
    CROSS JOIN LATERAL generate_series(
        floor(
            date_part('epoch', {it}.since) / %(bucket_seconds)s::integer::double precision
        )::bigint,
        floor(
            date_part('epoch', statement_timestamp())
            / %(bucket_seconds)s::integer::double precision
        )::bigint
    ) AS each (number)
)""",
    # Of the table of live jobs: a CTE *sized*, behind those that it needs: what
    # `queries.numbers.Size` holds of each queue and of all together, counted now if they are few,
    # else as the newest sample says. A sample that saw few is outdated, perhaps because nobody
    # measures any more: then the oldest jobs are counted.
    "sizes_now": """\
few AS MATERIALIZED (
    SELECT
        NOT EXISTS (
            SELECT FROM {it} AS job ORDER BY job.id OFFSET %(max_jobs)s::bigint LIMIT 1
        ) AS holds
),
newest AS MATERIALIZED (
    SELECT latest.measured_at
    FROM (
        SELECT
            sample.measured_at,
            sample.ready + sample.running + sample.scheduled + sample.retrying
            + sample.blocked AS jobs
        FROM pgjobs_queue_sample AS sample
        WHERE sample.queue_name IS NULL AND sample.measured_at <= statement_timestamp()
        ORDER BY sample.measured_at DESC
        LIMIT 1
    ) AS latest
    WHERE NOT (SELECT few.holds FROM few) AND latest.jobs > %(max_jobs)s::bigint
),
-- What a sample tells better is not read, but for the first: that would take most of the time.
found AS MATERIALIZED (
    SELECT oldest.*
    FROM (
        SELECT
            job.queue_name, job.status, job.hold, job.due_at, job.attempts, job.ready_at,
            job.enqueued_at, job.run_after
        FROM {it} AS job
        ORDER BY job.id
        LIMIT %(max_jobs)s::bigint + 1
    ) AS oldest
    LIMIT CASE WHEN EXISTS (SELECT FROM newest) THEN 1000 END
),
unsampled AS (
    SELECT found.* FROM found WHERE NOT EXISTS (SELECT FROM newest)
),
{unsampled.sizes},
sized AS MATERIALIZED (
    SELECT
        size.queue_name, size.ready, size.running, size.scheduled, size.retrying, size.blocked,
        statement_timestamp() AS measured_at, NOT few.holds AS is_cut
    FROM size
    CROSS JOIN few
    WHERE NOT EXISTS (SELECT FROM newest)
    UNION ALL
    SELECT
        sample.queue_name, sample.ready, sample.running, sample.scheduled, sample.retrying,
        sample.blocked, sample.measured_at, sample.is_cut
    FROM pgjobs_queue_sample AS sample
    WHERE sample.measured_at = (SELECT newest.measured_at FROM newest)
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
    # Count one that was cancelled on its way to another end; NULL. In one line: `{head of ...}`.
    "cancel_noted": "CASE WHEN {it}.status = 'cancelled' THEN"
    " pgjobs_note_cancels_v1(ARRAY[{it}.queue_name], ARRAY[{it}.task_path]) END",
}
