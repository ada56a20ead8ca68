"""Every metric, of the installation and of a worker that runs, against plain SQL."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import psycopg
from prometheus_client import Metric

from django_pgjobs.metrics.names import OF_INSTALLATION, OF_WORKERS
from django_pgjobs.metrics.of_installation import describe_installation
from django_pgjobs.worker.process.health import Health
from tests import tasks
from tests.helpers import wait_until
from tests.metrics.parsing import read
from tests.sizes.compared import query, steady
from tests.worker.support import ThreadedWorker

Series = dict[tuple[str, ...], float]

# However long it took to make all others: some ended in one of the last five complete minutes.
END_SOME = """
WITH ended AS (
    INSERT INTO pgjobs_job (
        task_path, queue_name, status, attempts, enqueued_at, last_attempted_at, finished_at
    )
    SELECT
        'shop.tasks.' || n % 3, 'queue-1',
        (ARRAY['successful', 'failed', 'cancelled', 'successful'])[1 + n % 4], 1, at, at, at
    FROM generate_series(1, 30) AS n
    CROSS JOIN (SELECT date_trunc('minute', now()) - interval '150 seconds' AS at) AS moment
    RETURNING task_path, queue_name, status, finished_at
)
INSERT INTO pgjobs_statistic (
    begins_at, queue_name, task_path, successful, failed, cancelled, enqueued, retried, lost, runs
)
SELECT
    date_trunc('minute', finished_at), queue_name, task_path,
    count(*) FILTER (WHERE status = 'successful'), count(*) FILTER (WHERE status = 'failed'),
    count(*) FILTER (WHERE status = 'cancelled'), count(*), count(*) * 2, count(*) * 3,
    ARRAY[count(*) * 3]
FROM ended GROUP BY finished_at, queue_name, task_path
RETURNING id
"""
# Each finds one number more than its metric has labels.
INSTALLATION = {
    "pgjobs_queue_jobs": """
SELECT queue_name, each.state, each.jobs
FROM (
    SELECT
        queue_name, count(*) FILTER (WHERE status = 'running') AS running,
        count(*) FILTER (WHERE hold IS NOT NULL) AS blocked,
        count(*) FILTER (WHERE status = 'ready' AND due_at IS NULL AND hold IS NULL) AS ready,
        count(*) FILTER (WHERE due_at IS NOT NULL AND attempts > 0) AS retrying,
        count(*) FILTER (WHERE due_at IS NOT NULL AND attempts = 0) AS scheduled
    FROM pgjobs_job_live GROUP BY queue_name
) AS queue
CROSS JOIN LATERAL (
    VALUES ('ready', ready), ('running', running), ('scheduled', scheduled),
    ('retrying', retrying), ('blocked', blocked)
) AS each (state, jobs)
""",
    "pgjobs_queue_paused": """
SELECT queue_name, (queue_name IN (SELECT name FROM pgjobs_pause WHERE kind = 'queue'))::integer
FROM pgjobs_job_live GROUP BY queue_name
""",
    "pgjobs_queue_live_workers": """
SELECT queue_name, (
    SELECT count(*) FROM pgjobs_worker
    WHERE ended_at IS NULL AND lease_expires_at > now() AND quiet_requested_at IS NULL
        AND (queues IS NULL OR queue_name = ANY (queues)) AND queue_name <> ALL (excluded_queues)
)
FROM pgjobs_job_live GROUP BY queue_name
""",
    # The usual time is the end of the class, of a millisecond and so on, of 99 of 100.
    "pgjobs_stuck_jobs": """
WITH class AS (
    SELECT task_path, place, sum(jobs) AS jobs
    FROM pgjobs_statistic CROSS JOIN unnest(runs) WITH ORDINALITY AS each (jobs, place)
    WHERE begins_at >= now() - interval '7 days' GROUP BY task_path, place
),
upto AS (
    SELECT
        task_path, place, sum(jobs) OVER (PARTITION BY task_path ORDER BY place) AS jobs,
        sum(jobs) OVER (PARTITION BY task_path) AS all_jobs
    FROM class
),
usual AS (
    SELECT task_path, min(2 ^ (place - 1) / 1000) AS seconds FROM upto
    WHERE jobs >= 0.99 * all_jobs AND all_jobs >= 20 GROUP BY task_path
)
SELECT count(*) FROM pgjobs_job AS job JOIN usual ON usual.task_path = job.task_path
WHERE job.status = 'running'
    AND EXTRACT(EPOCH FROM now() - job.last_attempted_at) > GREATEST(10 * usual.seconds, 60)
