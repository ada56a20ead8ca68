-- Tell how many jobs of a queue had not finished, by time.
-- Parameters: seconds double precision (how long ago at most); queue_names text[] (NULL: all together)
-- Returns: queue_name, ready, running, scheduled, retrying, held, waiting_since, measured_at, is_cut
-- Locks: none
-- Index: pgjobs_queue_sample_measured
SELECT
    sample.queue_name, sample.ready, sample.running, sample.scheduled, sample.retrying,
    sample.held, sample.waiting_since, sample.measured_at, sample.is_cut
FROM pgjobs_queue_sample AS sample
WHERE
    sample.measured_at
    >= statement_timestamp() - make_interval(secs => %(seconds)s::double precision)
    AND sample.measured_at <= statement_timestamp()
    AND CASE
        WHEN %(queue_names)s::text[] IS NULL THEN sample.queue_name IS NULL
        ELSE sample.queue_name = ANY (%(queue_names)s::text[])
    END
ORDER BY sample.measured_at
