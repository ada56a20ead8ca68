"""The end of a run: what is left, and all checks over both records."""

from __future__ import annotations

import json
from typing import Any

import psycopg

from tests.chaos import checks, figures, limit_checks, operator, tasks, times, trees
from tests.chaos.checks import History
from tests.chaos.journal import STOPPED
from tests.chaos.ledger import Change, Limit, read_changes, read_limits
from tests.chaos.logs import find_unexpected_lines, group
from tests.chaos.trees import Made, Node
from tests.chaos.world import World

# How long a running job may go on after its cancellation, and how long nothing may be claimed
# while something could: far more than any single fault lasts.
PATIENCE_SECONDS = 60.0
# What is told and does not count: locks of tables and servers that are down last that long.
NOTEWORTHY_SECONDS = 15.0
UNFINISHED = """
SELECT id, claim, status, hold, due_at > now() AND note <> ''
FROM pgjobs_job WHERE status IN ('ready', 'running')
"""
OPEN_BATCHES = """
SELECT id, jobs, successful, failed, cancelled FROM pgjobs_batch WHERE tree_completed_at IS NULL
UNION ALL
SELECT batch_id, jobs, successful, failed, cancelled FROM pgjobs_batch_change
"""
EFFECTS = "SELECT job_id, count(*) FROM tests_effect WHERE job_id IS NOT NULL GROUP BY job_id"
MOST_OF_A_KIND = 10


def unfinished(world: World) -> list[tuple[Any, ...]]:
    """Return the jobs that should still come to an end: (id, claim, status, ...), and batches."""
    entries = world.journal.read()
    odd = History(entries, []).dirty()
    held = {job for e in entries if e.what == "hold" for job in e.ids}
    with world.pair.connect() as connection:
        rows = connection.execute(UNFINISHED).fetchall()
        open_batches = connection.execute(OPEN_BATCHES).fetchall()
    left = []
    for row in rows:
        job, _, status, hold, is_put_off = row
        is_waiting = status == "ready" and (
            (job in odd and (odd[job].may_wait or is_put_off))
            or (job in held and hold == "predecessor failed")
        )
        if not is_waiting:
            left.append(row)
    return [*sorted(left), *open_batches]


def check(world: World, ended_at: float) -> tuple[list[str], str]:
    """Return what was found, and how much there was to look at."""
    with world.pair.connect() as connection:
        changes = read_changes(connection)
        limits = read_limits(connection)
        history = History(world.journal.read(), changes, read_effects(connection))
        now = connection.execute("SELECT EXTRACT(EPOCH FROM now())::float8").fetchone()
        nodes, made = trees.read_nodes(connection), trees.read_made(connection)
        uncounted = trees.count_left(connection)
        sums = figures.read_sums(connection)
        unequal = figures.find_unequal_sums(connection)
        kept = times.read_occurrences(connection)
        scheduled = {
            "occurrences": times.find_doubled(kept),
            "left out": times.find_left_out(kept),
            "silence": times.find_silence(kept, ended_at, PATIENCE_SECONDS),
            "strays": [f"job {job}" for job in times.read_strays(connection)],
            "broken": times.find_unbroken(connection),
        }
    keep(world, changes)
    assert now is not None
    found = {
        "lost": checks.find_lost(history),
        "stuck": checks.find_stuck(history, now[0]),
        "rolled back": checks.find_ghosts(history),
        "never run": checks.find_unrun(history),
        "twice": checks.find_doubled(history),
        "not merged": checks.find_unmerged(history),
        "effects": checks.find_repeated_effects(
            history, [tasks.record.module_path, tasks.record_and_fail.module_path]
        ),
        "attempts": checks.find_crash_loops(history),
        "kills": checks.find_killers(history),
        "cancels": checks.find_ignored_cancels(history, PATIENCE_SECONDS),
        "standstill": checks.find_standstill(history, PATIENCE_SECONDS, ended_at),
        "dependencies": checks.find_hasty_dependents(history),
        **check_limits(changes, limits),
        **check_trees(history, nodes, made),
        **scheduled,
        "statistics": figures.find_overcounted(changes, sums),
        "sums": unequal,
        "uncounted": [f"{uncounted} changes are left"] if uncounted else [],
    }
    pauses = checks.find_standstill(history, NOTEWORTHY_SECONDS, ended_at)
    facts = (
        f"{len(history.last())} jobs, {len(changes)} changes, {len(history.entries)} entries, "
        f"{len(nodes)} batches, {sum(node.completions for node in nodes)} completions, "
        f"{len(kept)} occurrences; {sums['successful']} successes in the statistics; "
        f"{len(pauses)} times nothing was claimed for more than {NOTEWORTHY_SECONDS:g} s"
    )
    return cut(found), facts


def check_trees(history: History, nodes: list[Node], made: list[Made]) -> dict[str, list[str]]:
    """Return what was found about workflows."""
    stopped = {root for entry in history.of(STOPPED) for root in entry.ids}
    stopped |= {node.root for node in nodes if node.policy != "continue"}
    successes = trees.successes_of(history.changes)
    return {
        "trees": trees.find_open(nodes),
        "counts": trees.find_miscounted(nodes),
        "callbacks": trees.find_wrong_calls(nodes),
        "streams": trees.find_wrong_streams(made, successes, stopped),
    }


def check_logs(world: World) -> list[str]:
    """Return what the logs of the workers, which have ended, say without a reason."""
    lines = [
        line
        for path in sorted(world.folder.glob("*.log"))
        for line in find_unexpected_lines(path.stem, path.read_text().splitlines())
    ]
    return cut({"log": group(lines)})


def check_limits(changes: list[Change], limits: list[Limit]) -> dict[str, list[str]]:
    """Return what was found about limits of each kind."""
    of_keys = limit_checks.Limits("key", limits)
    return {
        "keys": limit_checks.find_crowds(
            changes,
            of_keys,
            group=lambda change: change.concurrency_key,
            default=lambda change: change.concurrency_limit or 1,
        ),
        "queues": limit_checks.find_crowds(
            changes,
            limit_checks.Limits("queue", limits),
            group=lambda change: change.queue_name,
            default=lambda change: None,
        ),
        "order": limit_checks.find_disorder(changes, of_keys),
        "rates": limit_checks.find_haste(changes, operator.RATE_COUNT, operator.RATE_PERIOD),
        "unique keys": limit_checks.find_twins(changes),
    }


def cut(found: dict[str, list[str]]) -> list[str]:
    """Return the findings with their kind, not too many of each."""
    lines = []
    for kind, items in found.items():
        lines += [f"{kind}: {item}" for item in items[:MOST_OF_A_KIND]]
        if len(items) > MOST_OF_A_KIND:
            lines.append(f"{kind}: and {len(items) - MOST_OF_A_KIND} more")
    return lines


def read_effects(connection: psycopg.Connection[Any]) -> dict[int, int]:
    """Return job -> the number of its effects."""
    return dict(connection.execute(EFFECTS).fetchall())


def keep(world: World, changes: list[Change]) -> None:
    """Write the ledger beside the journal."""
    with (world.folder / "ledger").open("w") as file:
        file.writelines(json.dumps(change._asdict()) + "\n" for change in changes)
