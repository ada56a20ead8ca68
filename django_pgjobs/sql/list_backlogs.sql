-- Tell how many jobs of queues were ready, by time.
-- Parameters: queue_names text[]; sampled double precision (in the last so many seconds)
-- Returns: queue_name; the numbers, from the first sample to the last; the seconds between these two;
--     whether one was cut
-- Locks: none
-- Index: pgjobs_queue_sample_measured
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
