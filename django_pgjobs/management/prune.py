"""What `manage.py jobs prune` does: deletes what is past its retention, or counts it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
from django.core.management.base import CommandError

from django_pgjobs.conf import get_conf
from django_pgjobs.management.arguments import add_action, span
from django_pgjobs.management.printing import Write
from django_pgjobs.management.starting import unreachable
from django_pgjobs.queries.batch_care import count_due_trees
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.database import job_database
from django_pgjobs.queries.errors import Trouble, trouble_of
from django_pgjobs.queries.jobs import OldJobs, count_old_jobs
from django_pgjobs.status import JobStatus
from django_pgjobs.values.words import counted
from django_pgjobs.worker.process.exit_status import EXIT_UNREACHABLE
from django_pgjobs.worker.process.pruner import Pruning, kept_trees, retentions_of

# A dry run counts no further, for each status.
MAX_COUNTED = 100_000
KEPT = {
    JobStatus.SUCCESSFUL: "RETENTION_SECONDS",
    JobStatus.CANCELLED: "RETENTION_SECONDS",
    JobStatus.FAILED: "FAILED_RETENTION_SECONDS",
}
DESCRIPTION = f"""
Deletes finished jobs that are older than their retention, as workers do once a minute and
runjobs --drain does before it ends: successful and cancelled ones after
PGJOBS['RETENTION_SECONDS'], failed ones after PGJOBS['FAILED_RETENTION_SECONDS']. A failed or
cancelled job stays while another job still waits for it. A workflow is deleted as a whole, as long
after its end, once its owner has been told (workflow_expiring). Also deletes rows of workers that
ended a day ago, outcomes of occurrences of schedules, after the longer of the two retentions and a
day at least, and states of rate limits that were not used for a day. Before that, jobs that still
wait for ended ones are released, or cancelled, as a worker would do at that moment. Expired jobs
are left to workers, which end them.

Deletes 2,000 jobs at a time, each page in a transaction of its own, so it may run beside workers,
be stopped and be started again. --dry-run changes nothing, and counts up to {MAX_COUNTED:,} jobs of
each status, and as many workflows.
"""
EPILOG = """
examples:
  manage.py jobs prune --dry-run
  manage.py jobs prune
  manage.py jobs prune --retention 1d --failed-retention 14d
"""


def add_prune(actions: Any) -> None:
    """Add the action to those of `jobs`."""
    parser = add_action(
        actions,
        "prune",
        help="Delete finished jobs that are older than their retention.",
        description=DESCRIPTION,
        epilog=EPILOG,
        fails="some jobs could not be deleted",
    )
    parser.add_argument("--dry-run", action="store_true", help="Only count.")
    for flag, which, setting in (
        ("--retention", "successful and cancelled", "RETENTION_SECONDS"),
        ("--failed-retention", "failed", "FAILED_RETENTION_SECONDS"),
    ):
        parser.add_argument(
            flag,
            type=span,
            metavar="7d",
            help=f"Delete {which} jobs so long after their end: s m h d (default: {setting}).",
        )


def prune(
    write: Write,
    *,
    retention: timedelta | None,
    failed_retention: timedelta | None,
    dry_run: bool,
    **flags: Any,
) -> None:
    """Delete or count, and write a line for each kind; the settings say what is not given.

    Raise CommandError if something could not be deleted.
    """
    conf = get_conf()
    retentions = retentions_of(
        retention.total_seconds() if retention else conf.RETENTION_SECONDS,
        failed_retention.total_seconds() if failed_retention else conf.FAILED_RETENTION_SECONDS,
    )
    alias = conf.WORKER_DATABASE or job_database()
    connection = OwnConnection(alias, "prune")
    try:
        connection.open()
    except psycopg.OperationalError as error:
        raise unreachable(alias, error) from error
    try:
        if dry_run:
            _count(write, connection, retentions)
        else:
            _delete(write, connection, retentions)
    except psycopg.Error as error:
        status = EXIT_UNREACHABLE if trouble_of(error) is Trouble.LOST else 1
        said = f"not all was pruned: {' '.join(str(error).split())}"
        raise CommandError(said, returncode=status) from error
    finally:
        connection.close()


def _count(
    write: Write,
    connection: OwnConnection,
    retentions: dict[JobStatus, float | None],
) -> None:
    for status, retention in retentions.items():
        if retention is None:
            write(_kept(status))
            continue
        with connection.cursor() as cursor:
            count = count_old_jobs(cursor, OldJobs(status.value, retention), max_jobs=MAX_COUNTED)
        write(f"{status.value} jobs: {_known(count)} would be deleted{_older_than(retention)}")
    with connection.cursor() as cursor:
        kept = kept_trees(retentions, get_conf().WORKFLOW_NOTICE_SECONDS)
        trees = count_due_trees(cursor, kept, max_trees=MAX_COUNTED)
    write(f"workflows: {_known(trees)} would be deleted, with their jobs")


def _known(count: int) -> str:
    return f"at least {count}" if count == MAX_COUNTED else str(count)


def _delete(
    write: Write,
    connection: OwnConnection,
    retentions: dict[JobStatus, float | None],
) -> None:
    pruning = Pruning(connection, retentions, notice=get_conf().WORKFLOW_NOTICE_SECONDS)
    try:
        for step in pruning.steps_by_hand:
            step()
    finally:
        deleted = pruning.deleted
        for status, retention in retentions.items():
            said = f"{status.value} jobs: {deleted[status.value]} deleted"
            write(_kept(status) if retention is None else said + _older_than(retention))
        write(f"workflows: {deleted['workflows']} deleted")
        write(f"rows of workers: {deleted['workers']} deleted")
        write(f"occurrences of schedules: {deleted['occurrences']} deleted")
        write(f"states of rate limits: {deleted['states of rate limits']} deleted")
    if pruning.refused:
        ids = ", ".join(map(str, sorted(pruning.refused)[:5]))
        raise CommandError(
            f"{counted(len(pruning.refused), 'job')} could not be deleted, such as {ids}; the log "
            "says why."
        )


def _kept(status: JobStatus) -> str:
    return f"{status.value} jobs: kept for ever, as PGJOBS['{KEPT[status]}'] is None"


def _older_than(retention: float) -> str:
    units = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
    unit, size = next((it for it in units.items() if retention % it[1] == 0), ("s", 1))
    return f" that ended more than {retention / size:.15g}{unit} ago"
