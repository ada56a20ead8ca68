"""What the database says of all queues, workers and schedules together.

All metrics are gauges. Statistics are pruned, so a sum over them would fall some day; what ended in
the last five complete minutes is the same for everybody who asks.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Hashable, Iterable
from datetime import datetime, timedelta
from typing import TypeVar

from django.db import Error, connections

from django_pgjobs.control.stuck import find_stuck
from django_pgjobs.exceptions import TooSlow
from django_pgjobs.metrics import names
from django_pgjobs.metrics.exposition import Exposition
from django_pgjobs.queries import numbers
from django_pgjobs.queries.budget import time_budget
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.queries.database import job_database
from django_pgjobs.queries.limit_pages import MAX_LIMITS, list_rate_keys
from django_pgjobs.queries.metrics import list_delays, list_ended_attempts
from django_pgjobs.queries.overview import Installation, get_installation
from django_pgjobs.queries.queue_pages import QueueRow, list_queues
from django_pgjobs.queries.schedules import get_now
from django_pgjobs.queries.statistics import MAX_QUEUES as MAX_SAMPLED
from django_pgjobs.queries.statistics import MINUTE
from django_pgjobs.queries.system import list_relations

logger = logging.getLogger(__name__)

# No statement may take longer: Prometheus waits 10 s for all parts, of which each may hang.
ASKED_SECONDS = 1.5
# Of the facts, only numbers are read.
FEWEST = 1
Key = TypeVar("Key", bound=Hashable)

STATES = ("ready", "running", "scheduled", "retrying", "blocked")
OUTCOMES = ("successful", "failed", "cancelled", "retried", "lost")


def describe_installation() -> bytes:
    """Return the metrics of the installation, as far as they can be read.

    If none of it can be: raise TooSlow, or what Django's connection raises.
    """
    alias = job_database()
    said = Exposition()
    failures: list[Error | TooSlow] = []
    for part, add in PARTS.items():
        try:
            with (
                time_budget(alias, ASKED_SECONDS, walks=True),
                connections[alias].cursor() as cursor,
            ):
                add(said, cursor)
            said.add(names.PART_READ, 1, part)
        except (Error, TooSlow) as error:
            logger.warning("the metrics of %s cannot be read: %s", part, str(error).strip())
            said.add(names.PART_READ, 0, part)
            failures.append(error)
    if len(failures) == len(PARTS):
        raise failures[0]
    return said.text()


def _add_queues(said: Exposition, cursor: Cursor) -> None:
    queues = list_queues(cursor, max_queues=MAX_SAMPLED).rows
    _add_sizes(said, cursor, queues)
    _add_states(said, queues, get_now(cursor))


def _add_sizes(said: Exposition, cursor: Cursor, queues: Iterable[QueueRow]) -> None:
    sizes = numbers.list_sizes(cursor)
    told = {size.queue_name for size in sizes}
    # A served queue without jobs shows zeros, so that alerting rules find a number.
    rest = [queue.size for queue in queues if queue.size and queue.name not in told]
    sizes += rest[: max(0, MAX_SAMPLED + 1 - len(sizes))]
    for size in sizes:
        if size.queue_name is not None:
            for state in STATES:
                said.add(names.QUEUE_JOBS, getattr(size, state), size.queue_name, state)
    said.add(names.QUEUE_JOBS_AT, sizes[0].measured_at.timestamp())


def _add_states(said: Exposition, queues: Iterable[QueueRow], now: datetime) -> None:
    for queue in queues:
        since = queue.waiting_since
        waited = 0.0 if since is None else (now - since).total_seconds()
        said.add(names.OLDEST_READY, max(waited, 0.0), queue.name)
        said.add(names.QUEUE_PAUSED, int(queue.paused_at is not None), queue.name)
        workers = 0 if queue.is_unserved else queue.workers
        said.add(names.QUEUE_WORKERS, workers, queue.name)


def _add_stuck(said: Exposition, cursor: Cursor) -> None:
    said.add(names.STUCK_JOBS, len(find_stuck(cursor)))


def _add_workers(said: Exposition, cursor: Cursor) -> None:
    facts = get_installation(
        cursor,
        max_workers=FEWEST,
        old_seconds=0.0,
        unsealed_seconds=MINUTE,
    )
    said.add(names.WORKERS, facts.live_workers, "live")
    said.add(names.WORKERS, facts.unended_workers - facts.live_workers, "lost")
    said.add(names.ALL_SLOTS, facts.slots)
    oldest = facts.old_transaction
    said.add(names.OLDEST_TRANSACTION, oldest.seconds if oldest else 0.0)
    _add_recent(said, cursor, facts)


def _add_recent(said: Exposition, cursor: Cursor, facts: Installation) -> None:
    for (queue, task), number in _folded(_enqueued(cursor, facts)).items():
        said.add(names.RECENT_ENQUEUED, number, queue, task)
    written = numbers.recent_minutes(facts.now - timedelta(seconds=numbers.CLOSING_SECONDS))
    ended: Counter[tuple[str, ...]] = Counter(
        {
            (row.queue_name, row.task_path, outcome): number
            for row in list_ended_attempts(cursor, written)
            for outcome in OUTCOMES
            if (number := getattr(row, outcome))
        }
    )
    for (queue, task, outcome), number in _folded(ended).items():
        said.add(names.RECENT_ATTEMPTS, number, queue, task, outcome)


def _enqueued(cursor: Cursor, facts: Installation) -> Counter[tuple[str, ...]]:
    """Return what came in lately, by queue and task."""
    counted_until = numbers.enqueues_counted_until(facts.samples)
    enqueued: Counter[tuple[str, ...]] = Counter()
    if counted_until is None:
        return enqueued
    counted = numbers.recent_minutes(counted_until)
    for row in numbers.list_statistics(
        cursor,
        seconds=facts.now.timestamp() - counted.start * MINUTE,
        bucket_seconds=MINUTE,
        by_queue=True,
        by_task=True,
    ):
        if row.enqueued and row.bucket in counted:
            enqueued[row.queue_name or "", row.task_path or ""] += row.enqueued
    return enqueued


def _folded(counts: Counter[tuple[str, ...]]) -> Counter[tuple[str, ...]]:
    """Return counts with a bounded number of tasks, and of queues with a task.

    Those with most jobs are told apart, and the others are together.
    """
    tasks = _largest(((task, number) for (_, task, *_), number in counts.items()), names.MAX_TASKS)
    by_task: Counter[tuple[str, ...]] = Counter()
    for (queue, task, *rest), number in counts.items():
        by_task[(queue, task if task in tasks else names.OTHERS, *rest)] += number
    pairs = _largest(((key[:2], number) for key, number in by_task.items()), names.MAX_PAIRS)
    folded: Counter[tuple[str, ...]] = Counter()
    for key, number in by_task.items():
        pair = key[:2] if key[:2] in pairs else (names.OTHERS, names.OTHERS)
        folded[(*pair, *key[2:])] += number
    return folded


def _largest(numbers: Iterable[tuple[Key, int]], most: int) -> set[Key]:
    """Return the keys with the largest sums, at most *most* of them."""
    sums: Counter[Key] = Counter()
    for key, number in numbers:
        sums[key] += number
    return {key for key, _ in sums.most_common(most)}


def _add_schedules(said: Exposition, cursor: Cursor) -> None:
    for delay in list_delays(cursor):
        said.add(names.SCHEDULE_LATE, delay.seconds, delay.name)
        said.add(names.SCHEDULE_ERROR, int(delay.has_error), delay.name)
        said.add(names.SCHEDULE_FAILED, int(delay.has_failed), delay.name)


def _add_limits(said: Exposition, cursor: Cursor) -> None:
    for name, keys in list_rate_keys(cursor, limits=MAX_LIMITS).items():
        if name is not None:
            said.add(names.RATE_LIMIT_JOBS, keys[0].jobs_of_limit, name)
            said.add(names.RATE_LIMIT_KEYS, keys[0].keys, name)


def _add_tables(said: Exposition, cursor: Cursor) -> None:
    for relation in list_relations(cursor):
        if not relation.is_index:
            said.add(names.TABLE_BYTES, relation.bytes + relation.index_bytes, relation.name)
            said.add(names.DEAD_ROWS, relation.dead or 0, relation.name)


# The parts, each of which is read by itself and left out if it cannot be read.
PARTS = {
    "queues": _add_queues,
    "stuck": _add_stuck,
    "workers": _add_workers,
    "schedules": _add_schedules,
    "limits": _add_limits,
    "tables": _add_tables,
}
