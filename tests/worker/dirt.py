"""Tasks that leave their connection, thread or process dirty, and one that looks."""

from __future__ import annotations

import contextlib
import zoneinfo
from collections.abc import Callable
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connection, connections, transaction
from django.db.utils import Error
from django.utils import timezone, translation
from psycopg import IsolationLevel
from psycopg.rows import dict_row

from django_pgjobs import current_job, task
from tests import helpers
from tests.models import Effect

# Everything a session shows about itself; the order of the probe's columns.
OWN_ADVISORY_LOCKS = (
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
)
SETTINGS = (
    "search_path",
    "role",
    "session_authorization",
    "TimeZone",
    "statement_timeout",
    "lock_timeout",
    "default_transaction_read_only",
    "default_transaction_isolation",
    "DateStyle",
    "client_encoding",
    "synchronous_commit",
    "work_mem",
)


@task
def probe() -> dict[str, Any]:
    """Return how the job finds its surroundings."""
    found: dict[str, Any] = {
        "in_atomic_block": connection.in_atomic_block,
        "autocommit": connection.get_autocommit(),
        "savepoints": len(connection.savepoint_ids),
        "on_commit": len(connection.run_on_commit),
        "queries": len(connection.queries_log),
        "language": translation.get_language(),
        "time zone": timezone.get_current_timezone_name(),
    }
    with connection.cursor() as cursor:
        for name in SETTINGS:
            cursor.execute("SELECT current_setting(%s)", [name])
            found[name] = cursor.fetchone()[0]
        for name, query in (
            # Workers in other databases of the server have some, too.
            ("locks", OWN_ADVISORY_LOCKS),
            ("temporary", "SELECT count(*) FROM pg_class WHERE relpersistence = 't'"),
            ("channels", "SELECT count(*) FROM pg_listening_channels()"),
            ("cursors", "SELECT count(*) FROM pg_cursors WHERE is_holdable"),
            ("tenant", "SELECT coalesce(current_setting('app.tenant', true), '')"),
            ("prepared", "SELECT count(*) FROM pg_prepared_statements"),
            ("application", "SELECT current_setting('application_name')"),
        ):
            cursor.execute(query)
            found[name] = cursor.fetchone()[0]
        found["sequence"] = _last_number(cursor)
    raw = connection.connection
    found["driver"] = [
        str(value) for value in (raw.isolation_level, raw.read_only, raw.deferrable)
    ] + [raw.prepare_threshold, raw.row_factory.__name__]
    Effect.objects.create(key="probe", job_id=current_job().id)
    return found


def _last_number(cursor: Any) -> bool:
    """Return whether the session remembers what a sequence has given it."""
    try:
        cursor.execute("SELECT lastval()")
    except Error:
        return False
    return True


def execute(query: str) -> Callable[[], None]:
    """Return something that runs a statement through Django."""

    def run() -> None:
        with connection.cursor() as cursor:
            cursor.execute(query)

    return run


def leave_atomic(*, after: Callable[[], object] = lambda: None) -> Callable[[], None]:
    """Return something that enters an atomic block and never leaves it."""

    def run() -> None:
        transaction.atomic().__enter__()
        after()

    return run


def break_transaction() -> None:
    """Leave an aborted transaction of Django's."""
    transaction.atomic().__enter__()
    with contextlib.suppress(Error):
        execute("SELECT 1 / 0")()


def run_raw(*queries: str) -> Callable[[], None]:
    """Return something that runs statements behind Django's back."""

    def run() -> None:
        connection.ensure_connection()
        for query in queries:
            connection.connection.execute(query)

    return run


def break_raw_transaction() -> None:
    """Leave an aborted transaction that Django knows nothing of."""
    run_raw("BEGIN")()
    with contextlib.suppress(Error):
        execute("SELECT 1 / 0")()


def write_uncommitted() -> None:
    """Write something that must not come to stay."""
    Effect.objects.create(key="uncommitted")


def log_queries() -> None:
    """Let Django log every query, as it does with DEBUG."""
    connection.force_debug_cursor = True
    try:
        for _ in range(50):
            execute("SELECT 1")()
    finally:
        connection.force_debug_cursor = False


def alter_driver(name: str, value: Any) -> Callable[[], None]:
    """Return something that changes an attribute of the driver's connection."""

    def run() -> None:
        connection.ensure_connection()
        setattr(connection.connection, name, value)

    return run


