"""`manage.py jobs enqueue`: one job from a shell, a crontab or another scheduler."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import CommandError

from django_pgjobs.compat import InvalidTask
from django_pgjobs.declaring.registry import discover_tasks, find_task
from django_pgjobs.enqueueing.meeting import noting_met
from django_pgjobs.exceptions import JobError, UnknownTask
from django_pgjobs.management.arguments import add_action, examples, span
from django_pgjobs.management.printing import Write
from django_pgjobs.management.spelling import nearest

DESCRIPTION = """
Enqueues one job and exits; a worker runs it. So a project that keeps cron elsewhere writes it into
its crontab.

If a live job has its unique key, it prints that one, and what became of the enqueue.
"""
# What is done, by `on_conflict`, where a live job has the unique key.
WHERE_MET = {
    "return": "was there already and has the unique key; nothing enqueued",
    "merge": "was there already; merged into it",
    "replace": "was there already; its arguments were replaced",
}


def add_enqueue(actions: Any) -> None:
    """Add the action to those of `jobs`."""
    parser = add_action(
        actions,
        "enqueue",
        help="Enqueue a job of a task.",
        description=DESCRIPTION,
        epilog=examples(
            "enqueue shop.tasks.report --args '[\"week\"]'",
            'enqueue shop.tasks.report --args \'{"kind": "week"}\' --queue slow --in 10m',
        ),
        fails="there is no such task, or it refuses the job",
    )
    parser.add_argument("task", metavar="TASK", help="Its path: shop.tasks.push_product.")
    parser.add_argument(
        "--args",
        default="[]",
        metavar="JSON",
        dest="arguments",
        help='Arguments: a list \'["week"]\', or an object \'{"kind": "week"}\' (default: none).',
    )
    parser.add_argument(
        "--queue", metavar="NAME", help="Another queue (default: that of the task)."
    )
    parser.add_argument(
        "--priority",
        type=int,
        metavar="N",
        help="Another priority, -100 to 100 (default: that of the task).",
    )
    parser.add_argument(
        "--in",
        type=span,
        dest="delay",
        metavar="10m",
        help="Not before: s m h d (default: at once).",
    )


def enqueue(write: Write, **flags: Any) -> None:
    """Enqueue the job; raise CommandError if there is no such task, ValueError for bad values."""
    broken = discover_tasks()
    try:
        task = find_task(flags["task"])
    except UnknownTask as error:
        more = "".join(f" {module}" for module in broken if str(module) not in str(error))
        raise CommandError(f"{error}{more} {nearest(flags['task'])}".rstrip()) from None
    args, kwargs = read_arguments(flags["arguments"])
    options = {
        "queue_name": flags["queue"],
        "priority": flags["priority"],
        "run_after": flags["delay"],
    }
    given = {name: value for name, value in options.items() if value is not None}
    try:
        with noting_met() as met:
            result = (task.using(**given) if given else task).enqueue(*args, **kwargs)
    except JobError as error:
        raise CommandError(str(error)) from None
    except InvalidTask as error:
        raise ValueError(str(error)) from None
    how = getattr(task, "on_conflict", "return")
    said = WHERE_MET[how] if int(result.id) in met else "enqueued"
    write(f"job {result.id}: {said}")


def read_arguments(text: str) -> tuple[list[Any], dict[str, Any]]:
    """Return positional and keyword arguments; raise ValueError for anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"--args expected JSON, got {text[:80]!r}: {error}") from None
    if isinstance(value, list):
        return value, {}
    if isinstance(value, dict):
        return [], value
    raise ValueError(f"--args expected a JSON list or object, got {text[:80]!r}.")
