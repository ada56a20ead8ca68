"""What the planner of PostgreSQL knows: a worker's settings, and statistics that say too little."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django_pgjobs.queries.own_settings import SERVER_SETTINGS

# What a VACUUM tells the planner, rows and pages: while the transaction that fills the table is
# open; and when few jobs were left in a table that had been large.
KNOWN = {"empty": (0, 1000), "few": (3, 1000)}
SAW = """
UPDATE pg_catalog.pg_class SET reltuples = %s, relpages = %s
WHERE oid = %s::regclass
"""
OF_SETTLE = """
SELECT set_config(split_part(setting, '=', 1), split_part(setting, '=', 2), TRUE)
FROM pg_catalog.pg_proc, unnest(proconfig) AS setting
WHERE proname = 'pgjobs_settle_v1' AND starts_with(setting, 'enable_')
"""
READ = """
SELECT seq_tup_read + idx_tup_fetch
FROM pg_catalog.pg_stat_xact_user_tables WHERE relname = %s
"""

# An index that is read from its beginning, because a later column was asked for, gives no rows.
BLOCKS = """
SELECT sum(pg_catalog.pg_stat_get_xact_blocks_fetched(relation.oid))::bigint
FROM pg_catalog.pg_class AS relation
LEFT JOIN pg_catalog.pg_index AS index ON index.indexrelid = relation.oid
WHERE %s::regclass IN (relation.oid, index.indrelid)
"""


def forget(cursor: Any, known: str, tables: Iterable[str]) -> None:
    """Let the planner know of no more rows than a VACUUM saw, by a name of `KNOWN`."""
    for table in tables:
        cursor.execute(SAW, [*KNOWN[known], table])


def forget_jobs(cursor: Any, known: str) -> None:
    forget(cursor, known, ["pgjobs_job_live", "pgjobs_job_finished"])


def plan_like_a_worker(cursor: Any) -> None:
    """Let this transaction plan as the connections of a worker do."""
    for name, value in SERVER_SETTINGS.items():
        if name.startswith("enable_"):
            cursor.execute("SELECT set_config(%s, %s, TRUE)", [name, value])


def plan_like_settle(cursor: Any) -> None:
    """Let this transaction plan as the functions do that pgjobs_settle_v1 calls."""
    plan_like_a_worker(cursor)
    cursor.execute(OF_SETTLE)


def rows_read(cursor: Any, table: str) -> int:
    """Return how many rows of a table this transaction has read."""
    cursor.execute(READ, [table])
    [(rows,)] = cursor.fetchall()
    return int(rows)


def blocks_read(cursor: Any, table: str) -> int:
    """Return how many blocks of a table and its indexes this transaction has read."""
    cursor.execute(BLOCKS, [table])
    [(blocks,)] = cursor.fetchall()
    return int(blocks)
