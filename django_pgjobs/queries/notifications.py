"""LISTEN and NOTIFY. A notification is a hint; polling is the truth.

Anybody who may connect can send and read notifications, so they carry a queue's name or
a word, and whoever receives one asks the database.
"""

from __future__ import annotations

from typing import Any

import psycopg

from django_pgjobs.queries.cursor import Cursor, execute

# New or newly runnable jobs; the payload is the queue's name.
JOBS_CHANNEL = "pgjobs"
# Somebody asked to cancel a running job; no payload.
CANCEL_CHANNEL = "pgjobs_cancel"
# Something was paused or resumed, or a limit changed; no payload. Or somebody asks something of
# workers, in their rows; then the payload says so.
CONTROL_CHANNEL = "pgjobs_control"
WORKERS = "workers"
# Something is noted of a batch and could not be counted; cancel_jobs.sql says so, too.
BATCHES = "batches"
# Somebody has left the watch for new jobs (`queries.watch`); no payload.
WATCH_CHANNEL = "pgjobs_watch"
# What a worker with jobs hears, and what one on the watch hears in addition.
ORDERS = frozenset({CANCEL_CHANNEL, CONTROL_CHANNEL, WATCH_CHANNEL})
EVERYTHING = ORDERS | {JOBS_CHANNEL}


def notify_workers(cursor: Cursor, queue_names: list[str]) -> None:
    """Wake the workers of these queues when the transaction commits."""
    params = {"channel": JOBS_CHANNEL, "queue_names": sorted(set(queue_names))}
    execute(cursor, "notify_workers", params)


def notify_cancelled(cursor: Cursor) -> None:
    """Tell workers, when the transaction commits, to look for cancelled jobs."""
    execute(cursor, "notify_workers", {"channel": CANCEL_CHANNEL, "queue_names": [""]})


def notify_of_control(cursor: Cursor) -> None:
    """Tell workers, when the transaction commits, that rules have changed: a pause, a limit."""
    execute(cursor, "notify_workers", {"channel": CONTROL_CHANNEL, "queue_names": [""]})


def notify_of_orders(cursor: Cursor) -> None:
    """Tell workers, when the transaction commits, to look into their own rows."""
    execute(cursor, "notify_workers", {"channel": CONTROL_CHANNEL, "queue_names": [WORKERS]})


def notify_of_batches(cursor: Cursor) -> None:
    """Tell workers, when the transaction commits, to look for batches to be counted."""
    execute(cursor, "notify_workers", {"channel": CONTROL_CHANNEL, "queue_names": [BATCHES]})


def listen(connection: psycopg.Connection[Any]) -> None:
    """Subscribe to what concerns workers that hold jobs; the rest is up to the watch."""
    for channel in sorted(ORDERS):
        connection.execute(f"LISTEN {channel}", prepare=False)


def send_subscription(cursor: Cursor, channel: str, *, hears: bool) -> None:
    """Subscribe to *channel* from the commit on, or unsubscribe."""
    cursor.execute(f"{'LISTEN' if hears else 'UNLISTEN'} {channel}")


def read_notifications(connection: psycopg.Connection[Any]) -> None:
    """Hand what has arrived to the connection's handlers, without waiting.

    Raise psycopg.OperationalError if the connection is lost.
    """
    raw = connection.pgconn
    raw.consume_input()
    while (notification := raw.notifies()) is not None:
        if raw.notify_handler:
            raw.notify_handler(notification)
