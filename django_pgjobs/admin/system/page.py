"""The page System: the database, its tables, the settings in force, and what to tell others."""

from __future__ import annotations

from collections.abc import Iterator

from django.http import HttpRequest, HttpResponse
from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext as _
from django.utils.translation import override

from django_pgjobs.admin.pages import PageAdmin
from django_pgjobs.admin.system.facts import (
    SystemFacts,
    gather,
    is_dirty,
    retention_of,
    tasks_setting,
    warnings_of,
)
from django_pgjobs.permissions import Verb, require
from django_pgjobs.queries.system import RelationRow
from django_pgjobs.warnings.rules import OLD_TRANSACTION_SECONDS

INDEXES_SHOWN = 15


def draw_system(model_admin: PageAdmin, request: HttpRequest) -> HttpResponse:
    """Return the page."""
    require(request, Verb.VIEW)
    facts = gather()
    with override("en"):
        diagnostics = "\n".join(_diagnostics(facts))
    context = {
        "title": _("System"),
        "pgjobs_page": "system",
        "facts": facts,
        "tables": [
            {"row": table, "is_dirty": is_dirty(table), "purpose": _purpose(table)}
            for table in facts.tables
        ],
        "indexes": facts.indexes[:INDEXES_SHOWN],
        "oldest": [
            {"label": status.label, "moment": moment, "retention": retention_of(status)}
            for status, moment in facts.oldest.items()
        ],
        "transactions": [
            {"row": row, "is_old": (row.seconds or 0) > OLD_TRANSACTION_SECONDS}
            for row in facts.transactions
        ],
        "skew_ms": round(facts.skew * 1000),
        "notify_percent": round(facts.server.notify_usage * 100, 1),
        "settings": [
            {"name": name, "value": repr(value), "is_changed": is_changed}
            for name, value, is_changed in facts.settings
        ],
        "diagnostics": diagnostics,
    }
    return model_admin.render_page(request, "system.html", context)


def _purpose(table: RelationRow) -> str:
    return {
        "pgjobs_job_live": _("ready and running jobs"),
        "pgjobs_job_finished": _("finished jobs"),
    }.get(table.name, "")


def _diagnostics(facts: SystemFacts) -> Iterator[str]:
    """Yield the lines to paste into a report: in English, and without names of hosts or rows."""
    server = facts.server
    yield ", ".join(f"{name} {version}" for name, version in facts.versions)
    yield from (f"WARNING {text}" for text in warnings_of(facts))
    yield (
        f"sessions={server.sessions}/{server.max_sessions} standby={server.is_standby} "
        f"notify_queue={server.notify_usage:.3f} prepared={server.prepared} "
        f"snapshot_slots={server.slots} clock_skew={facts.skew:.3f}s"
    )
    yield (
        f"autovacuum={server.autovacuum} synchronous_commit={server.synchronous_commit} "
        f"isolation={server.isolation!r} time_zone={server.time_zone} "
        f"idle_in_transaction_session_timeout={server.idle_timeout}"
    )
    yield f"migrations applied={','.join(facts.applied)}"
    yield f"migrations missing={','.join(facts.missing) or 'none'}"
    for table in (*facts.tables, *facts.indexes):
        kind = "index" if table.is_index else "table"
        yield (
            f"{kind} {table.name} size={filesizeformat(table.bytes)} rows~{table.rows} "
            f"dead={table.dead} autovacuum={table.last_autovacuum} scans={table.scans} "
            f"valid={table.is_valid}"
        )
    for row in facts.transactions:
        yield (
            f"transaction pid={row.pid} application={row.application!r} state={row.state!r} "
            f"seconds={row.seconds} waits_for={row.waits_for!r}"
        )
    for status, moment in facts.oldest.items():
        yield f"oldest {status.value}={moment} retention={retention_of(status)}"
    for name, value, is_changed in facts.settings:
        yield f"PGJOBS[{name!r}] = {value!r}{'' if is_changed else '  # default'}"
    yield f"TASKS = {tasks_setting()!r}"
    yield from (f"check {message.id}: {message.msg}" for message in facts.checks)
