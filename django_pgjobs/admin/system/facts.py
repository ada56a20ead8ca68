"""What the page System knows: of the server, tables and settings, and what is wrong there."""

from __future__ import annotations

import dataclasses
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import django
from django.conf import settings
from django.core.checks import CheckMessage
from django.db import connections
from django.db.migrations.recorder import MigrationRecorder
from django.utils.translation import gettext as _

import django_pgjobs
from django_pgjobs import migrations
from django_pgjobs.checks import run_own_checks
from django_pgjobs.conf import SECRETS, Conf, get_conf
from django_pgjobs.declaring.redaction import MASK, redact
from django_pgjobs.queries import system
from django_pgjobs.queries.database import job_database
from django_pgjobs.queries.system import RelationRow, ServerRow, TransactionRow
from django_pgjobs.status import JobStatus
from django_pgjobs.values.moments import now_aware
from django_pgjobs.warnings.rules import MANY_DEAD_ROWS, OLD_TRANSACTION_SECONDS

# Beyond these something is wrong, and the page says so.
DEAD_SHARE = 0.5
SKEW_SECONDS = 1.0
NOTIFY_USAGE = 0.5
SESSION_SHARE = 0.9
# Pruning comes once a minute, in pages; so long it may lag behind.
PRUNING_LAG_SECONDS = 86_400.0


@dataclasses.dataclass
class SystemFacts:
    """Everything that the page shows."""

    server: ServerRow
    skew: float
    tables: list[RelationRow]
    indexes: list[RelationRow]
    transactions: list[TransactionRow]
    oldest: dict[JobStatus, datetime | None]
    applied: list[str]
    missing: list[str]
    checks: list[CheckMessage]
    settings: list[tuple[str, Any, bool]]
    versions: list[tuple[str, str]]
    warnings: list[str]


def gather() -> SystemFacts:
    """Ask the server and the process for all that the page shows."""
    alias = job_database()
    with connections[alias].cursor() as cursor:
        asked_at = now_aware()
        server = system.get_server(cursor)
        answered_at = now_aware()
        relations = system.list_relations(cursor)
        transactions = system.list_transactions(cursor)
    applied, missing = _migrations(alias)
    facts = SystemFacts(
        server=server,
        # The server answered somewhere between the question and its arrival here.
        skew=(server.now - (asked_at + (answered_at - asked_at) / 2)).total_seconds(),
        tables=[row for row in relations if not row.is_index],
        indexes=[row for row in relations if row.is_index],
        transactions=transactions,
        oldest={
            JobStatus.SUCCESSFUL: server.oldest_successful,
            JobStatus.FAILED: server.oldest_failed,
            JobStatus.CANCELLED: server.oldest_cancelled,
        },
        applied=applied,
        missing=missing,
        checks=run_own_checks(),
        settings=_settings(),
        versions=_versions(server),
        warnings=[],
    )
    facts.warnings = warnings_of(facts)
    return facts


def warnings_of(facts: SystemFacts) -> list[str]:
    """Return what is wrong, in the active language."""
    return [
        *_warnings_of_transactions(facts),
        *_warnings_of_server(facts),
        *_warnings_of_tables(facts),
    ]


def _migrations(alias: str) -> tuple[list[str], list[str]]:
    """Return the names of our migrations: those that were applied, those that were not."""
    names = sorted(path.stem for path in Path(*migrations.__path__).glob("[0-9]*.py"))
    rows = MigrationRecorder(connections[alias]).migration_qs.filter(app="pgjobs")
    applied = set(rows.values_list("name", flat=True))
    return sorted(applied), [name for name in names if name not in applied]


def _settings() -> list[tuple[str, Any, bool]]:
    """Return name, value and "is this not the default?" of each key of PGJOBS, masked."""
    conf, default = get_conf(), Conf()
    values = {field.name: getattr(conf, field.name) for field in dataclasses.fields(Conf)}
    masked = redact({name: _plain(value) for name, value in values.items()})
    # What is not set and what is a flag is no secret, whatever its name is.
    masked |= {name: value for name, value in values.items() if isinstance(value, bool | None)}
    # Whatever the project's own expressions are.
    masked |= {name: MASK for name in SECRETS if values[name] is not None}
    return [(name, masked[name], values[name] != getattr(default, name)) for name in values]


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    if hasattr(value, "items"):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _versions(server: ServerRow) -> list[tuple[str, str]]:
    return [
        ("django-pgjobs", django_pgjobs.__version__),
        ("Django", django.get_version()),
        ("Python", sys.version.split()[0]),
        ("PostgreSQL", server.version),
    ]


