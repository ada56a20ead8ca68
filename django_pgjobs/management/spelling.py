"""What commands warn of: names of queues and tasks that nobody knows, so probably mistyped."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from django_pgjobs.declaring.registry import discover_tasks, find_task, list_task_paths
from django_pgjobs.management.printing import Write
from django_pgjobs.models import Job
from django_pgjobs.queries.database import rows_of
from django_pgjobs.status import JobStatus
from django_pgjobs.values.payload import is_storable


def tell_doubts(
    tell: Write, *, queues: Iterable[str | None] = (), tasks: Iterable[str | None] = ()
) -> None:
    """Warn of each name that is not known; load the tasks if there are names. None is none.

    What no row can have is refused elsewhere.
    """
    for doubt in _doubts(set(filter(is_storable, queues)), set(filter(is_storable, tasks))):
        tell(f"WARNING {doubt}")


def _doubts(queues: set[str], tasks: set[str]) -> Iterator[str]:
    """Yield a sentence for each name that is not known."""
    queues, tasks = queues - {""}, tasks - {""}
    if not queues and not tasks:
        return
    broken = discover_tasks()
    unknown_tasks = sorted(tasks - set(list_task_paths()))
    if unknown_tasks:
        yield from map(str, broken)
    for path in unknown_tasks:
        yield f"no task {path} is declared here. {nearest(path) or 'Is it spelt right?'}"
    for name in sorted(queues - declared_queues()):
        if not rows_of(Job).filter(status=JobStatus.READY, queue_name=name).exists():
            yield doubt_of_queue(name)


def nearest(path: str) -> str:
    """Return what may have been meant: a declared task of that name, or the one most like it."""
    known = list_task_paths()
    same_name = [each for each in known if each.endswith(f".{path.rpartition('.')[2]}")]
    near = same_name or difflib.get_close_matches(path, known, 1, cutoff=0.8)
    return f"Did you mean {near[0]}?" if near else ""


def declared_queues() -> set[str]:
    """Return the queues that the declared tasks use."""
    return {find_task(path).queue_name for path in list_task_paths()}


def doubt_of_queue(name: str) -> str:
    """Return the sentence about a queue in which there is nothing."""
    return f"no task and no waiting job uses the queue {name!r}. Is it spelt right?"
