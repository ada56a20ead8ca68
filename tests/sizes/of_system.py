"""The page System against plain SQL."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psycopg
from django.db import connection
from django.template.defaultfilters import filesizeformat
from django.test import Client
from django.urls import reverse

from django_pgjobs.admin.system.page import INDEXES_SHOWN
from tests.helpers import backend_pid
from tests.sizes.compared import between, cells, facts, plain, query, steady

TABLES = """
SELECT
    relname, pg_total_relation_size(oid) - pg_indexes_size(oid), pg_indexes_size(oid),
    CASE WHEN reltuples >= 0 THEN reltuples::bigint END,
    pg_stat_get_dead_tuples(oid), pg_stat_get_last_autovacuum_time(oid),
    GREATEST(pg_stat_get_last_analyze_time(oid), pg_stat_get_last_autoanalyze_time(oid))
FROM pg_class WHERE relkind = 'r' AND relname LIKE 'pgjobs\\_%'
ORDER BY 2 DESC, relname
"""
INDEXES = """
SELECT indexrelname, relname, pg_total_relation_size(indexrelid), idx_scan
FROM pg_stat_user_indexes WHERE relname LIKE 'pgjobs\\_%%' ORDER BY 3 DESC, 1 LIMIT %s
"""
# Rows are estimated, by a sample of the pages.
JOBS = "SELECT count(*) FROM {}"
SERVER = """
SELECT
    (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()),
    (SELECT setting::integer FROM pg_settings WHERE name = 'max_connections'),
    (SELECT count(*) FROM django_migrations WHERE app = 'pgjobs')
"""
OLDEST = """
SELECT status, min(finished_at) FROM pgjobs_job WHERE finished_at IS NOT NULL GROUP BY status
"""
OPEN = """
SELECT
    EXTRACT(EPOCH FROM clock_timestamp() - xact_start),
    EXTRACT(EPOCH FROM query_start - xact_start)
FROM pg_stat_activity WHERE pid = %s
"""


def check(client: Client, open_connection: Callable[..., psycopg.Connection]) -> None:
    """Check the page."""

    def read() -> Any:
        return client.get(reverse("admin:pgjobs_job_system"))

    check_tables(read)
    check_indexes(read)
    check_server(read)
    check_oldest(read)
    check_transactions(read, open_connection)


def check_tables(read: Callable[[], Any]) -> None:
    wanted, response = steady(lambda: query(TABLES), read)
    text = response.content.decode()
    shown = response.context["facts"].tables
    assert wanted == [
        (r.name, r.bytes, r.index_bytes, r.rows, r.dead, r.last_autovacuum, r.last_analyze)
        for r in shown
    ]
    rows = [row for row in cells(text) if len(row) == 7 and row[0].startswith("pgjobs_")]
    for row, (name, size, indexes, about, dead, *times) in zip(rows, wanted, strict=True):
        assert row[0].split(" ")[0] == name
        assert row[1:5] == [
            "–" if about is None else f"{about}",
            f"{dead} too many" if dead > 50_000 and 2 * dead > (about or 0) else f"{dead}",
            *(plain(filesizeformat(number)) for number in (size, indexes)),
        ]
        assert [each == "–" for each in row[5:]] == [moment is None for moment in times]
        assert (
            f"table {name} size={filesizeformat(size)} rows~{about} dead={dead}"
            in (response.context["diagnostics"])
        )
    for row in wanted:
        if row[0] in ("pgjobs_job_live", "pgjobs_job_finished"):
            [(jobs,)] = query(JOBS.format(row[0]))
            assert abs(row[3] - jobs) <= 0.05 * jobs, row[0]


def check_indexes(read: Callable[[], Any]) -> None:
    wanted, response = steady(lambda: query(INDEXES, INDEXES_SHOWN), read)
    rows = cells(response.content.decode().partition("Largest indexes</summary>")[2])
    assert rows[1 : len(wanted) + 1] == [
        [name, table, plain(filesizeformat(size)), f"{scans}"]
        for name, table, size, scans in wanted
    ]


def check_server(read: Callable[[], Any]) -> None:
    asked_at = time.monotonic()
    [(sessions, most, migrations)], response = steady(lambda: query(SERVER), read)
    took = time.monotonic() - asked_at
    text = response.content.decode()
    shown = facts(text)
    assert shown["Sessions"] == f"{sessions} / {most}"
    assert f"sessions={sessions}/{most} " in response.context["diagnostics"]
    # Nobody notifies, and both clocks are one.
    assert shown["Notification queue"] == "0.0 % in use"
    assert abs(float(shown["Clock of the server"].split(" ")[0].replace(",", ""))) <= took * 1000
    assert f"{migrations} migration" in text


def check_oldest(read: Callable[[], Any]) -> None:
    wanted, response = steady(lambda: dict(query(OLDEST)), read)
    shown = response.context["facts"].oldest
    assert {status.value: moment for status, moment in shown.items() if moment} == wanted


def check_transactions(
    read: Callable[[], Any], open_connection: Callable[..., psycopg.Connection]
) -> None:
    session = open_connection(application_name="seen on System", autocommit=False)
    session.execute("SELECT pg_current_xact_id()")
    # Its last statement begins later than it.
    session.execute("SELECT pg_sleep(0.05)")
    session.execute("SELECT 1")
    pid = backend_pid(session)

    def shown() -> Any:
        [row] = [row for row in read().context["facts"].transactions if row.pid == pid]
        return row

    between(lambda: float(query(OPEN, pid)[0][0]), lambda: shown().seconds)
    [(_, began_later)], row = query(OPEN, pid), shown()
    assert abs(row.seconds - row.statement_seconds - float(began_later)) < 0.02
    rows = cells(read().content.decode())
    [said] = [each for each in rows if each[1:3] == [str(pid), "seen on System"]]
    assert said[3:5] == [connection.settings_dict["USER"], "idle in transaction"]
    session.close()
