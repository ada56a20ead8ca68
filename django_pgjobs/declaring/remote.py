"""Remote tasks: declared here, run by workers over HTTP, in whatever language."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django_pgjobs.compat import AnyTask
from django_pgjobs.conf import DEFAULT_QUEUE, OWN_QUEUE
from django_pgjobs.declaring.registry import find_task, list_task_paths
from django_pgjobs.exceptions import UnknownTask


def is_remote(task: AnyTask | None) -> bool:
    """Is the task run by workers over HTTP only?"""
    return bool(getattr(task, "remote", False))


def is_remote_path(path: str) -> bool:
    """Is it the path of a remote task, as far as is known here?"""
    try:
        return is_remote(find_task(path))
    except UnknownTask:
        return False


def find_remote_problems(task: Any) -> Iterator[str]:
    """Yield what is wrong with the options of *task* that concern where it runs."""
    for option in ("takes_context", "atomic"):
        if task.remote and getattr(task, option):
            yield f"{option}=True contradicts remote=True: the task runs in another program."


def remote_paths() -> list[str]:
    """Return the paths of the remote tasks that are declared, sorted."""
    return [path for path in list_task_paths() if is_remote(find_task(path))]


def local_paths() -> list[str]:
    """Return the paths of all other tasks that are declared, sorted."""
    return [path for path in list_task_paths() if not is_remote(find_task(path))]


def remote_queues() -> list[str]:
    """Return the queues that only remote tasks declare, sorted."""
    # Workers serve these two, whatever tasks declare: rows of plain SQL are in the former.
    remote, local = set[str](), {DEFAULT_QUEUE, OWN_QUEUE}
    for path in list_task_paths():
        task = find_task(path)
        (remote if is_remote(task) else local).add(task.queue_name)
    return sorted(remote - local)
