"""An installation of any size, by a few statements that do not pass through the package."""

from __future__ import annotations

from typing import Any

from django_pgjobs.queries import statistics
from tests.factories import ago, make_worker

QUEUES = 7
KEYS = 40
# A limit whose tokens come back within a day: none does while a test runs.
TOKENS, PERIOD = 40, 86_400
RATE_KEYS = 30
USED_KEYS = 10
OCCURRENCES = 30
LIVE_WORKERS: tuple[dict[str, Any], ...] = (
    {"slots": 8, "version": "1"},
    {"slots": 16, "version": "1", "queues": ["queue-0", "queue-1"]},
    {"slots": 4, "version": "1", "excluded_queues": ["queue-2"]},
    {"slots": 2, "version": "2", "quiet_requested_at": "now"},
)

# A third has not finished: most of it is ready, some runs, waits for its time or a key, or is
# blocked.
# The first are the oldest.
LIVE = """
INSERT INTO pgjobs_job (
    task_path, queue_name, status, worker_id, claim, attempts, run_after, due_at, hold,
    concurrency_key, rate_limit_keys, batch_id, enqueued_at, started_at, last_attempted_at
)
SELECT
    'shop.tasks.' || n %% 11, 'queue-' || n %% %(queues)s,
    CASE kind WHEN 'running' THEN 'running' ELSE 'ready' END,
    CASE kind WHEN 'running' THEN (%(workers)s::bigint[])[1 + n / 250 %% 4] END,
    (kind = 'running')::integer, (kind IN ('running', 'retrying'))::integer,
    CASE WHEN kind IN ('scheduled', 'retrying') THEN now() + interval '1 day' END,
    CASE WHEN kind IN ('scheduled', 'retrying') THEN now() + interval '1 day' END,
    CASE kind WHEN 'blocked' THEN 'dependencies' END,
    CASE WHEN kind = 'keyed' OR kind = 'running' AND (n %% 500 = 0 OR n = 2)
        THEN 'shop:' || n / 100 %% %(keys)s END,
    CASE kind
        WHEN 'limited' THEN 'mail:' || (n / 20 + n / 200) %% %(rate_keys)s
        WHEN 'in vain' THEN 'gone:' || n / 1000 %% 3
    END,
    CASE WHEN n %% 100 = 23 THEN 7 * (1 + n / 100 %% (%(batches)s::integer / 7)) END,
    now() - interval '5 hours' * (1 - n / %(jobs)s::double precision),
    CASE kind WHEN 'running' THEN begun END, CASE kind WHEN 'running' THEN begun END
FROM generate_series(1, %(jobs)s::integer / 3) AS n
CROSS JOIN LATERAL (
    SELECT
        CASE
            WHEN n %% 250 = 0 OR n <= 4 THEN 'running'
            WHEN n %% 20 = 1 THEN 'scheduled'
            WHEN n %% 20 = 11 THEN 'retrying'
            WHEN n %% 100 = 3 THEN 'blocked'
            WHEN n %% 100 = 7 THEN 'keyed'
            WHEN n %% 200 = 9 OR n < 60 AND n %% 20 = 9 THEN 'limited'
            WHEN n %% 1000 = 19 THEN 'in vain'
            ELSE 'ready'
        END AS kind,
        -- Who began later may have run for longer: it was put off.
        now() - interval '1 second' * (n * 37 %% 7200) AS begun
) AS each
"""
# Two thirds ended within the last 20 days, half of them lately, but for the last two minutes. No
# two of them failed at the same moment.
ENDED = """
INSERT INTO pgjobs_job (
    task_path, queue_name, status, attempts, errors, batch_id, enqueued_at, last_attempted_at,
    finished_at
)
SELECT
    'shop.tasks.' || n %% 11, 'queue-' || n %% %(queues)s, kind, 1,
    CASE kind
        WHEN 'failed' THEN jsonb_build_array(jsonb_build_object(
            'attempt', 1, 'exception_class', 'shop.errors.Error' || n / 13 %% 7,
            'message', format('Read timed out after %%s s', n), 'traceback', ''
        ))
        ELSE '[]'
    END,
    CASE WHEN n %% 40 = 5 THEN 1 + n / 40 %% %(batches)s::integer END,
    moment - interval '1 millisecond' * (n %% 5000 + n %% 700 + 0.8),
    moment - interval '1 millisecond' * (n %% 5000 + 0.3),
    moment
FROM generate_series(1, %(jobs)s::integer / 3 * 2) AS n
CROSS JOIN LATERAL (
    SELECT
        CASE WHEN n %% 13 = 0 THEN 'failed' WHEN n %% 17 = 0 THEN 'cancelled' ELSE 'successful' END
        AS kind,
        now() - interval '2 minutes' - interval '1 microsecond' * n - interval '1 minute'
        * CASE WHEN n %% 2 = 0 THEN n * 67::bigint %% 28000 ELSE n %% 400 END AS moment
) AS each
"""
# What processes would have written of them, two for each minute: how long attempts of the last two
# hours took, of the others only that there were some.
PARTS = """
INSERT INTO pgjobs_statistic (
    begins_at, queue_name, task_path, successful, failed, cancelled, ran, enqueued, retried, lost,
    waited, waits, runs
)
SELECT
    job.minute, job.queue_name, job.task_path,
    count(*) FILTER (WHERE job.status = 'successful'),
    count(*) FILTER (WHERE job.status = 'failed'),
    count(*) FILTER (WHERE job.status = 'cancelled'),
    sum(job.ran), count(*), count(*) * 2, count(*) * 3, count(*) * 0.25,
    {waits}, {runs}
FROM (
    SELECT
        id, queue_name, task_path, status, date_trunc('minute', finished_at) AS minute,
        EXTRACT(EPOCH FROM finished_at - last_attempted_at) AS ran,
        EXTRACT(EPOCH FROM last_attempted_at - enqueued_at) AS waited
    FROM pgjobs_job_finished
    WHERE finished_at {when} now() - interval '2 hours'
) AS job
GROUP BY job.minute, job.queue_name, job.task_path, job.id % 2
"""
# The n-th class ends at so many milliseconds: 1, 2, 4, ... The attempts that were tried again took
# as long as the last one.
CLASSES = """ARRAY(
    SELECT {times} * count(*) FILTER (
        WHERE took * 1000 < 2 ^ place AND (place = 0 OR took * 1000 >= 2 ^ (place - 1))
    )
    FROM generate_series(0, 14) AS place
    CROSS JOIN unnest(array_agg(job.{name})) AS took
    GROUP BY place
    ORDER BY place
)"""
# Of three batches one is below the one before it; of seven one still gets jobs.
BATCHES = """
INSERT INTO pgjobs_batch (
    id, root_id, parent_id, flow_id, name, sealed_at, completed_at, tree_completed_at, jobs,
    successful, failed, cancelled
)
SELECT
    n, CASE n %% 3 WHEN 0 THEN n - 1 ELSE n END, CASE n %% 3 WHEN 0 THEN n - 1 END, n,
    'flow ' || n %% 10, ended, ended, ended,
    COALESCE(job.jobs, 0), COALESCE(job.successful, 0), COALESCE(job.failed, 0),
    COALESCE(job.cancelled, 0)
FROM generate_series(1, %(batches)s::integer) AS n
CROSS JOIN LATERAL (SELECT CASE WHEN n %% 7 > 0 THEN now() END AS ended) AS each
LEFT JOIN (
    SELECT
        batch_id, count(*) AS jobs, count(*) FILTER (WHERE status = 'successful') AS successful,
        count(*) FILTER (WHERE status = 'failed') AS failed,
        count(*) FILTER (WHERE status = 'cancelled') AS cancelled
    FROM pgjobs_job_finished
    WHERE batch_id IS NOT NULL
    GROUP BY batch_id
) AS job ON job.batch_id = n
"""
CONTROLS = """
INSERT INTO pgjobs_concurrency_limit (pattern, max_running, weight, note)
VALUES ('shop:1*', 3, 1, ''), ('shop:*', 5, 1, '');
INSERT INTO pgjobs_rate_limit (name, count, period, burst, note)
VALUES ('mail', {tokens}, {period}, {tokens}, '');
INSERT INTO pgjobs_rate_state (key, next_free, taken_at, taken_since)
SELECT
    'mail:' || n, now() - interval '1 minute' + interval '1 second' * {period},
    ARRAY[now() - interval '1 minute'], ARRAY[4 * n + 4]
FROM generate_series(0, {used} - 1) AS n;
INSERT INTO pgjobs_queue_settings (queue_name, max_running, boost, note)
VALUES ('queue-1', 5, 10, ''), ('queue-2', 100000, 0, '');
INSERT INTO pgjobs_pause (kind, name, reason, paused_by)
VALUES ('queue', 'queue-4', 'a bug', 'anna'), ('key', 'shop:7', 'a bug', 'anna');
"""
SCHEDULES = """
INSERT INTO pgjobs_schedule (name, task_path, every, next_at, last_at, error) VALUES
    ('broken', 'shop.tasks.1', 3600, now() + interval '1 day', now(), 'no such task'),
    ('failing', 'shop.tasks.2', 3600, now() + interval '1 day', now(), ''),
    ('late', 'shop.tasks.3', 3600, now() - interval '10 minutes', now(), '');
INSERT INTO pgjobs_job (
    task_path, queue_name, status, schedule, enqueued_at, last_attempted_at, finished_at
)
SELECT
    schedule.task_path, 'queue-0',
    CASE schedule.name WHEN 'failing' THEN 'failed' ELSE 'cancelled' END, schedule.name,
    now() - interval '3 hours', now() - interval '3 hours', now() - interval '3 hours'
FROM pgjobs_schedule AS schedule;
UPDATE pgjobs_schedule AS schedule
SET last_job_id = (SELECT job.id FROM pgjobs_job AS job WHERE job.schedule = schedule.name);
INSERT INTO pgjobs_occurrence (schedule, scheduled_for, outcome, job_id)
SELECT
    schedule.name, now() - interval '1 hour' * n,
    (ARRAY['enqueued', 'missed', 'failed', 'skipped', 'enqueued'])[1 + n % 5],
    CASE n WHEN 5 THEN schedule.last_job_id END
FROM pgjobs_schedule AS schedule CROSS JOIN generate_series(1, {occurrences}) AS n;
"""
SAMPLES = """
INSERT INTO pgjobs_queue_sample (measured_at, queue_name, ready)
SELECT now() - interval '1 minute' * n, queue_name, 100 * n
FROM generate_series(1, 3) AS n
CROSS JOIN (VALUES (NULL), ('queue-0')) AS of_queue (queue_name)
"""


