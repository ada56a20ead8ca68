-- Read what the warnings of the Overview are judged by and no other part of it shows.
-- Parameters: recent double precision (failures of the last so many seconds are counted); least
--     integer (failed jobs of a task); max_jobs integer (failed jobs that are looked at); max_rows
--     integer (of each list); queue_names text[] (whose samples are wanted); sampled double precision
--     (those of the last so many seconds); max_live integer (live jobs, the oldest, that are looked
--     at for such as wait in vain, if a limit lets none go); closing double precision (seconds after
--     which a minute is written); long_seconds double precision, ids bigint[], max_runs integer (as
--     list_long_runs.sql has them); names text[], costs integer[], max_lanes, max_keys integer (as
--     list_missing_rates.sql has them); max_next, max_due integer (jobs of each lane, and jobs that
--     become ready next, that are looked at for tasks which no worker knows), within_seconds double
--     precision (in this time), notes text[] (those of jobs that were put off for it);
--     waiting_names text[] (queues of which the job that waits longest is wanted), max_old integer
--     (the oldest live jobs, that are looked at for it and for such as are held)
-- Returns: one row: what live workers take, the sum of their slots and of the jobs in threads that
--     they hold, and whether they were asked to claim nothing, as JSON; tasks of which many jobs
--     failed, as JSON: since when, how many failed and succeeded, both up to the same moment; the
--     warnings that are muted, as JSON; all pauses, also those of schedules, as JSON; how many jobs
--     were ready in each of these queues, by time, as JSON: with the seconds from the first sample to
--     the last, and whether one was cut; how many ready jobs of a queue wait for a rate limit that
--     lets none go, and since when the oldest other one waits or NULL, as JSON; queues and tasks whose
--     jobs wait for a worker that knows the task, as JSON; the job of each queue that waits longest,
--     since when, and whether it has keys, as JSON: none that is paused or waits in vain; how many of
--     the oldest live jobs are held, because a predecessor failed; the rows of list_missing_rates.sql
--     and of list_long_runs.sql, as JSON
-- Locks: none
-- Index: pgjobs_job_running, pgjobs_job_live_pkey, pgjobs_job_by_end, pgjobs_statistic_begin,
--     pgjobs_queue_sample_measured, pgjobs_job_ready, pgjobs_job_ready_lanes, pgjobs_job_due,
--     pgjobs_rate_limit_pkey
WITH RECURSIVE span AS MATERIALIZED (
    SELECT
        date_trunc(
            'minute', statement_timestamp() - make_interval(secs => %(recent)s::double precision),
            'UTC'
        ) AS since,
        {closing.minute_written} AS closed
),
-- What succeeded and is in no statistics yet: many of them are left out, and what failed meanwhile.
newest AS MATERIALIZED (
    SELECT job.task_path
    FROM pgjobs_job_finished AS job
    WHERE
        job.status = 'successful' AND job.finished_at >= {closing.minute_written}
        AND job.finished_at <= statement_timestamp()
    ORDER BY job.finished_at DESC
    LIMIT %(max_jobs)s::integer + 1
),
few AS MATERIALIZED (
    SELECT count(*) <= %(max_jobs)s::integer AS holds FROM newest
),
failing AS MATERIALIZED (
    SELECT recent.task_path, count(*) AS failed
    FROM (
        SELECT job.task_path
        FROM pgjobs_job_finished AS job
        WHERE
            job.status = 'failed' AND job.finished_at >= (SELECT span.since FROM span)
            AND job.finished_at <= statement_timestamp()
            AND (job.finished_at < (SELECT span.closed FROM span) OR (SELECT few.holds FROM few))
        ORDER BY job.finished_at DESC
        LIMIT %(max_jobs)s::integer
    ) AS recent
    GROUP BY recent.task_path
    HAVING count(*) >= %(least)s::integer
    ORDER BY count(*) DESC, recent.task_path
    LIMIT %(max_rows)s::integer
),
ended AS (
    SELECT each.task_path, sum(each.successful) AS successful
    FROM (
        SELECT statistic.task_path, statistic.successful
        FROM pgjobs_statistic AS statistic
        WHERE
            {statistic.is_of_any_period}
            AND statistic.begins_at >= (SELECT span.since FROM span)
            AND statistic.begins_at < (SELECT span.closed FROM span)
            AND statistic.task_path = ANY (ARRAY(SELECT failing.task_path FROM failing))
        UNION ALL
        SELECT newest.task_path, 1 FROM newest WHERE (SELECT few.holds FROM few)
    ) AS each
    GROUP BY each.task_path
),
missing AS MATERIALIZED (
{max_lanes.missing_rates}
),
{max_next.first_jobs},
unknown AS MATERIALIZED (
    {first_job.unknown_tasks}
),
-- Jobs that wait for ever are the oldest by and by.
old_job AS MATERIALIZED (
    SELECT
        job.id, job.backend, job.queue_name, job.task_path, job.concurrency_key, job.lane,
        job.rate_limit_keys, job.rate_cost, job.status, job.due_at, job.hold, job.ready_at,
        job.enqueued_at, job.run_after
    FROM pgjobs_job_live AS job
    ORDER BY job.id
    LIMIT %(max_old)s::integer
)
SELECT
    COALESCE((
        SELECT json_agg(crew)
        FROM (
            SELECT
                worker.backends, worker.queues, worker.excluded_queues, worker.is_quiet,
                sum(worker.slots) AS slots,
                sum((
                    SELECT count(*)
                    FROM pgjobs_job_live AS job
                    WHERE
                        job.status = 'running' AND job.worker_id = worker.id AND NOT job.is_async
                )) AS running
            FROM (
                SELECT
                    live.id, live.backends, live.queues, live.excluded_queues, live.slots,
                    NOT ({live.claims}) AS is_quiet
                FROM pgjobs_worker AS live
                WHERE {live.is_live}
            ) AS worker
            GROUP BY worker.backends, worker.queues, worker.excluded_queues, worker.is_quiet
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
        SELECT json_agg(paused)
        FROM (
            SELECT
                pause.kind, pause.name, pause.reason, pause.paused_by,
                date_part('epoch', {pause.paused_at.in_calendar}) AS paused_at,
                date_part('epoch', {pause.resume_at.or_never}) AS resume_at
            FROM pgjobs_pause AS pause
            WHERE {pause.holds}
            UNION ALL
            SELECT
                'schedule', schedule.name, schedule.pause_reason, schedule.paused_by,
                date_part('epoch', {schedule.paused_at.in_calendar}), NULL
            FROM pgjobs_schedule AS schedule
            WHERE schedule.paused_at IS NOT NULL AND schedule.retired_at IS NULL
            ORDER BY kind, name
            LIMIT %(max_rows)s::integer
        ) AS paused
    ), '[]'),
    COALESCE((
        SELECT json_agg(sampled)
        FROM (
            SELECT
                sample.queue_name, array_agg(sample.ready ORDER BY sample.measured_at) AS ready,
                date_part('epoch', max(sample.measured_at))
                - date_part('epoch', min(sample.measured_at)) AS seconds,
                bool_or(sample.is_cut) AS is_cut
            FROM pgjobs_queue_sample AS sample
            WHERE
                sample.measured_at
                >= statement_timestamp() - make_interval(secs => %(sampled)s::double precision)
                AND sample.measured_at <= statement_timestamp()
                AND sample.queue_name = ANY (%(queue_names)s::text[])
            GROUP BY sample.queue_name
        ) AS sampled
    ), '[]'),
    COALESCE((
        SELECT json_agg(vain)
        FROM (
            SELECT
                judged.queue_name, count(*) FILTER (WHERE judged.is_vain) AS jobs,
                date_part(
                    'epoch', min(judged.waiting_since) FILTER (WHERE NOT judged.is_vain)
                ) AS others_since
            FROM (
                SELECT
                    job.queue_name, {job.waiting_since} AS waiting_since,
                    {job.is_vain} AS is_vain
                FROM (
                    SELECT
                        live.queue_name, live.status, live.due_at, live.hold, live.ready_at,
                        live.enqueued_at, live.run_after, live.rate_limit_keys, live.rate_cost
                    FROM pgjobs_job_live AS live
                    ORDER BY live.id
                    LIMIT (
                        SELECT CASE WHEN count(*) > 0 THEN %(max_live)s::integer ELSE 0 END
                        FROM missing
                    )
                ) AS job
                WHERE {job.is_ready}
            ) AS judged
            GROUP BY judged.queue_name
            HAVING count(*) FILTER (WHERE judged.is_vain) > 0
        ) AS vain
    ), '[]'),
    COALESCE((
        SELECT json_agg(json_build_array(unknown.queue_name, unknown.task_path))
        FROM unknown
    ), '[]'),
    COALESCE((
        SELECT
            json_agg(
                json_build_array(
                    oldest.queue_name, oldest.id, date_part('epoch', oldest.since), oldest.has_keys
                )
            )
        FROM ({first_job.oldest_jobs}) AS oldest
    ), '[]'),
    (
        SELECT count(*)
        FROM old_job
        WHERE old_job.status = 'ready' AND old_job.hold = 'predecessor failed'
    ),
    COALESCE((
        SELECT
            json_agg(
                json_build_array(
                    missing.key, missing.has_jobs, missing.limit_name, missing.burst, missing.cost
                )
            )
        FROM missing
    ), '[]'),
    COALESCE((
        SELECT json_agg(run)
        FROM (
            SELECT
                long.id, long.task_path, long.queue_name, long.worker_id, long.worker_name,
                long.seconds, long.progress, date_part('epoch', long.now) AS now
            FROM ({long_seconds.long_runs}) AS long
        ) AS run
    ), '[]')
