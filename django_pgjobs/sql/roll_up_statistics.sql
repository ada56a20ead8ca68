-- Add up rows of one period that are old enough to rows of the next longer one.
-- Parameters: period, into text; step double precision (seconds of the longer period); keep double
--     precision (seconds that they stay at least); max_rows integer
-- Returns: how many rows were added up
-- Locks: those rows
-- Index: pgjobs_statistic_begin, pgjobs_statistic_pkey
WITH old AS MATERIALIZED (
    SELECT statistic.id
    FROM pgjobs_statistic AS statistic
    WHERE
        statistic.period = %(period)s::text
        AND statistic.begins_at < to_timestamp(
            floor(
                (date_part('epoch', statement_timestamp()) - %(keep)s::double precision)
                / %(step)s::double precision
            ) * %(step)s::double precision
        )
    ORDER BY statistic.begins_at
    LIMIT %(max_rows)s::integer
),
gone AS (
    DELETE FROM pgjobs_statistic AS statistic
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
    INSERT INTO pgjobs_statistic (
        period, begins_at, queue_name, task_path, enqueued, successful, failed, cancelled,
        retried, lost, waited, ran, waits, runs
    )
    SELECT
        %(into)s::text, added.begins_at, added.queue_name, added.task_path, added.enqueued,
        added.successful, added.failed, added.cancelled, added.retried, added.lost,
        added.waited, added.ran, COALESCE(classes.waits, '{}'), COALESCE(classes.runs, '{}')
    FROM added
    LEFT JOIN classes
        ON classes.begins_at = added.begins_at AND classes.queue_name = added.queue_name
        AND classes.task_path = added.task_path
)
SELECT count(*) FROM gone