def make_workers() -> list[int]:
    """Make live workers, and one that is lost; return the ids of those that hold jobs."""
    live = [
        make_worker(f"web:{number}", lease_seconds=86_400_000.0, **columns)
        for number, columns in enumerate(LIVE_WORKERS)
    ]
    make_worker("gone:4", slots=32, lease_seconds=-60)
    for name, hours in (("ended:5", 2), ("forgotten:6", 48)):
        make_worker(name, slots=64, ended_at=ago(3_600 * hours))
    return live


def fill(cursor: Any, jobs: int) -> None:
    """Make so many jobs and all that is beside them."""
    cursor.execute("SET LOCAL jit = off")
    shape = {
        "jobs": jobs,
        "queues": QUEUES,
        "keys": KEYS,
        "rate_keys": RATE_KEYS,
        "batches": max(14, jobs // 300),
        "workers": make_workers(),
    }
    cursor.execute(ENDED, shape)
    cursor.execute(BATCHES, shape)
    cursor.execute(LIVE, shape)
    cursor.execute(CONTROLS.format(tokens=TOKENS, period=PERIOD, used=USED_KEYS))
    cursor.execute(SCHEDULES.format(occurrences=OCCURRENCES))
    exact = {
        "waits": CLASSES.format(name="waited", times=1),
        "runs": CLASSES.format(name="ran", times=3),
    }
    cursor.execute(PARTS.format(when=">=", **exact))
    some = {"waits": "ARRAY[0, count(*)]", "runs": "ARRAY[count(*), 0, 1]"}
    cursor.execute(PARTS.format(when="<", **some))
    cursor.execute(SAMPLES)
    cursor.execute("ANALYZE pgjobs_job, pgjobs_statistic, pgjobs_batch")
    statistics.measure_queues(cursor)
