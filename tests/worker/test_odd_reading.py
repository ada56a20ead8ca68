"""Every statement that only reads, beside rows with odd values: pages and looks can be made.

More of such rows in `test_odd_rows`.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from psycopg import sql

from django_pgjobs.queries.cursor import PLACEHOLDER, statement
from tests.factories import make_worker
from tests.helpers import execute
from tests.odd_rows import STORABLE, Rows
from tests.test_sql import FILES

pytestmark = pytest.mark.django_db

# What pages and the worker's looks read; the parameters are of every one of them.
READS = re.compile("check|count|describe|explain|find|get|list|overview|pin|sweep|system|wake")
# What a claim chooses from is read by claims; rights are not in rows.
READING = sorted(
    {path.stem for path in FILES if READS.match(path.stem)} - {"list_heads", "list_missing_rights"}
)
ANSWERS: dict[str, Any] = {
    "task_path": "tests.tasks.add",
    "queue_name": "default",
    "backend": "default",
    "channel": "pgjobs",
    "unique_key": "key",
    "concurrency_key": "key",
    "keys": ["key"],
    "names": ["limit"],
    "costs": [1],
    **dict.fromkeys(("moment", "now"), "2026-01-01 00:00+00"),
    **dict.fromkeys(("newest_first", "with_lowest", "is_told", "of_tree"), True),
    "bucket_seconds": 3600,
    "predecessor_id": 0,
    "job_id": 0,
    "roles": ["web"],
    "tables": ["pgjobs_job"],
    "columns": ["id"],
    "excluded": [],
    "tasks": ["tests.tasks.add"],
    "schedules": ["each hour"],
    "waits_for": [1],
    "statuses": ["failed"],
    "roots": [1],
    "marked": [1],
    "queue_names": None,
    "also_names": [],
    "waiting_names": ["default"],
    "notes": ["unknown task"],
    "task_paths": None,
    "detailed": True,
    "detailed_paths": [],
}


def read_everything(odd_ids: list[int]) -> None:
    """Run all statements that only read, about each of these rows and about all."""
    for name in READING:
        names = [name for name in PLACEHOLDER.findall(statement(name)) if name]
        for odd_id in odd_ids if "id" in names else odd_ids[:1]:
            known = ANSWERS | {"id": odd_id, "ids": odd_ids, "worker_id": odd_id}
            known["worker_ids"] = known["batch_ids"] = known["claims"] = odd_ids
            with transaction.atomic(), connection.cursor() as cursor:
                try:
                    cursor.execute(statement(name), {p: known.get(p, 100) for p in names})
                except DatabaseError as error:
                    error.add_note(f"in {name}")
                    raise


@pytest.mark.slow
@pytest.mark.parametrize("status", ["running", "ready", "failed"])
def test_pages_are_read_beside_odd_rows(status: str) -> None:
    """All of them at once: the error of the server tells the value."""
    execute("INSERT INTO pgjobs_rate_limit (name, count, period) VALUES ('limit', 1, 31622400)")
    execute(
        "INSERT INTO pgjobs_rate_state (key, next_free, taken_at, taken_since)"
        " VALUES ('limit', 'infinity', '{-infinity,NULL,now,infinity}', '{1,-7,2147483647}')"
    )
    given: dict[str, Any] = {"status": status}
    if status == "running":
        given["worker_id"] = make_worker(
            started_at=sql.SQL("'-infinity'"), lease_expires_at=sql.SQL("'infinity'")
        )
    if status == "failed":
        given |= dict.fromkeys(("finished_at", "last_attempted_at"), sql.SQL("now()"))
    if status == "ready":
        given |= {"concurrency_key": "key", "unique_key": None, "rate_limit_keys": "limit"}
    made = [Rows(odd).make(**given) for odd in STORABLE]
    read_everything([odd_id for odd_id, _ in made])
