"""A large installation, made by a few statements: a month of finished jobs, and many waiting."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db import connection

from django_pgjobs.models import ConcurrencyLimit, Pause, QueueSettings, RateLimit
from django_pgjobs.queries.statistics import measure_queues
from tests.factories import make_worker

QUEUES = 10
TASKS = 20
RUNNING = 40
TREES = 20_000
PARTS = 2_000

# Later ids ended later, give or take some minutes. Of 20 jobs one failed, one was cancelled.
FINISHED = """
INSERT INTO pgjobs_job_finished (
    status, task_path, queue_name, args, kwargs, tags, attempts, max_attempts, worker_id,
    worker_ids, errors, result, subject, correlation_id, batch_id, enqueued_at, started_at,
    last_attempted_at, finished_at
)
SELECT
    kind.status, 'shop.tasks.number_' || kind.task, 'queue_' || kind.task %% %(queues)s,
    format('[%%s]', number)::json,
    format('{"customer": "c%%s", "api_token": "s3cret"}', number %% 5000)::json,
    CASE WHEN number %% 4 = 0 THEN ARRAY['nightly'] ELSE '{}' END,
    CASE kind.status WHEN 'failed' THEN 3 ELSE 1 END, 3,
    (%(workers)s::bigint[])[1 + number %% 4], ARRAY['web-' || number %% 4],
    CASE kind.status
        WHEN 'failed' THEN jsonb_build_array(jsonb_build_object(
            'attempt', 3,
            'exception_class', 'shop.errors.Error' || number / 20 %% 7,
            'message', format('Read timed out after %%s s: host ''api-%%s''', number %% 60, number),
            'traceback', repeat(E'  File "/srv/shop/tasks.py", line 41, in send\\n', 20)
        ))
        ELSE '[]'
    END,
    CASE kind.status WHEN 'successful' THEN '{"sent": 3}'::json END,
    CASE WHEN number %% 10 = 1 THEN 'shop.order:' || number / 100 END,
    'request-' || number,
    -- A large batch, and small ones.
    CASE WHEN number %% 8 = 3 THEN 1 WHEN number %% 40 = 5 THEN 2 + number / 400 END,
    moment.at - interval '3 seconds', moment.at - interval '2 seconds',
    moment.at - interval '2 seconds', moment.at
FROM generate_series(1, %(jobs)s) AS number
CROSS JOIN LATERAL (
    SELECT
        CASE number %% 20 WHEN 0 THEN 'failed' WHEN 10 THEN 'cancelled' ELSE 'successful' END
        AS status,
        (number + number / 20) %% %(tasks)s AS task
) AS kind
CROSS JOIN LATERAL (
    SELECT
        statement_timestamp()
        - interval '30 days' * ((%(jobs)s - number)::double precision / %(jobs)s)
        - interval '1 second' * (number * 37 %% 300) AS at
) AS moment
"""

# Half of those that wait are in one queue. Of 100 jobs 60 have no key, 15 have keys, 10 are
# scheduled, 10 retry and 5 wait for others.
WAITING = """
INSERT INTO pgjobs_job_live (
    status, task_path, queue_name, priority, args, kwargs, attempts, max_attempts, errors, hold,
    waits_for, concurrency_key, rate_limit_keys, run_after, due_at, subject, enqueued_at
)
SELECT
    'ready', 'shop.tasks.number_' || number %% %(tasks)s,
    'queue_' || CASE WHEN number %% 2 = 0 THEN 0 ELSE number / 2 %% %(queues)s END,
    CASE number %% 9 WHEN 0 THEN 10 ELSE 0 END,
    format('[%%s]', number)::json,
    format('{"customer": "c%%s", "password": "hunter2"}', number %% 5000)::json,
    CASE kind.name WHEN 'retrying' THEN 1 ELSE 0 END, 5,
    CASE kind.name
        WHEN 'retrying' THEN jsonb_build_array(jsonb_build_object(
            'attempt', 1, 'exception_class', 'shop.errors.Error',
            'message', 'Read timed out', 'traceback', ''
        ))
        ELSE '[]'
    END,
    CASE kind.name WHEN 'blocked' THEN 'dependencies' END,
    CASE kind.name WHEN 'blocked' THEN 1 ELSE 0 END,
    CASE WHEN kind.name = 'keyed'
        THEN CASE WHEN number %% 3 = 0 THEN 'order:' ELSE 'customer:' END || number / 100 %% 500
    END,
    CASE WHEN kind.name = 'keyed' AND number %% 2 = 0 THEN 'shopify:' || number / 100 %% 50 END,
    CASE kind.name WHEN 'scheduled' THEN moment.later END,
    CASE WHEN kind.name IN ('scheduled', 'retrying') THEN moment.later END,
    CASE WHEN number %% 10 = 1 THEN 'shop.order:' || number / 100 END,
    statement_timestamp() - interval '1 second' * ((%(jobs)s - number) / 50)
