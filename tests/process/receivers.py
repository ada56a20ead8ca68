"""A project's receivers that misbehave; a worker imports this through TASK_MODULES."""

from __future__ import annotations

from typing import Any

from django.db import connection, transaction

from django_pgjobs.compat import task_finished, task_started


def raise_always(**kwargs: Any) -> None:
    """Fail, with a transaction left open."""
    transaction.set_autocommit(False)
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    raise RuntimeError("the receiver failed")


task_started.connect(raise_always, dispatch_uid="tests.process.started")
task_finished.connect(raise_always, dispatch_uid="tests.process.finished")
