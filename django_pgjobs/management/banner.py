"""What `runjobs` prints first: what runs, and what is probably a mistake."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import django

import django_pgjobs
from django_pgjobs.conf import OWN_QUEUE
from django_pgjobs.declaring.registry import is_own, list_broken_modules, list_task_paths
from django_pgjobs.declaring.remote import remote_queues
from django_pgjobs.management.spelling import declared_queues, doubt_of_queue
from django_pgjobs.queries.database import job_database, pool_size
from django_pgjobs.queries.server import Server
from django_pgjobs.worker.safe_log import get_logger
from django_pgjobs.worker.state import Options

logger = get_logger("django_pgjobs.worker")


def banner(options: Options, server: Server, processes: int) -> list[str]:
    """Return what runs, a line for each thing."""
    versions = (
        f"django-pgjobs {django_pgjobs.__version__} · Django {django.get_version()} · "
        f"Python {sys.version.split()[0]} · PostgreSQL {server.version} "
        f'(database "{server.database}")'
    )
    listens = _listen_words(options.listen, server.is_direct)
    lines = [
        versions,
        f"queues  {_queue_words(options)} ({processes} x {options.concurrency} threads)",
        f"tasks   {len(declared_tasks())} found",
        f"listen  {listens} (poll at most every {options.poll_interval:g} s)",
    ]
    if options.health_port is not None:
        host = f"[{options.health_host}]" if ":" in options.health_host else options.health_host
        lines.append(f"health  http://{host}:{options.health_port}/")
    return lines


def log_first(lines: list[str], warnings: list[str]) -> None:
    """Log what is else printed, for programs: to them each line is an object."""
    for line in lines:
        logger.info("%s", line)
    for warning in warnings:
        logger.warning("%s", warning)


def _queue_words(options: Options) -> str:
    queues = ",".join(options.queues) if options.queues else "all"
    for queue, slots in options.queue_slots.items():
        queues += f", {queue} at most {slots}"
    if options.excluded_queues:
        queues += " but " + ",".join(options.excluded_queues)
    return queues


def _listen_words(wanted: bool, is_direct: bool) -> str:
    if not wanted:
        return "off"
    return "on" if is_direct else "off (behind a pooler; see PGJOBS['WORKER_DATABASE'])"


def warnings_of(options: Options, server: Server, processes: int) -> Iterator[str]:
    """Yield what is probably a mistake."""
    for broken in list_broken_modules():
        yield f"{broken}. Its tasks are left out: their jobs wait for another worker."
    for name in sorted(set(options.queues or ()) - set(server.queues) - declared_queues()):
        yield doubt_of_queue(name)
    for name in sorted(set(options.queues or ()) & set(remote_queues())):
        yield (
            f"all tasks of the queue {name!r} are remote: workers over HTTP run them, this one "
            "does not."
        )
    if OWN_QUEUE in options.excluded_queues:
        yield (
            f"--exclude-queues leaves out {OWN_QUEUE!r}, the queue of bulk changes: they wait "
            "until another worker serves it."
        )
    database = job_database()
    size, wanted = pool_size(database), options.concurrency + 1
    if size is not None and size < wanted:
        yield (
            f"jobs may use {wanted} connections at a time ({options.concurrency} threads, and one "
            f"for async jobs), and the pool of the database {database!r} has {size}: jobs that get "
            "none for its timeout fail. Raise its max_size, or lower --concurrency."
        )
    each = options.count_connections(database)
    if server.is_direct and server.free < processes * each:
        yield (
            f"this command opens up to {processes * each} connections ({processes} x {each}), and "
            f"the server has room for {max(server.free, 0)} more: jobs and workers will fail to "
            "connect. Raise max_connections (and CONNECTION LIMIT of the role and the database, "
            "if they have one), lower --processes or --concurrency, or let jobs go through a "
            "pooler."
        )


def declared_tasks() -> list[str]:
    """Return the paths of the project's tasks, without our own."""
    return [path for path in list_task_paths() if not is_own(path)]
