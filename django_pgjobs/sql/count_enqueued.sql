-- Count the jobs that came in up to the newest sample that has settled, by minute, queue and task: by
-- now the transactions that inserted them have ended, unless they take longer than that. The sample
-- notes up to where was counted, and the next count begins there; who takes that note away counts, so
-- that of two at a time one does.
-- Parameters: settling double precision (how many seconds old a sample is that has settled); max_jobs
--     integer (how many are looked at; the next count goes on); max_names integer (queues and tasks
--     of a minute that are told apart, those with the most jobs); others text (what the queue and
--     task of the others are called)
-- Returns: nothing
-- Locks: the sample with the note, then the one that gets it
-- Index: pgjobs_job_live_pkey, pgjobs_job_finished_pkey, pgjobs_queue_sample_pkey,
--     pgjobs_queue_sample_counted
WITH noted AS MATERIALIZED (
    SELECT sample.id, sample.counted_job_id
    FROM pgjobs_queue_sample AS sample
    WHERE sample.counted_job_id IS NOT NULL
    ORDER BY sample.counted_job_id DESC
    LIMIT 1
),
goal AS MATERIALIZED (
    SELECT sample.id, sample.last_job_id
    FROM pgjobs_queue_sample AS sample
    WHERE
        sample.queue_name IS NULL
        -- One of the future was taken before the clock was set back.
        AND sample.measured_at NOT BETWEEN
            statement_timestamp() - make_interval(secs => %(settling)s::double precision)
            AND statement_timestamp()
    -- Not by time: where the clock was set back, that would lead to samples, and to jobs, of before.
    ORDER BY sample.id DESC
    LIMIT 1
),
job AS MATERIALIZED (
    SELECT each.id, each.enqueued_at, each.queue_name, each.task_path
    FROM (
        (
            SELECT live.id, live.enqueued_at, live.queue_name, live.task_path
            FROM pgjobs_job_live AS live
            WHERE
                live.id > (SELECT noted.counted_job_id FROM noted)
                AND live.id <= (SELECT goal.last_job_id FROM goal)
            ORDER BY live.id
            LIMIT %(max_jobs)s::bigint
        )
        UNION ALL
        (
            SELECT ended.id, ended.enqueued_at, ended.queue_name, ended.task_path
            FROM pgjobs_job_finished AS ended
            WHERE
                ended.id > (SELECT noted.counted_job_id FROM noted)
                AND ended.id <= (SELECT goal.last_job_id FROM goal)
            ORDER BY ended.id
            LIMIT %(max_jobs)s::bigint
        )
    ) AS each
    ORDER BY each.id
    LIMIT %(max_jobs)s::bigint
),
taken AS (
    UPDATE pgjobs_queue_sample AS sample
    SET counted_job_id = NULL
    FROM noted
    CROSS JOIN goal
    WHERE
        sample.id = noted.id AND sample.counted_job_id = noted.counted_job_id AND goal.id > noted.id
    RETURNING sample.id
),
given AS (
    UPDATE pgjobs_queue_sample AS sample
    SET
        counted_job_id = CASE
            WHEN (SELECT count(*) FROM job) < %(max_jobs)s::bigint THEN goal.last_job_id
            ELSE (SELECT max(job.id) FROM job)
        END
    FROM goal
    WHERE sample.id = goal.id AND EXISTS (SELECT FROM taken)
    RETURNING sample.id
),
named AS (
    SELECT
        date_trunc(
            'minute', LEAST(GREATEST(job.enqueued_at, now.at - interval '1 day'), now.at), 'UTC'
        ) AS minute,
        job.queue_name, job.task_path, count(*) AS jobs
    FROM job
    CROSS JOIN (SELECT statement_timestamp() AS at) AS now
    WHERE EXISTS (SELECT FROM given)
    GROUP BY minute, job.queue_name, job.task_path
),
ranked AS (
    SELECT
        named.minute, named.queue_name, named.task_path, named.jobs,
        row_number() OVER (
            PARTITION BY named.minute
            ORDER BY named.jobs DESC, named.queue_name, named.task_path
        ) <= %(max_names)s::bigint AS is_told
    FROM named
)
INSERT INTO pgjobs_statistic (begins_at, queue_name, task_path, enqueued)
SELECT
    ranked.minute,
    CASE WHEN ranked.is_told THEN ranked.queue_name ELSE %(others)s::text END AS queue,
    CASE WHEN ranked.is_told THEN ranked.task_path ELSE %(others)s::text END AS task,
    sum(ranked.jobs)::bigint
FROM ranked
GROUP BY ranked.minute, queue, task
