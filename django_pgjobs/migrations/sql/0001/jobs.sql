-- The jobs, in two partitions: those that wait or run, and those that have finished.
--
-- The hot indexes are on the live partition, so they stay small whatever has finished. A finish
-- is an UPDATE of the status, which moves the row.

CREATE SEQUENCE pgjobs_job_id_seq AS bigint;

CREATE TABLE pgjobs_job (
    id                    bigint               NOT NULL DEFAULT nextval('pgjobs_job_id_seq'),
    claim                 pgjobs_claim         NOT NULL DEFAULT 0,
    worker_id             bigint,
    enqueued_at           pgjobs_time          NOT NULL DEFAULT statement_timestamp(),
    run_after             pgjobs_time,
    due_at                pgjobs_time,
    ready_at              pgjobs_time,
    started_at            pgjobs_time,
    last_attempted_at     pgjobs_time,
    finished_at           pgjobs_time,
    cancel_requested_at   pgjobs_time,
    timeout               pgjobs_timeout,
    attempts              pgjobs_count         NOT NULL DEFAULT 0,
    max_attempts          pgjobs_max_attempts,
    lost_count            pgjobs_count         NOT NULL DEFAULT 0,
    priority              pgjobs_priority      NOT NULL DEFAULT 0,
    status                text COLLATE "C"     NOT NULL DEFAULT 'ready',
    queue_name            pgjobs_queue_name    NOT NULL DEFAULT 'default',
    task_path             pgjobs_task_path     NOT NULL,
    backend               pgjobs_backend       NOT NULL DEFAULT 'default',
    args                  pgjobs_payload       NOT NULL DEFAULT '[]',
    kwargs                pgjobs_payload       NOT NULL DEFAULT '{}',
    correlation_id        pgjobs_correlation_id NOT NULL DEFAULT '',
    tags                  pgjobs_tags          NOT NULL DEFAULT '{}',
    metadata              pgjobs_payload       NOT NULL DEFAULT '{}',
    errors                pgjobs_errors        NOT NULL DEFAULT '[]',
    result                json,
    progress              json,
    worker_ids            pgjobs_texts         NOT NULL DEFAULT '{}',
    note                  text                 NOT NULL DEFAULT '',
    hold                  pgjobs_hold,
    waits_for             pgjobs_count         NOT NULL DEFAULT 0,
    concurrency_key       pgjobs_concurrency_key,
    concurrency_limit     pgjobs_concurrency_limit_of_job,
    skips_waiting         boolean              NOT NULL DEFAULT FALSE,
    rate_limit_keys       pgjobs_rate_limit_keys,
    rate_cost             pgjobs_rate_cost     NOT NULL DEFAULT 1,
    unique_key            pgjobs_unique_key,
    unique_until_claimed  boolean              NOT NULL DEFAULT FALSE,
    merged_count          pgjobs_count         NOT NULL DEFAULT 0,
    subject               pgjobs_subject,
    schedule              pgjobs_schedule_name,
    scheduled_for         pgjobs_time,
    -- Written by the trigger in lane.sql and by nobody else.
    lane                  text COLLATE "C",
    max_losses            pgjobs_max_losses,
    interruptions         pgjobs_count         NOT NULL DEFAULT 0,
    expires_at            pgjobs_time,
    on_failure            pgjobs_on_failure,
    -- Has the row what its task declares? Else the worker that claims it gives it that.
    is_declared           boolean              NOT NULL DEFAULT FALSE,
    batch_id              bigint,
    -- The job whose result it got; 0: it was made for whole batches.
    source_id             bigint,
    -- Does it run on an event loop? A hint for claims: the task decides.
    is_async              boolean              NOT NULL DEFAULT FALSE,
    -- With the status, because a key of a partitioned table has to name its partition.
    PRIMARY KEY (id, status)
) PARTITION BY LIST (status);

ALTER SEQUENCE pgjobs_job_id_seq OWNED BY pgjobs_job.id;