FROM generate_series(1, %(jobs)s) AS number
CROSS JOIN LATERAL (
    SELECT
        CASE
            WHEN number %% 100 < 60 THEN 'ready'
            WHEN number %% 100 < 75 THEN 'keyed'
            WHEN number %% 100 < 85 THEN 'scheduled'
            WHEN number %% 100 < 95 THEN 'retrying'
            ELSE 'blocked'
        END AS name
) AS kind
CROSS JOIN LATERAL (
    SELECT statement_timestamp() + interval '1 second' * (60 + number %% 86400) AS later
) AS moment
"""

RUNNING_JOBS = """
INSERT INTO pgjobs_job_live (
    status, task_path, queue_name, args, attempts, claim, worker_id, worker_ids,
    concurrency_key, started_at, last_attempted_at, progress
)
SELECT
    'running', 'shop.tasks.number_' || number %% %(tasks)s, 'queue_' || number %% %(queues)s,
    format('[%%s]', number)::json, 1, 1,
    (%(workers)s::bigint[])[1 + number %% 4], ARRAY['web-' || number %% 4],
    CASE WHEN number %% 2 = 0 THEN 'customer:' || number END,
    statement_timestamp() - interval '1 second' * number,
    statement_timestamp() - interval '1 second' * number, '{"done": 20, "total": 100}'::json
FROM generate_series(1, %(jobs)s) AS number
"""

# A blocked job waits for the one before it.
DEPENDENCIES = """
INSERT INTO pgjobs_dependency (predecessor_id, job_id, after_failure)
SELECT job.id - 1, job.id, 'hold' FROM pgjobs_job_live AS job WHERE job.hold IS NOT NULL
"""

# The newest workflow has most batches: chains that are right below it.
WORKFLOWS = """
INSERT INTO pgjobs_batch (
    id, root_id, parent_id, flow_id, name, sealed_at, completed_at, tree_completed_at, jobs,
    successful, failed, tree_failed
)
SELECT
    number, CASE WHEN number > %(trees)s THEN %(trees)s ELSE number END,
    CASE
        WHEN number > %(trees)s + %(parts)s THEN number - %(parts)s
        WHEN number > %(trees)s THEN %(trees)s
    END,
    number, 'flow ' || number %% 10, statement_timestamp(), statement_timestamp(),
    CASE WHEN number %% 100 <> 0 THEN statement_timestamp() END,
    CASE number WHEN 1 THEN %(jobs_of_first)s ELSE 10 END,
    CASE number WHEN 1 THEN %(jobs_of_first)s - 1 ELSE 9 END, 1, number %% 5 = 0
FROM generate_series(1, %(trees)s + 2 * %(parts)s) AS number
"""

RATE_STATES = """
INSERT INTO pgjobs_rate_state (key, next_free)
SELECT 'shopify:' || number, statement_timestamp() + interval '1 second' * number
FROM generate_series(1, 50) AS number
"""


# What the periods of a month say, of so many tasks in each queue.
STATISTICS = """
INSERT INTO pgjobs_statistic (
    period, begins_at, queue_name, task_path, enqueued, successful, failed, cancelled, retried,
    waited, ran, waits, runs
)
SELECT
    step.period, moment, 'queue_' || cell %% %(queues)s,
    'shop.tasks.number_' || cell / %(queues)s, 20, 18, 1, 1, 2, 30.5, 60.5,
    '{0,0,1,2,4,6,4,2,1,0,1}', '{0,0,0,0,1,2,4,6,4,2,1,0,0,1}'
