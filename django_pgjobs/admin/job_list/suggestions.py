"""Names of queues, tasks and workers to choose from, read from a bounded number of rows."""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any

from django.core.exceptions import EmptyResultSet
from django.db import connections
from django.db.models import QuerySet, TextField, Value
from django.db.models.functions import Cast

from django_pgjobs.declaring.registry import find_task, list_task_paths
from django_pgjobs.models import Job, QueueSettings, Worker
from django_pgjobs.queries.job_list import list_pairs

# The newest rows of a table that are looked at, and what a filter offers; more can be typed.
RECENT_JOBS = 2_000
RECENT_WORKERS = 200
MAX_NAMES = 200


def list_names(jobs: QuerySet[Job], is_narrowed: bool) -> dict[str, list[str]]:
    """Return names by kind: "queue", "task" and "worker".

    They are those of the newest of *jobs*, of the settings of queues, of the workers, and of
    the tasks that this process has loaded; of *jobs* alone if *is_narrowed*, which are then not
    all there are.
    """
    names: dict[str, set[str]] = {"queue": set(), "task": set(), "worker": set()}
    for path, queue in [] if is_narrowed else _declared(len(sys.modules)):
        names["task"].add(path)
        names["queue"].add(queue)
    for kind, name in _stored(jobs, is_narrowed):
        names[kind].add(name)
    return {kind: sorted(found)[:MAX_NAMES] for kind, found in names.items()}


@lru_cache(maxsize=1)
def _declared(modules: int) -> list[tuple[str, str]]:
    """Return (path, queue) of each task; looked for again when *modules* are loaded."""
    return [(path, find_task(path).queue_name) for path in list_task_paths()]


def _stored(jobs: QuerySet[Job], is_narrowed: bool) -> list[tuple[str, str]]:
    recent = jobs.order_by("-id")
    if is_narrowed:
        newest = Job.objects.order_by("-id").values("pk")[:RECENT_JOBS]
        recent = recent.filter(pk__in=newest)
    parts = [
        _named(recent, "queue", "queue_name", RECENT_JOBS),
        _named(recent, "task", "task_path", RECENT_JOBS),
    ]
    if not is_narrowed:
        parts += [
            _named(QueueSettings.objects.order_by("pk"), "queue", "queue_name", MAX_NAMES),
            _named(Worker.objects.order_by("-id"), "worker", "name", RECENT_WORKERS),
        ]
    united = parts[0].union(*parts[1:], all=True)
    try:
        sql, params = united.query.get_compiler(using=jobs.db).as_sql()
    except EmptyResultSet:
        return []
    with connections[jobs.db].cursor() as cursor:
        return list_pairs(cursor, sql, params)


def _named(rows: QuerySet[Any], kind: str, column: str, limit: int) -> QuerySet[Any]:
    word = Cast(Value(kind), TextField())
    named: QuerySet[Any] = rows.annotate(pgjobs_kind=word).values_list("pgjobs_kind", column)
    return named[:limit]