""",
    "pgjobs_workers": """
SELECT CASE WHEN lease_expires_at > now() THEN 'live' ELSE 'lost' END, count(*)
FROM pgjobs_worker WHERE ended_at IS NULL GROUP BY 1
""",
    "pgjobs_slots": """
SELECT sum(slots) FROM pgjobs_worker WHERE ended_at IS NULL AND lease_expires_at > now()
""",
    # By the rows: so much was entered for each job that ended.
    "pgjobs_enqueued_last_5m": """
SELECT queue_name, task_path, count(*)
FROM pgjobs_job_finished
CROSS JOIN (
    SELECT date_trunc('minute', measured_at) AS until FROM pgjobs_queue_sample
    WHERE queue_name IS NULL ORDER BY measured_at DESC OFFSET 1 LIMIT 1
) AS counted
WHERE finished_at >= until - interval '5 minutes' AND finished_at < until
GROUP BY queue_name, task_path
""",
    "pgjobs_attempts_last_5m": """
SELECT queue_name, task_path, each.outcome, each.jobs
FROM (
    SELECT
        queue_name, task_path, count(*) AS jobs,
        count(*) FILTER (WHERE status = 'successful') AS successful,
        count(*) FILTER (WHERE status = 'failed') AS failed,
        count(*) FILTER (WHERE status = 'cancelled') AS cancelled
    FROM pgjobs_job_finished
    CROSS JOIN (SELECT date_trunc('minute', now() - interval '15 seconds') AS until) AS written
    WHERE finished_at >= until - interval '5 minutes' AND finished_at < until
    GROUP BY queue_name, task_path
) AS job
CROSS JOIN LATERAL (
    VALUES ('successful', successful), ('failed', failed), ('cancelled', cancelled),
    ('retried', 2 * jobs), ('lost', 3 * jobs)
) AS each (outcome, jobs)
WHERE each.jobs > 0
""",
    "pgjobs_schedule_error": "SELECT name, (error <> '')::integer FROM pgjobs_schedule",
    "pgjobs_schedule_failed": """
SELECT schedule.name, (job.status = 'failed')::integer
FROM pgjobs_schedule AS schedule JOIN pgjobs_job AS job ON job.id = schedule.last_job_id
""",
    "pgjobs_rate_limit_waiting_jobs": """
SELECT 'mail', count(*) FROM pgjobs_job WHERE status = 'ready' AND rate_limit_keys LIKE 'mail:%'
""",
    "pgjobs_rate_limit_keys": """
SELECT 'mail', count(*) FROM (
    SELECT rate_limit_keys FROM pgjobs_job
    WHERE status = 'ready' AND rate_limit_keys LIKE 'mail:%'
    UNION SELECT key FROM pgjobs_rate_state
) AS used
""",
    "pgjobs_table_bytes": """
SELECT relname, pg_total_relation_size(oid) FROM pg_class
WHERE relkind = 'r' AND relname LIKE 'pgjobs\\_%'
""",
    "pgjobs_part_read": """
SELECT part, 1 FROM (
    VALUES ('queues'), ('stuck'), ('workers'), ('schedules'), ('limits'), ('tables')
) AS each (part)
""",
    "pgjobs_table_dead_rows": """
SELECT relname, n_dead_tup FROM pg_stat_user_tables WHERE relname LIKE 'pgjobs\\_%'
    AND relid IN (SELECT oid FROM pg_class WHERE relkind = 'r')
""",
}
# Seconds, which pass.
AGES = {
    "pgjobs_queue_oldest_ready_seconds": """
