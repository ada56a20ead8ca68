"""`manage.py jobs stuck`: which running jobs look stuck."""

from __future__ import annotations

from typing import Any

from django.db import connections

from django_pgjobs.control.stuck import Stuck, find_stuck
from django_pgjobs.management.printing import Write, json_text, write_table
from django_pgjobs.queries.database import job_database
from django_pgjobs.values.moments import duration

COLUMNS = ("id", "running", "queue_name", "worker", "task_path", "why")


def list_stuck(write: Write, *, as_json: bool) -> None:
    """Print the jobs that look stuck, the longest running first."""
    with connections[job_database()].cursor() as cursor:
        found = find_stuck(cursor)
    if as_json:
        write(json_text([_as_values(stuck) for stuck in found]))
        return
    rows = [
        [
            stuck.run.id,
            duration(stuck.run.seconds),
            stuck.run.queue_name,
            stuck.run.worker_name or "-",
            stuck.run.task_path,
            " ".join(text for _, text in stuck.reasons()),
        ]
        for stuck in found
    ]
    write_table(write, COLUMNS, rows)


def _as_values(stuck: Stuck) -> dict[str, Any]:
    usual = stuck.usual
    return {
        "id": stuck.run.id,
        "task_path": stuck.run.task_path,
        "queue_name": stuck.run.queue_name,
        "worker_id": stuck.run.worker_id,
        "worker": stuck.run.worker_name,
        "seconds": stuck.run.seconds,
        "usual_seconds": None if usual is None else list(usual),
        "still_seconds": stuck.still,
    }