def _warnings_of_transactions(facts: SystemFacts) -> list[str]:
    text = _(
        "A transaction has been open for %(minutes)d minutes (process %(pid)d, %(application)s, "
        "%(state)s). As long as it is, nothing that was deleted can be cleaned up, and every "
        "claim gets slower: find out what it waits for, or end it with "
        "pg_terminate_backend(%(pid)d)."
    )
    return [
        text
        % {
            "minutes": row.seconds // 60,
            "pid": row.pid,
            "application": row.application or "?",
            "state": row.state or "?",
        }
        for row in facts.transactions
        if row.seconds is not None and row.seconds > OLD_TRANSACTION_SECONDS
    ]


def _warnings_of_server(facts: SystemFacts) -> list[str]:
    server, found = facts.server, []
    if server.prepared:
        found.append(
            _("%(count)d prepared transactions are open; they hold up vacuum as well.")
            % {"count": server.prepared}
        )
    if server.slots:
        found.append(
            _("%(count)d replication slots hold an old snapshot, which holds up vacuum as well.")
            % {"count": server.slots}
        )
    if server.autovacuum != "on":
        found.append(_("autovacuum is off: the tables grow without end."))
    if server.notify_usage > NOTIFY_USAGE:
        found.append(
            _("The notification queue is more than half full: a session that listens is stuck.")
        )
    if server.sessions > SESSION_SHARE * server.max_sessions:
        found.append(_("Nearly all connections of the server are in use."))
    if server.is_standby:
        found.append(_("The server is a standby: nothing can be written."))
    if abs(facts.skew) > SKEW_SECONDS:
        found.append(
            _("The clocks of this process and of the server differ by %(seconds).1f s.")
            % {"seconds": facts.skew}
        )
    return found


def _warnings_of_tables(facts: SystemFacts) -> list[str]:
    found = [
        _("%(table)s has more dead rows than autovacuum should leave: %(dead)d.")
        % {"table": table.name, "dead": table.dead}
        for table in facts.tables
        if is_dirty(table)
    ]
    found += [
        _("The index %(name)s is not valid: rebuild it with REINDEX INDEX CONCURRENTLY.")
        % {"name": index.name}
        for index in facts.indexes
        if not index.is_valid
    ]
    for status, moment in facts.oldest.items():
        retention = retention_of(status)
        if moment is None or retention is None:
            continue
        age = (facts.server.now - moment).total_seconds()
        if age > retention + PRUNING_LAG_SECONDS:
            found.append(
                _("Jobs that should have been deleted are still there (%(status)s).")
                % {"status": status.label}
            )
    if facts.missing:
        found.append(
            _("Migrations are missing: %(names)s. Run manage.py migrate.")
            % {"names": ", ".join(facts.missing)}
        )
    return found + [str(message.msg) for message in facts.checks if message.is_serious()]


def is_dirty(table: RelationRow) -> bool:
    """Has the table many more dead rows than autovacuum would leave?"""
    dead = table.dead or 0
    return dead > MANY_DEAD_ROWS and dead > DEAD_SHARE * (table.rows or 0)


def retention_of(status: JobStatus) -> float | None:
    """Return for how many seconds finished jobs of a status are kept, None for ever."""
    conf = get_conf()
    return conf.FAILED_RETENTION_SECONDS if status == JobStatus.FAILED else conf.RETENTION_SECONDS


def tasks_setting() -> dict[str, Any]:
    """Return what TASKS says of its backends, without their options."""
    return {
        alias: {"BACKEND": entry.get("BACKEND"), "QUEUES": entry.get("QUEUES")}
        for alias, entry in getattr(settings, "TASKS", {}).items()
    }
