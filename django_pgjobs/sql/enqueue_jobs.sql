-- Insert many jobs of one task in one statement, in the order given.
-- Parameters: task_path, queue_name, backend text; priority integer; metadata text (JSON);
--     run_after timestamptz or NULL; delay double precision (seconds) or NULL; max_attempts integer;
--     timeout double precision (seconds) or NULL; correlation_id text; tags text[]; is_async
--     boolean; args, kwargs text: one JSON text per line, as many lines each
-- Returns: id, one row per job, in the order given
-- Locks: none that another session waits for
-- Index: none
INSERT INTO pgjobs_job ({job.task_columns}, args, kwargs)
SELECT {job.task_values}, line.args::json, line.kwargs::json
FROM unnest(
    string_to_array(%(args)s::text, E'\n'), string_to_array(%(kwargs)s::text, E'\n')
) AS line (args, kwargs)
RETURNING id
