-- Read what the warnings of the Overview are judged by and no other part of it shows.
-- Parameters: recent double precision (failures of the last so many seconds are counted); least
--     integer (failed jobs of a task); max_jobs integer (failed jobs that are looked at); max_rows
--     integer (of each list); queue_names text[] (whose samples are wanted); sampled double precision
--     (those of the last so many seconds)
-- Returns: one row: what the live workers that claim jobs take, the sum of their slots and of the
--     jobs in threads that they hold, as JSON; tasks of which many jobs failed, as JSON: since when,
--     how many failed and succeeded; the warnings that are muted, as JSON; how many jobs were ready
--     in these queues, by time, as JSON
-- Locks: none
-- Index: pgjobs_job_running, pgjobs_job_by_end, pgjobs_statistic_begin, pgjobs_queue_sample_measured
WITH span AS MATERIALIZED (
    SELECT
        date_trunc(
            'second', statement_timestamp() - make_interval(secs => %(recent)s::double precision)
        ) AS since
),
failing AS MATERIALIZED (
    SELECT newest.task_path, count(*) AS failed
    FROM (
        SELECT job.task_path
        FROM pgjobs_job_finished AS job
        WHERE
            job.status = 'failed' AND job.finished_at >= (SELECT span.since FROM span)
            AND job.finished_at <= statement_timestamp()
        ORDER BY job.finished_at DESC
        LIMIT %(max_jobs)s::integer
    ) AS newest
    GROUP BY newest.task_path
    HAVING count(*) >= %(least)s::integer
    ORDER BY count(*) DESC, newest.task_path
    LIMIT %(max_rows)s::integer
),
ended AS (
    SELECT statistic.task_path, sum(statistic.successful) AS successful
    FROM pgjobs_statistic AS statistic
    WHERE
        statistic.period = ANY ('{part,minute,quarter,hour,day}')
        AND statistic.begins_at >= (SELECT span.since FROM span)
        AND statistic.task_path = ANY (ARRAY(SELECT failing.task_path FROM failing))
    GROUP BY statistic.task_path
)
SELECT
    COALESCE((
        SELECT json_agg(crew)
        FROM (
            SELECT
                worker.backends, worker.queues, worker.excluded_queues,
                sum(worker.slots) AS slots,
                sum((
                    SELECT count(*)
                    FROM pgjobs_job_live AS job
                    WHERE
                        job.status = 'running' AND job.worker_id = worker.id AND NOT job.is_async
                )) AS running
            FROM pgjobs_worker AS worker
            WHERE {worker.claims}
            GROUP BY worker.backends, worker.queues, worker.excluded_queues
            LIMIT %(max_rows)s::integer
        ) AS crew
    ), '[]'),
    COALESCE((
        SELECT json_agg(task)
        FROM (
            SELECT
                failing.task_path, date_part('epoch', span.since) AS since, failing.failed,
                COALESCE(ended.successful, 0) AS successful
            FROM failing
            CROSS JOIN span
            LEFT JOIN ended ON ended.task_path = failing.task_path
            ORDER BY failing.failed DESC, failing.task_path
        ) AS task
    ), '[]'),
    COALESCE((
        SELECT json_agg(muted)
        FROM (
            SELECT
                mute.kind, mute.subject, mute.reason, mute.muted_by,
                date_part('epoch', {mute.until.in_calendar}) AS until
            FROM pgjobs_mute AS mute
            WHERE mute.until > statement_timestamp()
            ORDER BY mute.id DESC
            LIMIT %(max_rows)s::integer
        ) AS muted
    ), '[]'),
    COALESCE((
        SELECT json_agg(sampled)
        FROM (
            SELECT
                sample.queue_name, sample.ready, sample.is_cut,
                date_part('epoch', sample.measured_at) AS measured_at
            FROM pgjobs_queue_sample AS sample
            WHERE
                sample.measured_at
                >= statement_timestamp() - make_interval(secs => %(sampled)s::double precision)
                AND sample.measured_at <= statement_timestamp()
                AND sample.queue_name = ANY (%(queue_names)s::text[])
            ORDER BY sample.measured_at
        ) AS sampled
    ), '[]')
