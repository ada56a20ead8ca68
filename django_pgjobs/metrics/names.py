"""All metrics, with what they mean; docs/metrics.md has the same list."""

from __future__ import annotations

from django_pgjobs.metrics.exposition import COUNTER, GAUGE, HISTOGRAM, Metric

# How many pairs of queue and task have a label "task" of their own, and what the others are called.
MAX_TASKS = 500
MAX_PAIRS = 1_000
OTHERS = "(others)"

# Of one worker.

ATTEMPTS = Metric(
    "pgjobs_attempts_total",
    COUNTER,
    "Attempts whose outcome is stored, by outcome: successful, failed, cancelled or retried.",
    ("queue", "task", "outcome"),
)
ATTEMPT_DURATION = Metric(
    "pgjobs_attempt_duration_seconds", HISTOGRAM, "How long attempts ran.", ("queue", "task")
)
ATTEMPT_WAIT = Metric(
    "pgjobs_attempt_wait_seconds",
    HISTOGRAM,
    "How long jobs waited for an attempt since they could run.",
    ("queue",),
)
SLOTS = Metric(
    "pgjobs_worker_slots", GAUGE, "Jobs that the worker runs at a time, at most.", ("kind",)
)
SLOTS_BUSY = Metric("pgjobs_worker_slots_busy", GAUGE, "Jobs that the worker runs now.", ("kind",))
HEARTBEAT = Metric(
    "pgjobs_worker_last_heartbeat_timestamp_seconds",
    GAUGE,
    "When the worker last renewed its lease, in seconds since 1970.",
)
INFO = Metric(
    "pgjobs_worker_info",
    GAUGE,
    "Always 1; the labels say which worker it is.",
    ("worker", "version", "queues"),
)
LIVE = Metric("pgjobs_worker_live", GAUGE, "1 if every thread of the worker moves, else 0.")
READY = Metric(
    "pgjobs_worker_ready",
    GAUGE,
    "1 if the worker has its lease, reaches the database and is to claim jobs, else 0.",
)
CONNECTIONS = Metric(
    "pgjobs_db_connections_opened_total",
    COUNTER,
    "Connections that the worker has opened for itself, by what for.",
    ("role",),
)

# Of everything in the database.

QUEUE_JOBS = Metric(
    "pgjobs_queue_jobs",
    GAUGE,
    "Jobs that have not finished: ready, running, scheduled, retrying or blocked.",
    ("queue", "state"),
)
QUEUE_JOBS_AT = Metric(
    "pgjobs_queue_jobs_timestamp_seconds",
    GAUGE,
    "When pgjobs_queue_jobs was counted, in seconds since 1970: by the last sample if many wait.",
)
OLDEST_READY = Metric(
    "pgjobs_queue_oldest_ready_seconds",
    GAUGE,
    "How long the oldest job of the queue has waited that could run.",
    ("queue",),
)
QUEUE_PAUSED = Metric("pgjobs_queue_paused", GAUGE, "1 if the queue is paused, else 0.", ("queue",))
QUEUE_WORKERS = Metric(
    "pgjobs_queue_live_workers",
    GAUGE,
    "Live workers that serve the queue; 0 if jobs are ready in it that none of them takes.",
    ("queue",),
)
STUCK_JOBS = Metric("pgjobs_stuck_jobs", GAUGE, "Running jobs that look stuck.")
WORKERS = Metric(
    "pgjobs_workers",
    GAUGE,
    "Workers: live ones, and lost ones still to be rescued.",
    ("state",),
)
ALL_SLOTS = Metric("pgjobs_slots", GAUGE, "Jobs that live workers run in threads at a time.")
RECENT_ENQUEUED = Metric(
    "pgjobs_enqueued_last_5m",
    GAUGE,
    "Jobs enqueued in the last five minutes that are counted.",
    ("queue", "task"),
)
RECENT_ATTEMPTS = Metric(
    "pgjobs_attempts_last_5m",
    GAUGE,
    "Attempts that ended in the last five complete minutes, by outcome: successful, failed,"
    " cancelled, retried or lost. Jobs that end before they run have none.",
    ("queue", "task", "outcome"),
)
SCHEDULE_LATE = Metric(
    "pgjobs_schedule_late_seconds",
    GAUGE,
    "How much later than due the next occurrence of the schedule is.",
    ("schedule",),
)
SCHEDULE_ERROR = Metric(
    "pgjobs_schedule_error", GAUGE, "1 if the schedule cannot enqueue, else 0.", ("schedule",)
)
SCHEDULE_FAILED = Metric(
    "pgjobs_schedule_failed",
    GAUGE,
    "1 if the last job of the schedule to finish failed, else 0.",
    ("schedule",),
)
RATE_LIMIT_JOBS = Metric(
    "pgjobs_rate_limit_waiting_jobs",
    GAUGE,
    "Ready jobs that take tokens of the limit, also if there are some; of 20,000 with keys.",
    ("limit",),
)
RATE_LIMIT_KEYS = Metric(
    "pgjobs_rate_limit_keys", GAUGE, "Keys of the limit that have been used lately.", ("limit",)
)
OLDEST_TRANSACTION = Metric(
    "pgjobs_oldest_transaction_seconds",
    GAUGE,
    "How long the oldest transaction of the database has been open, as far as its role may see.",
)
TABLE_BYTES = Metric("pgjobs_table_bytes", GAUGE, "Size of the table with its indexes.", ("table",))
DEAD_ROWS = Metric(
    "pgjobs_table_dead_rows", GAUGE, "Dead rows of the table that vacuum has left.", ("table",)
)

PART_READ = Metric(
    "pgjobs_part_read",
    GAUGE,
    "1 if this part could be read: queues, stuck, workers, schedules, limits or tables; else 0.",
    ("part",),
)

OF_WORKERS = (
    ATTEMPTS, ATTEMPT_DURATION, ATTEMPT_WAIT, SLOTS, SLOTS_BUSY, HEARTBEAT, INFO, LIVE, READY,
    CONNECTIONS,
)  # fmt: skip

OF_INSTALLATION = (
    QUEUE_JOBS, QUEUE_JOBS_AT, OLDEST_READY, QUEUE_PAUSED, QUEUE_WORKERS, STUCK_JOBS, WORKERS,
    ALL_SLOTS, RECENT_ENQUEUED, RECENT_ATTEMPTS, SCHEDULE_LATE, SCHEDULE_ERROR, SCHEDULE_FAILED,
    RATE_LIMIT_JOBS, RATE_LIMIT_KEYS, OLDEST_TRANSACTION, TABLE_BYTES, DEAD_ROWS,
    PART_READ,
)  # fmt: skip
