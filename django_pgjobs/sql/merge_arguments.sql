-- Merge the arguments of two enqueues as enqueue_or_merge_jobs does.
-- Parameters: former, latter text (JSON objects); merge text ('union', 'append' or 'last')
-- Returns: the merged JSON text
-- Locks: none
-- Index: none
SELECT pgjobs_merge_v1(%(former)s::json, %(latter)s::json, %(merge)s::text)::text