SELECT queue_name, EXTRACT(EPOCH FROM clock_timestamp() - min(enqueued_at)) FROM pgjobs_job_live
WHERE status = 'ready' AND due_at IS NULL AND hold IS NULL GROUP BY queue_name
""",
    "pgjobs_schedule_late_seconds": """
SELECT name, GREATEST(EXTRACT(EPOCH FROM clock_timestamp() - next_at), 0) FROM pgjobs_schedule
""",
    "pgjobs_oldest_transaction_seconds": """
SELECT EXTRACT(EPOCH FROM clock_timestamp() - min(xact_start)) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'an old transaction'
""",
    # By the newest sample if many wait.
    "pgjobs_queue_jobs_timestamp_seconds": """
SELECT EXTRACT(EPOCH FROM CASE
    WHEN (SELECT count(*) FROM pgjobs_job_live) > 10000
        THEN (SELECT max(measured_at) FROM pgjobs_queue_sample)
    ELSE clock_timestamp()
END)
""",
}
RUN = "run"
UNFINISHED = "SELECT count(*) FROM pgjobs_job WHERE queue_name = 'run' AND finished_at IS NULL"
ATTEMPTS = """
SELECT task_path, each.outcome, each.attempts
FROM (
    SELECT
        task_path, count(*) FILTER (WHERE status = 'successful') AS successful,
        count(*) FILTER (WHERE status = 'failed') AS failed, sum(attempts - 1) AS retried
    FROM pgjobs_job WHERE queue_name = 'run' GROUP BY task_path
) AS job
CROSS JOIN LATERAL (
    VALUES ('successful', successful), ('failed', failed), ('retried', retried)
) AS each (outcome, attempts)
WHERE each.attempts > 0
"""
COUNTED = """
SELECT task_path, sum(ran), sum(waited), sum(successful + failed + retried)
FROM pgjobs_statistic WHERE queue_name = 'run' AND enqueued = 0 GROUP BY task_path
"""
CLASSES = """
SELECT place, sum(jobs) FROM pgjobs_statistic
CROSS JOIN unnest({column}) WITH ORDINALITY AS each (jobs, place)
WHERE queue_name = 'run' AND task_path LIKE %s GROUP BY place HAVING sum(jobs) > 0 ORDER BY place
"""
OF_WORKER = """
SELECT name, version, array_to_string(queues, ','), slots, EXTRACT(EPOCH FROM heartbeat_at)
FROM pgjobs_worker WHERE id = %s
"""


def series(text: str) -> Series:
    """Return what a statement finds, by all but its last column."""
    return {tuple(labels): float(number) for *labels, number in query(text)}


def samples(metric: Metric | None, name: str = "") -> Series:
    """Return the samples of a metric by the values of their labels; one without is not there."""
    if metric is None:
        return {}
    return {
        tuple(sample.labels.values()): sample.value
        for sample in metric.samples
        if sample.name == (name or sample.name)
    }


def check_installation(open_connection: Callable[..., psycopg.Connection]) -> None:
    """Check what the address of the installation says."""
    open_connection(application_name="an old transaction", autocommit=False).execute(
        "SELECT pg_current_xact_id()"
    )
    query(END_SOME)
    wanted, metrics = steady(
        lambda: {name: series(text) for name, text in INSTALLATION.items()},
        lambda: read(describe_installation()),
    )
    for name, found in wanted.items():
        assert (name, samples(metrics.get(name))) == (name, found)
    before = {name: series(text) for name, text in AGES.items()}
    metrics = read(describe_installation())
    after = {name: series(text) for name, text in AGES.items()}
    for name, least in before.items():
        shown = samples(metrics[name])
        assert shown.keys() == least.keys()
        for labels, age in shown.items():
            assert least[labels] - 0.001 <= age <= after[name][labels] + 0.001, (name, labels)
    names = {metric.name for metric in OF_INSTALLATION}
    assert wanted.keys() | AGES.keys() == names >= metrics.keys()


def check_worker() -> None:
    """Check what a worker says that has run some jobs beside all others."""
    tasks.add.using(queue_name=RUN).enqueue_many([(1, 2)] * 200)
    tasks.fail.using(queue_name=RUN).enqueue_many([()] * 5)
    worker = ThreadedWorker(queues=(RUN,), name="counts:1", health_port=0)
    with contextlib.closing(worker):
        worker.start()
        [health] = [role for role in worker.runner.health if isinstance(role, Health)]

        def attempts() -> Series:
            return samples(read(health.describe()).get("pgjobs_attempts_total"))

        wait_until(lambda: query(UNFINISHED) == [(0,)])
        wanted = {(RUN, *labels): number for labels, number in series(ATTEMPTS).items()}
        # It counts what it has stored, a moment later.
        wait_until(lambda: attempts() == wanted, message=attempts)
        wait_until(lambda: worker.runner.state.held == {}, message=lambda: worker.runner.state.held)
        [before] = query(OF_WORKER, worker.id)
        metrics = read(health.describe())
        check_state(metrics, worker, before)
    check_counts(metrics)


def check_state(metrics: dict[str, Metric], worker: ThreadedWorker, row: tuple[Any, ...]) -> None:
    """Check what it says of itself, by its row and its sessions."""
    name, version, queues, slots, renewed = row
    assert samples(metrics["pgjobs_worker_info"]) == {(name, version, queues): 1}
    assert samples(metrics["pgjobs_worker_slots"])["threads",] == slots
    assert set(samples(metrics["pgjobs_worker_slots_busy"]).values()) == {0}
    assert samples(metrics["pgjobs_worker_live"]) == samples(metrics["pgjobs_worker_ready"])
    assert samples(metrics["pgjobs_worker_live"]) == {(): 1}
    [heartbeat] = samples(metrics["pgjobs_worker_last_heartbeat_timestamp_seconds"]).values()
    # By its own clock, from before the server was asked; it may have renewed its lease again since.
    [(_, _, _, _, later)] = query(OF_WORKER, worker.id)
    assert float(renewed) - 60 < heartbeat <= float(later) + 1
    opened = samples(metrics["pgjobs_db_connections_opened_total"])
    sessions = query(
        "SELECT substr(application_name, 8), count(*) FROM pg_stat_activity"
        " WHERE application_name IN ('pgjobs pump', 'pgjobs upkeep')"
        " AND datname = current_database() GROUP BY 1"
    )
    assert {role: opened[role,] for role, _ in sessions} == dict(sessions)
    assert metrics.keys() == {metric.name for metric in OF_WORKERS}


def check_counts(metrics: dict[str, Metric]) -> None:
    """Check its histograms by what it wrote at its end."""
    durations, waits = (metrics[f"pgjobs_attempt_{name}_seconds"] for name in ("duration", "wait"))
    counted = {row[0]: [float(number) for number in row[1:]] for row in query(COUNTED)}
    assert sum(attempts for _, _, attempts in counted.values()) == 215
    [waited] = samples(waits, f"{waits.name}_sum").values()
    assert abs(waited - sum(wait for _, wait, _ in counted.values())) < 1e-6
    assert samples(waits, f"{waits.name}_count") == {(RUN,): 215}
    assert classes_of(waits, RUN) == classes("waits", "%")
    for task, (ran, _, attempts) in counted.items():
        assert samples(durations, f"{durations.name}_count")[RUN, task] == attempts
        assert abs(samples(durations, f"{durations.name}_sum")[RUN, task] - ran) < 1e-6
        assert classes_of(durations, RUN, task) == classes("runs", task)


def classes(column: str, task: str) -> dict[int, float]:
    """Return how many attempts were in each class of time, the first is 1."""
    found = query(CLASSES.format(column=column), task)
    return {place: float(jobs) for place, jobs in found}


def classes_of(metric: Metric, *labels: str) -> dict[int, float]:
    """Return the same of a histogram, whose buckets hold those before as well."""
    buckets = [
        sample.value
        for sample in metric.samples
        if sample.name.endswith("_bucket") and tuple(sample.labels.values())[:-1] == labels
    ]
    own = [most - least for least, most in zip([0.0, *buckets], buckets, strict=False)]
    return {place: jobs for place, jobs in enumerate(own, 1) if jobs}
