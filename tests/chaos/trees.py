"""Workflows: random trees, and what must hold of them in the end.

Every tree ends; its numbers are those of its jobs; each completion has called back once; and each
success has made just its jobs.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import psycopg

from django_pgjobs import workflow
from django_pgjobs.models import Batch
from tests.chaos import tasks
from tests.chaos.ledger import Change

POLICIES = ("continue", "continue", "continue", "cancel branch", "cancel workflow")


def open_tree(dice: random.Random, token: str, *, seal: bool) -> tuple[Batch, list[str]]:
    """Open a workflow of some batches; return it, and the ids of the jobs that it begins with."""
    policy = dice.choice(POLICIES)
    with workflow("chaos", on_failed_job=policy, seal=seal) as root:  # type: ignore[arg-type]
        ids = []
        made = [root]
        for _ in range(dice.randint(1, 4)):
            above = dice.choice(made)
            kind = dice.choice(("each", "each_item", "gather", "then", "part", "join"))
            if kind == "part":
                part = root.batch("part")
                ids += part.add(tasks.give.s(token, 1))
                part.seal()
            elif kind == "join":
                both = root.join(*dice.sample(made, min(2, len(made))))
                if dice.random() < 0.5:
                    made.append(both.each(tasks.pass_on.s(token)))
                else:
                    made.append(both.then(tasks.give.s(token, 2), after_failure="run"))
            elif kind in ("each", "each_item"):
                made.append(getattr(above, kind)(tasks.pass_on.s(token)))
            else:
                how = dice.choice(("cancel", "run"))
                step = tasks.pass_on.s(token) if kind == "gather" else tasks.give.s(token, 2)
                made.append(getattr(above, kind)(step, after_failure=how))
        for batch in {root, dice.choice(made)}:
            batch.on_complete(tasks.told.s(token))
        ids += add_jobs(dice, root, token)
    return root, ids


def add_jobs(dice: random.Random, batch: Batch, token: str) -> list[str]:
    """Add some jobs, of which a few fail or are grown by themselves."""
    kinds = [tasks.give, tasks.give, tasks.give_atomic, tasks.give_or_fail, tasks.grow]
    calls = [dice.choice(kinds).s(token, dice.randint(0, 3)) for _ in range(dice.randint(1, 8))]
    return batch.add(*calls)


class Node(NamedTuple):
    """A batch as it is in the end: *numbers* as counted, *jobs* as they are; both of four."""

    id: int
    root: int
    policy: str
    is_over: bool
    broken: str
    completions: int
    callbacks: int
    called: int
    numbers: tuple[int, ...]
    jobs: tuple[int, ...]


class Made(NamedTuple):
    """How many jobs the batch that follows another by each() has of the result of a job."""

    batch: int
    root: int
    source: int
    jobs: int


NODES = """
SELECT
    batch.id, batch.root_id, batch.on_failed_job, batch.tree_completed_at IS NOT NULL, batch.broken,
    batch.completions, json_array_length(batch.callbacks),
    (
        SELECT count(*) FROM pgjobs_job AS job
        WHERE job.task_path = %(told)s AND job.args ->> 0 = batch.id::text
    ),
    ARRAY[batch.jobs, batch.successful, batch.failed, batch.cancelled]::bigint[],
    (
        SELECT ARRAY[
            count(*), count(*) FILTER (WHERE status = 'successful'),
            count(*) FILTER (WHERE status = 'failed'), count(*) FILTER (WHERE status = 'cancelled')
        ]
        FROM pgjobs_job AS job WHERE job.batch_id = batch.id
    )
FROM pgjobs_batch AS batch ORDER BY batch.id
"""
MADE = """
SELECT
    batch.id, batch.root_id, source.id,
    (SELECT count(*) FROM pgjobs_job AS job WHERE job.batch_id = batch.id AND source_id = source.id)
FROM pgjobs_batch AS batch
JOIN pgjobs_batch_edge AS edge ON edge.batch_id = batch.id
JOIN pgjobs_job AS source ON source.batch_id = edge.waits_for
WHERE batch.follows = 'each'
"""
LEFT = (
    # What is kept for a cancelled batch, in case that is taken back, is not to be counted.
    "SELECT (SELECT count(*) FROM pgjobs_batch_change)"
    " + (SELECT count(*) FROM pgjobs_batch_page WHERE NOT is_kept)"
)


def read_nodes(connection: psycopg.Connection[Any]) -> list[Node]:
    """Return all batches."""
    rows = connection.execute(NODES, {"told": tasks.told.module_path}).fetchall()
    return [Node(*row[:8], tuple(row[8]), tuple(row[9])) for row in rows]


def read_made(connection: psycopg.Connection[Any]) -> list[Made]:
    """Return what was made of each job that an each() follows."""
    return [Made(*row) for row in connection.execute(MADE).fetchall()]


def count_left(connection: psycopg.Connection[Any]) -> int:
    """Return how much is noted of batches that nobody has counted."""
    row = connection.execute(LEFT).fetchone()
    return row[0] if row else 0


def find_open(nodes: Iterable[Node]) -> list[str]:
    """Return the batches that have not ended, or were given up."""
    return [
        f"batch {node.id} of {node.root} is open, with {node.numbers}: {node.broken}"
        for node in nodes
        if not node.is_over or node.broken
    ]


def find_miscounted(nodes: Iterable[Node]) -> list[str]:
    """Return the batches whose numbers are not those of their jobs."""
    return [
        f"batch {node.id} of {node.root} has counted {node.numbers} where {node.jobs} are"
        for node in nodes
        if node.numbers != node.jobs
    ]


def find_wrong_calls(nodes: Iterable[Node]) -> list[str]:
    """Return the batches that have not called back once for each completion."""
    return [
        f"batch {node.id} was complete {node.completions} times and called back {node.called} times"
        for node in nodes
        if node.called != node.completions * node.callbacks
    ]


def successes_of(changes: Iterable[Change]) -> Counter[int]:
    """Return how often each job has succeeded."""
    successes: Counter[int] = Counter()
    before: dict[int, str] = {}
    for change in changes:
        if change.status == "successful" and before.get(change.job) != "successful":
            successes[change.job] += 1
        before[change.job] = change.status
    return successes


def find_wrong_streams(
    made: Iterable[Made], successes: Mapping[int, int], cancelled: Collection[int]
) -> list[str]:
    """Return the results of which other than one job was made for each success.

    Where a tree was *cancelled* now and then, fewer may be.
    """
    return [
        f"job {each.source} succeeded {successes.get(each.source, 0)} times, and batch "
        f"{each.batch} has {each.jobs} jobs of that"
        for each in made
        if each.jobs > successes.get(each.source, 0)
        or (each.jobs < successes.get(each.source, 0) and each.root not in cancelled)
    ]