def set_by_copy() -> None:
    """Change a setting by a statement that is no execute()."""
    connection.ensure_connection()
    query = "COPY (SELECT set_config('app.tenant', 'left over', false)) TO STDOUT"
    with connection.connection.cursor() as cursor, cursor.copy(query) as copy:
        list(copy)


class KeptCursor:
    """A cursor of the driver that outlives the job that opened it, as in a module's variable."""

    def __init__(self) -> None:
        self._cursor: Any = None

    def execute(self, query: str) -> None:
        """Execute on the kept cursor; open it the first time."""
        connection.ensure_connection()
        if self._cursor is None or self._cursor.connection is not connection.connection:
            self._cursor = connection.connection.cursor()
        self._cursor.execute(query)


kept_cursor = KeptCursor()


@task
def open_kept_cursor() -> None:
    """Open the cursor that a later job uses."""
    kept_cursor.execute("SELECT 1")


def close_raw() -> None:
    """Close the connection behind Django's back."""
    connection.ensure_connection()
    connection.connection.close()


def terminate() -> None:
    """Let the server end the session."""
    with contextlib.suppress(Error):
        execute("SELECT pg_terminate_backend(pg_backend_pid())")()


class LeftOpen:
    """Keeps the iterators of QuerySets, as a module's own variable would."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def iterator(self, chunk_size: int) -> Any:
        """Return an iterator that nobody will end."""
        Effect.objects.bulk_create(Effect(key="many") for _ in range(5))
        self.kept.append(Effect.objects.iterator(chunk_size=chunk_size))
        return self.kept[-1]


left_open = LeftOpen()


@task
def open_own_connection() -> int:
    """Open a connection that only this module knows."""
    own = connections.create_connection("default")
    own.ensure_connection()
    left_open.kept.append(own)
    return own.connection.info.backend_pid


@task
def close_connection() -> None:
    """Close the connection of this thread."""
    connection.ensure_connection()
    connection.close()


DIRT: dict[str, Callable[[], object]] = {
    "atomic never left": leave_atomic(),
    "atomic never left after a write": leave_atomic(after=write_uncommitted),
    "two atomics never left": leave_atomic(after=leave_atomic(after=write_uncommitted)),
    "aborted transaction": break_transaction,
    "on_commit never called": leave_atomic(
        after=lambda: transaction.on_commit(lambda: Effect.objects.create(key="uncommitted"))
    ),
    "autocommit off": lambda: transaction.set_autocommit(False),
    "autocommit off after a write": lambda: (
        transaction.set_autocommit(False),
        write_uncommitted(),
    ),
    "BEGIN through Django": execute("BEGIN"),
    "BEGIN behind Django": run_raw("BEGIN"),
    "aborted behind Django": break_raw_transaction,
    "search_path": execute("SET search_path TO pg_catalog"),
    "role": execute("SET ROLE pg_read_all_data"),
    "session authorization": execute("SET SESSION AUTHORIZATION pg_monitor"),
    "time zone": execute("SET TIME ZONE 'America/New_York'"),
    "statement_timeout": execute("SET statement_timeout = '1ms'"),
    "lock_timeout": execute("SET lock_timeout = '1ms'"),
    "read-only": execute("SET default_transaction_read_only = on"),
    "read-only characteristics": execute(
        "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY, ISOLATION LEVEL SERIALIZABLE"
    ),
    "date style": execute("SET DateStyle = 'SQL, DMY'"),
    "client encoding": execute("SET client_encoding TO 'LATIN1'"),
    "synchronous_commit": execute("SET synchronous_commit = off"),
    "settings behind Django": run_raw("SET search_path TO pg_catalog", "SET ROLE pg_monitor"),
    "advisory lock": execute("SELECT pg_advisory_lock(4711)"),
    "advisory locks, twice": execute("SELECT pg_advisory_lock(1), pg_advisory_lock(1)"),
    "temporary table": execute("CREATE TEMP TABLE pgjobs_job (id bigint)"),
    "LISTEN": execute("LISTEN left_over"),
    "cursor with hold": execute("DECLARE left_open CURSOR WITH HOLD FOR SELECT 1"),
    "iterator never ended": lambda: next(left_open.iterator(chunk_size=1)),
    "set_config": execute("SELECT set_config('search_path', 'pg_catalog', false)"),
    "setting of a project": execute("SELECT set_config('app.tenant', 'left over', false)"),
    "function of a project": execute("SELECT set_tenant('left over')"),
    "function of a project in the SELECT list of rows": execute(
        "SELECT set_tenant(name) FROM (VALUES ('left over')) AS tenant (name)"
    ),
    "function of a project in WITH": execute(
        "WITH set AS MATERIALIZED (SELECT set_tenant('left over')) SELECT * FROM set"
    ),
    "function of a project in a row that is written": execute(
        "INSERT INTO tests_effect (key, made_at) VALUES (set_tenant('left over'), now())"
    ),
    "function of a project in UPDATE": execute(
        "UPDATE tests_effect SET key = key || lock_tenant(4711)::text"
    ),
    "setting by COPY": set_by_copy,
    "setting by a kept cursor": lambda: kept_cursor.execute(
        "SELECT set_tenant('left over') FROM (VALUES (1)) AS one"
    ),
    "prepared statement": execute("PREPARE left_over AS SELECT 1"),
    "application name": execute("SET application_name = 'left over'"),
    "number of a sequence": execute("SELECT nextval('tests_effect_id_seq')"),
    "driver's isolation level": alter_driver("isolation_level", IsolationLevel.SERIALIZABLE),
    "driver's read-only": alter_driver("read_only", True),
    "driver's rows": alter_driver("row_factory", dict_row),
    "driver's prepared statements": alter_driver("prepare_threshold", 0),
    "lock of a project's function": execute("select lock_tenant(4711)"),
    "closed by the job": lambda: connection.close(),
    "closed in atomic": leave_atomic(after=lambda: connection.close()),
    "closed behind Django": close_raw,
    "terminated by the server": terminate,
    "terminated in atomic": leave_atomic(after=terminate),
    "logged queries": log_queries,
    "language": lambda: translation.activate("de"),
    "Django's time zone": lambda: timezone.activate(zoneinfo.ZoneInfo("Pacific/Apia")),
    "rollback asked for": leave_atomic(after=lambda: transaction.set_rollback(True)),
}


@task(max_attempts=1)
def leave(name: str) -> None:
    """Leave some DIRT."""
    DIRT[name]()


@task(max_attempts=1)
def leave_and_fail(name: str) -> None:
    """Leave some DIRT, and fail."""
    DIRT[name]()
    raise ValueError("on purpose")


@task(max_attempts=1)
async def leave_async(name: str) -> None:
    """Leave some DIRT in the thread in which async jobs use the ORM."""
    await sync_to_async(DIRT[name], thread_sensitive=True)()


@task
async def probe_async() -> dict[str, Any]:
    """Return how an async job finds its surroundings."""
    return await sync_to_async(probe.func, thread_sensitive=True)()


@task
def backend_pid() -> int:
    """Return the process of the server that this thread's connection leads to."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


