"""The rights that a role of the database needs to be a worker, or a web process.

Functions and triggers run with the rights of whoever calls them, so what they do is in here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.database import job_cursor
from django_pgjobs.queries.grants import DatabaseObject, Right, list_missing_rights, list_objects

Rights = Mapping[str, str]
# A right, and the columns that it is for.
RIGHT = re.compile(r"([A-Z]+)(?: \(([^)]*)\))?")

# Adding to batches, or finishing their jobs, may count them and enqueue what follows.
BATCHES: Rights = {
    "pgjobs_batch": "SELECT, INSERT, UPDATE, DELETE",
    "pgjobs_batch_edge": "SELECT, INSERT, DELETE",
    "pgjobs_batch_change": "SELECT, INSERT, DELETE",
    "pgjobs_batch_key": "SELECT, INSERT, DELETE",
    "pgjobs_batch_page": "SELECT, INSERT, UPDATE, DELETE",
}
# Enqueues, reads and changes jobs, pauses, takes rate limits, and serves the admin.
WEB: Rights = {
    **BATCHES,
    "pgjobs_job": "SELECT, INSERT, UPDATE",
    "pgjobs_job_live": "SELECT, INSERT, UPDATE",
    "pgjobs_job_finished": "SELECT, UPDATE, DELETE",
    "pgjobs_dependency": "SELECT, INSERT, DELETE",
    "pgjobs_worker": "SELECT, UPDATE (quiet_requested_at, stop_requested_at), DELETE",
    "pgjobs_pause": "SELECT, INSERT, UPDATE, DELETE",
    "pgjobs_queue_settings": "SELECT, INSERT, UPDATE, DELETE",
    "pgjobs_concurrency_limit": "SELECT, INSERT, UPDATE, DELETE",
    "pgjobs_rate_limit": "SELECT, INSERT, UPDATE, DELETE",
    "pgjobs_rate_state": "SELECT, INSERT, UPDATE, DELETE",
    "pgjobs_bulk_change": "SELECT, INSERT, UPDATE",
    "pgjobs_schedule": "SELECT, INSERT, UPDATE, DELETE",
    # To undo a skip is to delete its row.
    "pgjobs_occurrence": "SELECT, INSERT, UPDATE, DELETE",
    "pgjobs_statistic": "SELECT, INSERT",
    "pgjobs_statistic_sum": "SELECT",
    "pgjobs_queue_sample": "SELECT",
    "pgjobs_stack": "SELECT, INSERT, UPDATE, DELETE",
    "pgjobs_mute": "SELECT, INSERT, UPDATE, DELETE",
    "pgjobs_token": "SELECT, INSERT, UPDATE",
    "django_migrations": "SELECT",
}
# Claims and finishes jobs, rescues and prunes; its jobs enqueue and change jobs.
WORKER: Rights = {
    **BATCHES,
    "pgjobs_job": "SELECT, INSERT, UPDATE",
    "pgjobs_job_live": "SELECT, INSERT, UPDATE",
    "pgjobs_job_finished": "SELECT, UPDATE, DELETE",
    "pgjobs_dependency": "SELECT, INSERT, DELETE",
    "pgjobs_worker": "SELECT, INSERT, UPDATE, DELETE",
    "pgjobs_keyed_claim": "SELECT, INSERT, UPDATE",
    "pgjobs_pause": "SELECT",
    "pgjobs_queue_settings": "SELECT",
    "pgjobs_concurrency_limit": "SELECT",
    "pgjobs_rate_limit": "SELECT",
    "pgjobs_rate_state": "SELECT, INSERT, UPDATE, DELETE",
    "pgjobs_bulk_change": "SELECT, UPDATE",
    "pgjobs_schedule": "SELECT, INSERT, UPDATE",
    "pgjobs_occurrence": "SELECT, INSERT, UPDATE, DELETE",
    "pgjobs_statistic": "SELECT, INSERT, DELETE",
    "pgjobs_statistic_sum": "SELECT, INSERT, DELETE",
    "pgjobs_queue_sample": "SELECT, INSERT, UPDATE, DELETE",
    "pgjobs_stack": "SELECT, UPDATE",
    # For `jobs doctor`.
    "pgjobs_mute": "SELECT",
    "django_migrations": "SELECT",
}


def make_grants(wanted: Sequence[tuple[str, Rights]]) -> list[str]:
    """Return the GRANT statements that give each role its rights, from what is in the schema.

    Raise LookupError if the tables are not there.
    """
    with job_cursor() as cursor:
        found = list_objects(cursor, [role for role, _ in wanted])
    if not any(each.kind == "schema" for each in found):
        raise LookupError("there is no table pgjobs_job. Run manage.py migrate first.")
    quoted = {each.name: each.quoted for each in found if each.kind == "role"}
    return [line for role, rights in wanted for line in _grants(quoted[role], rights, found)]


def missing_grants(connection: OwnConnection, rights: Rights) -> list[str]:
    """Return the GRANT statements that the role of *connection* lacks, none if it has all."""
    with connection.cursor() as cursor:
        found = list_objects(cursor, [])
        wanted = [each for object_ in found for each in _rights_on(object_, rights)]
        role, missing = list_missing_rights(cursor, wanted)
    lacking: dict[DatabaseObject, list[str]] = {}
    for right in missing:
        name = right.name if right.column is None else f"{right.name} ({right.column})"
        lacking.setdefault(right.on, []).append(name)
    granted: dict[str, list[str]] = {}
    for each, names in lacking.items():
        granted.setdefault(f"{', '.join(names)} ON {each.kind.upper()}", []).append(each.quoted)
    return [f"GRANT {what} {', '.join(names)} TO {role};" for what, names in granted.items()]


def _rights_on(each: DatabaseObject, rights: Rights) -> Iterator[Right]:
    """Yield one by one what is written as "SELECT, UPDATE (a, b)"."""
    for name, columns in RIGHT.findall(_right_on(each, rights) or ""):
        for column in columns.split(", "):
            yield Right(each, name, column or None)


def _grants(role: str, rights: Rights, found: Sequence[DatabaseObject]) -> Iterator[str]:
    for what, names in _granted(rights, found).items():
        yield f"GRANT {what} {', '.join(names)} TO {role};"


def _granted(rights: Rights, found: Sequence[DatabaseObject]) -> dict[str, list[str]]:
    """Return what is granted -> on what, with objects of the same rights together."""
    granted: dict[str, list[str]] = {}
    for kind in ("schema", "table", "sequence", "function"):
        for each in found:
            if each.kind == kind and (right := _right_on(each, rights)):
                granted.setdefault(f"{right} ON {kind.upper()}", []).append(each.quoted)
    return granted


def _right_on(each: DatabaseObject, rights: Rights) -> str | None:
    if each.kind == "table":
        return rights.get(each.name)
    if each.kind == "sequence":
        return "USAGE" if "INSERT" in rights.get(each.table or "", "") else None
    return "USAGE" if each.kind == "schema" else "EXECUTE"
