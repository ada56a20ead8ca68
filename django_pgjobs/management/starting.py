"""What `runjobs` does before it works: loads the tasks, and looks at the database."""

from __future__ import annotations

from collections.abc import Collection

import psycopg
from django.core.management.base import CommandError
from django.db import OperationalError

from django_pgjobs.checks import missing_rate_limits
from django_pgjobs.conf import Conf
from django_pgjobs.declaring.missing_limits import fact_of, remedy_for
from django_pgjobs.declaring.registry import discover_tasks
from django_pgjobs.declaring.remote import remote_queues
from django_pgjobs.exceptions import ServerUnreachable
from django_pgjobs.management.arguments import QueueSlots
from django_pgjobs.management.grants import WORKER, missing_grants
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.database import job_database
from django_pgjobs.queries.server import Server, describe_server, is_read_only
from django_pgjobs.worker.process.exit_status import EXIT_UNREACHABLE
from django_pgjobs.worker.process.schema import needed_schema
from django_pgjobs.worker.safe_log import get_logger

logger = get_logger("django_pgjobs.worker")

# The right that a worker can do without.
RECORD = "django_migrations"


def load_tasks(conf: Conf) -> None:
    """Import all modules of tasks; raise CommandError for a broken one, or go on without it."""
    broken = discover_tasks()
    if broken and conf.BROKEN_TASK_MODULES == "stop":
        names = "; ".join(map(str, broken))
        raise CommandError(
            f"{names}. Repair it, or set PGJOBS['BROKEN_TASK_MODULES'] = 'skip' to run the other "
            "tasks; --traceback shows more."
        ) from broken[0].error
    for module in broken:
        logger.error("tasks are left out: %s", module, exc_info=module.error)


def excluded_queues(served: QueueSlots, excluded: Collection[str]) -> tuple[str, ...]:
    """Return the queues to leave out: those of remote tasks, too, unless --queues names them."""
    if served.names is not None:
        return tuple(excluded)
    others = set(remote_queues()).difference(served.slots, excluded)
    return (*excluded, *sorted(others))


def look_at_server(alias: str) -> Server:
    """Return what the server behind *alias* is; raise CommandError if no worker can run on it."""
    try:
        return describe_server(OwnConnection(alias, "check"), needed_schema())
    except psycopg.OperationalError as error:
        raise unreachable(alias, error) from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise CommandError(
            f"the role of the database {alias!r} lacks a right: {str(error).strip()}. "
            "manage.py runjobs --check names all that it lacks.",
            returncode=EXIT_UNREACHABLE,
        ) from error
    except ServerUnreachable as error:
        raise CommandError(
            f"{error} Run manage.py migrate first.", returncode=EXIT_UNREACHABLE
        ) from error


def look_at_connections_of_jobs(alias: str) -> None:
    """Raise CommandError if the connections that jobs get from Django cannot write to *alias*."""
    try:
        if is_read_only(alias):
            raise takes_no_writes(alias, "the transactions of its connections are read-only.")
    except OperationalError as error:
        raise unreachable(alias, error) from error


def find_what_is_missing(alias: str) -> list[str]:
    """Return warnings about what is missing but not needed for a start: rights, rate limits.

    Raise CommandError if a role lacks a right that it needs.
    """
    rights = check_rights(alias)
    return rights + [f"{fact_of(each)} {remedy_for(each)}" for each in missing_rate_limits(alias)]


def check_rights(alias: str) -> list[str]:
    """Return warnings about rights that the roles of the worker and of its jobs might have.

    Raise CommandError if one lacks a right that it needs.
    """
    needed = {name: rights for name, rights in WORKER.items() if name != RECORD}
    spared: list[str] = []
    for each in sorted({alias, job_database()}):
        connection = OwnConnection(each, "check")
        try:
            lacks = bool(missing_grants(connection, needed))
            missing = missing_grants(connection, WORKER)
        except psycopg.OperationalError as error:
            raise unreachable(each, error) from error
        finally:
            connection.close()
        if lacks:
            raise CommandError(
                f"the role of the database {each!r} lacks rights. As the owner of the tables run:\n"
                + "\n".join(missing),
                returncode=EXIT_UNREACHABLE,
            )
        spared += missing
    return [
        f"the record of migrations may not be read, so only columns are compared. {grant}"
        for grant in spared
    ]


def unreachable(alias: str, error: Exception) -> CommandError:
    """Return what to say of a database that cannot be reached or takes no writes."""
    # In one line; that of a refused connection ends with a question.
    reason = " ".join(str(error).split())
    end = "" if reason.endswith((".", "?")) else "."
    # No attribute of the error says so; a server that speaks another language gets the other text.
    is_missing = "does not exist" in reason
    remedy = "Create it" if is_missing else "Start a server that takes writes"
    return CommandError(
        f"the database {alias!r} cannot be reached: {reason}{end} {remedy}, or correct DATABASES "
        "in the settings.",
        returncode=EXIT_UNREACHABLE,
    )


def takes_no_writes(alias: str, reason: str) -> CommandError:
    """Return what to say of a database that Django's connection may only read."""
    return CommandError(
        f"the database {alias!r} takes no writes: {reason} Lead DATABASES in the settings to a "
        "server that does, or reset default_transaction_read_only of the database or role.",
        returncode=EXIT_UNREACHABLE,
    )
