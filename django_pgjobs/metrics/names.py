"""All metrics, with what they mean; docs/metrics.md has the same table."""

from __future__ import annotations

from django_pgjobs.metrics.exposition import COUNTER, GAUGE, HISTOGRAM, Metric

# Values of the label "task" that are told apart, and what the others are called.
MAX_TASKS = 500
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
LIVE = Metric("pgjobs_worker_live", GAUGE, "1 if every part of the worker moves, else 0.")
READY = Metric(
    "pgjobs_worker_ready",
    GAUGE,
    "1 if the worker has its lease, reaches the database and does not stop, else 0.",
)
CONNECTIONS = Metric(
    "pgjobs_db_connections_opened_total",
    COUNTER,
    "Connections that the worker has opened for itself, by what for.",
    ("role",),
)

OF_WORKERS = (
    ATTEMPTS, ATTEMPT_DURATION, ATTEMPT_WAIT, SLOTS, SLOTS_BUSY, HEARTBEAT, INFO, LIVE, READY,
    CONNECTIONS,
)  # fmt: skip
