"""Statistics against the ledger: they may miss what a killed worker had counted, and never add.

And their sums by queue and by task against them: those say the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import psycopg

from tests.chaos.ledger import Change

ENDS = ("successful", "failed", "cancelled")
MOST_LOSSES = 2_147_483_647
READ = """
SELECT
    COALESCE(sum(successful), 0), COALESCE(sum(failed), 0), COALESCE(sum(cancelled), 0),
    COALESCE(sum(lost), 0), COALESCE(sum(enqueued), 0)
FROM pgjobs_statistic
"""
# What both tables say of each queue and task, but for parts, which are in no sum yet.
READ_UNEQUAL = """
WITH said AS (
    SELECT kind, name, sum(enqueued) AS enqueued, sum(successful) AS successful,
        sum(failed) AS failed, sum(cancelled) AS cancelled, sum(lost) AS lost
    FROM pgjobs_statistic
    CROSS JOIN LATERAL (VALUES ('queue', queue_name), ('task', task_path)) AS each (kind, name)
    WHERE period <> 'part'
    GROUP BY kind, name
),
summed AS (
    SELECT CASE WHEN task_path IS NULL THEN 'queue' ELSE 'task' END AS kind,
        COALESCE(queue_name, task_path) AS name, sum(enqueued) AS enqueued,
        sum(successful) AS successful, sum(failed) AS failed, sum(cancelled) AS cancelled,
        sum(lost) AS lost
    FROM pgjobs_statistic_sum
    GROUP BY 1, 2
)
SELECT kind, name, said::text, summed::text
FROM said FULL JOIN summed USING (kind, name)
WHERE said::text IS DISTINCT FROM summed::text
"""


def find_unequal_sums(connection: psycopg.Connection[Any]) -> list[str]:
    """Return the queues and tasks of which sums say something else than the statistics."""
    rows = connection.execute(READ_UNEQUAL).fetchall()
    return [f"{kind} {name}: {said}, in sums {summed}" for kind, name, said, summed in rows]


def read_sums(connection: psycopg.Connection[Any]) -> dict[str, int]:
    """Return the sum of each number of the statistics."""
    [row] = connection.execute(READ).fetchall()
    return {name: int(value) for name, value in zip((*ENDS, "lost", "enqueued"), row, strict=True)}


def find_overcounted(changes: Iterable[Change], sums: Mapping[str, int]) -> list[str]:
    """Return the numbers that are higher than what has happened."""
    happened: Counter[str] = Counter()
    last: dict[int, Change] = {}
    for change in changes:
        before = last.get(change.job)
        if before is None:
            happened["enqueued"] += 1
        if change.status in ENDS and (before is None or before.status != change.status):
            happened[change.status] += 1
        if before is not None and _is_loss(before, change):
            happened["lost"] += 1
        last[change.job] = change
    return [
        f"{number} {name} in the statistics, {happened[name]} in the ledger"
        for name, number in sums.items()
        if number > happened[name]
    ]


def _is_loss(before: Change, change: Change) -> bool:
    """Was the job lost? In an odd row the count of losses may have been at its end."""
    if before.lost_count == MOST_LOSSES:
        return before.status == "running" and change.claim != before.claim
    return change.lost_count > before.lost_count