@task
def do_nothing() -> None:
    """Use no connection."""


@task(resets_session=False)
def set_tenant_as_promised(name: str) -> None:
    """Change a setting, although the task promises that it changes none."""
    execute(f"SELECT set_config('app.tenant', '{name}', false)")()


@task(resets_session=False, max_attempts=1)
def fail_with_tenant(name: str) -> None:
    """Change a setting to change it back at the end, and fail before."""
    execute(f"SELECT set_config('app.tenant', '{name}', false)")()
    raise ValueError("on purpose")


@task
def tenant() -> str:
    """Return the setting."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT coalesce(current_setting('app.tenant', true), '')")
        return str(cursor.fetchone()[0])


@task(max_attempts=1)
def write_read_only() -> None:
    """Write where the server does not take it, and carry on."""
    execute("SET default_transaction_read_only = on")()
    with contextlib.suppress(Error):
        write_uncommitted()
    execute("SET default_transaction_read_only = off")()


@task(max_attempts=1)
def read_effect() -> str:
    """Read by a statement that the driver prepares, if it is to."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT key FROM tests_effect")
        return str(cursor.fetchone()[0])


@task
def alter_effect(to: str) -> None:
    """Let a column have another type; on another connection, as somebody else would."""
    with helpers.connect(helpers.database_url(OPTIONS={})) as other:
        other.execute(f"ALTER TABLE tests_effect ALTER COLUMN key TYPE {to}")
