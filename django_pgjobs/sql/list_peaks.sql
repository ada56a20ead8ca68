-- Tell how many jobs of each queue were ready at most, by steps of time.
--
-- Steps are whole multiples of their length since 1970.
-- Parameters: seconds double precision (how long ago at most); step_seconds integer; queue_names text[]
-- Returns: queue_name; number of the step; ready jobs; in order of both
-- Locks: none
-- Index: pgjobs_queue_sample_measured
SELECT
    sample.queue_name,
    floor(
        date_part('epoch', sample.measured_at) / %(step_seconds)s::integer::double precision
    )::bigint AS step,
    max(sample.ready)
FROM pgjobs_queue_sample AS sample
WHERE
    sample.measured_at
    >= statement_timestamp() - make_interval(secs => %(seconds)s::double precision)
    AND sample.measured_at <= statement_timestamp()
    AND sample.queue_name = ANY (%(queue_names)s::text[])
GROUP BY sample.queue_name, step
ORDER BY sample.queue_name, step