-- Every job is inserted here, updated and moved away: vacuum comes early.
CREATE TABLE pgjobs_job_live PARTITION OF pgjobs_job
    FOR VALUES IN ('ready', 'running')
    WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
          autovacuum_vacuum_insert_scale_factor = 0.1);

CREATE TABLE pgjobs_job_finished PARTITION OF pgjobs_job
    FOR VALUES IN ('successful', 'failed', 'cancelled');

-- What may be claimed now, without keys and with. Minus the priority, so that a place in the
-- index can be compared as a row.
CREATE INDEX pgjobs_job_ready
    ON pgjobs_job_live (backend, queue_name, is_async, (-priority), id)
    WHERE status = 'ready' AND due_at IS NULL AND hold IS NULL AND lane IS NULL;
CREATE INDEX pgjobs_job_ready_lanes
    ON pgjobs_job_live (backend, queue_name, is_async, (-priority), lane, id)
    WHERE status = 'ready' AND due_at IS NULL AND hold IS NULL AND lane IS NOT NULL;
-- The oldest job of a key that is to start; one that was given back to wait keeps its place.
CREATE INDEX pgjobs_job_key_order ON pgjobs_job_live (concurrency_key, id)
    WHERE status = 'ready' AND concurrency_key IS NOT NULL AND hold IS NULL
        AND (due_at IS NULL OR due_at IS DISTINCT FROM run_after);
-- The running jobs of a key. Not "status = 'running'": the planner took the index of all running
-- jobs instead, where both had been empty when a worker's statement was planned.
CREATE INDEX pgjobs_job_key_running ON pgjobs_job_live (concurrency_key)
    WHERE status <> 'ready' AND concurrency_key IS NOT NULL;
-- What becomes ready by itself.
CREATE INDEX pgjobs_job_due ON pgjobs_job_live (due_at)
    WHERE status = 'ready' AND due_at IS NOT NULL;
-- What is too late to begin.
CREATE INDEX pgjobs_job_expiring ON pgjobs_job_live (expires_at)
    WHERE status = 'ready' AND expires_at IS NOT NULL;
-- What a worker holds, and what of it is to be cancelled.
CREATE INDEX pgjobs_job_running ON pgjobs_job_live (worker_id, id)
    WHERE status = 'running';
CREATE INDEX pgjobs_job_cancelling ON pgjobs_job_live (worker_id)
    WHERE status = 'running' AND cancel_requested_at IS NOT NULL;
-- One live job of a task has a unique key, until its claim or until its end.
CREATE UNIQUE INDEX pgjobs_job_unique ON pgjobs_job_live (unique_key, task_path)
    WHERE unique_key IS NOT NULL AND (claim = 0 OR NOT unique_until_claimed);
-- The only index on finished jobs that each finish pays for: pruning and the admin's tabs.
CREATE INDEX pgjobs_job_by_end ON pgjobs_job_finished (status, finished_at);
-- The jobs about a row of the project.
CREATE INDEX pgjobs_job_live_subject ON pgjobs_job_live (subject, id) WHERE subject IS NOT NULL;
CREATE INDEX pgjobs_job_finished_subject ON pgjobs_job_finished (subject, id)
    WHERE subject IS NOT NULL;
-- The jobs of a batch: those that wait, which a claim leaves, and the results in order.
CREATE INDEX pgjobs_job_live_batch ON pgjobs_job_live (batch_id, id)
    WHERE status = 'ready' AND batch_id IS NOT NULL;
CREATE INDEX pgjobs_job_finished_batch ON pgjobs_job_finished (batch_id, status, id)
    WHERE batch_id IS NOT NULL;
-- The jobs of a schedule.
CREATE INDEX pgjobs_job_live_schedule ON pgjobs_job_live (schedule, id) WHERE schedule IS NOT NULL;
CREATE INDEX pgjobs_job_finished_schedule ON pgjobs_job_finished (schedule, id)
    WHERE schedule IS NOT NULL;