FROM (
    VALUES
        ('minute', interval '1 minute', interval '0', interval '65 minutes'),
        ('5 minutes', interval '5 minutes', interval '65 minutes', interval '7 hours'),
        ('15 minutes', interval '15 minutes', interval '7 hours', interval '26 hours'),
        ('4 hours', interval '4 hours', interval '26 hours', interval '7 days'),
        ('day', interval '1 day', interval '7 days', interval '32 days')
) AS step (period, length, ends, begins)
CROSS JOIN LATERAL generate_series(
    date_bin(step.length, statement_timestamp() - step.begins, 'epoch'),
    statement_timestamp() - step.ends - step.length, step.length
) AS moment
CROSS JOIN generate_series(
    0, CASE WHEN step.length < '1 hour' THEN %(cells)s / %(queues)s ELSE %(cells)s END - 1
) AS cell
"""

# And what they add up to: all of them say the same of times.
SUMS = """
INSERT INTO pgjobs_statistic_sum (
    period, begins_at, queue_name, task_path, enqueued, successful, failed, cancelled, retried,
    waited, ran, waits, runs
)
SELECT
    statistic.period, statistic.begins_at, statistic.queue_name, statistic.task_path,
    sum(statistic.enqueued), sum(statistic.successful), sum(statistic.failed),
    sum(statistic.cancelled), sum(statistic.retried), sum(statistic.waited), sum(statistic.ran),
    ARRAY(SELECT jobs * count(statistic.id) FROM unnest(min(statistic.waits)) AS jobs),
    ARRAY(SELECT jobs * count(statistic.id) FROM unnest(min(statistic.runs)) AS jobs)
FROM pgjobs_statistic AS statistic
GROUP BY
    statistic.period, statistic.begins_at,
    GROUPING SETS ((statistic.queue_name), (statistic.task_path))
"""

# A sample a minute for a day, then one an hour.
SAMPLES = """
INSERT INTO pgjobs_queue_sample (measured_at, queue_name, ready, running, last_job_id)
SELECT
    moment, CASE WHEN queue > 0 THEN 'queue_' || queue - 1 END,
    CASE queue WHEN 0 THEN 100 * %(queues)s ELSE 100 END, 4, CASE queue WHEN 0 THEN 1 END
FROM (
    SELECT generate_series(
        statement_timestamp() - interval '31 days', statement_timestamp() - interval '26 hours',
        interval '1 hour'
    )
    UNION ALL
    SELECT generate_series(
        statement_timestamp() - interval '26 hours', statement_timestamp() - interval '1 minute',
        interval '1 minute'
    )
) AS each (moment)
CROSS JOIN generate_series(0, %(queues)s) AS queue
"""

# What earlier tests deleted or rolled back left pages in the indexes, and plans depend on those.
START_AFRESH = (
    "TRUNCATE pgjobs_job, pgjobs_dependency, pgjobs_rate_state, pgjobs_batch, pgjobs_statistic,"
    " pgjobs_statistic_sum, pgjobs_queue_sample CASCADE"
)


def fill(*, finished: int, waiting: int, cells: int = 100) -> None:
    """Empty the tables and fill them; the administrator is the user `admin`.

    *cells* is how many pairs of a queue and a task the statistics have.
    """
    User.objects.create_superuser("admin", "admin@example.com", "admin")
    workers = [
        make_worker(f"web-{number}", slots=16, version="1", lease_seconds=86_400_000.0)
        for number in range(4)
    ]
    ConcurrencyLimit.objects.create(pattern="customer:*", max_running=5)
    RateLimit.objects.create(name="shopify", count=40, period=1.0)
    QueueSettings.objects.create(queue_name="queue_1", max_running=5, boost=10)
    Pause.objects.create(kind="queue", name="queue_2", reason="a bug", paused_by="anna")
    shape = {"queues": QUEUES, "tasks": TASKS, "workers": workers}
    with connection.cursor() as cursor:
        cursor.execute(START_AFRESH)
        cursor.execute(FINISHED, {**shape, "jobs": finished})
        cursor.execute(WAITING, {**shape, "jobs": waiting})
        cursor.execute(RUNNING_JOBS, {**shape, "jobs": RUNNING})
        cursor.execute(DEPENDENCIES)
        cursor.execute(RATE_STATES)
        cursor.execute(STATISTICS, {"queues": QUEUES, "cells": cells})
        cursor.execute(SUMS)
        cursor.execute(SAMPLES, {"queues": QUEUES})
        measure_queues(cursor)
        cursor.execute(WORKFLOWS, {"trees": TREES, "parts": PARTS, "jobs_of_first": finished // 8})


def vacuum() -> None:
    """Let the planner know what there is; outside of a transaction."""
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
