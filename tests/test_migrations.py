"""The migrations: complete, and good in both directions, wherever the tables are to live."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connections
from django.test import override_settings

from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.server import describe_server
from django_pgjobs.worker.process.schema import needed_schema
from tests import tasks
from tests.aliases import JobsTo, extra_alias, extra_database
from tests.helpers import connect, database_url, settings_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("transactional_db")]

OURS = """
SELECT 'relation', relname::text FROM pg_class WHERE relname LIKE 'pgjobs%%'
UNION ALL SELECT 'function', proname FROM pg_proc WHERE proname LIKE 'pgjobs%%'
UNION ALL SELECT 'type', typname FROM pg_type WHERE typname LIKE 'pgjobs%%'
UNION ALL SELECT 'trigger', tgname FROM pg_trigger WHERE tgname LIKE 'pgjobs%%'
ORDER BY 1, 2
"""

# Tables of ours without a primary key, unless they are published with all of their columns.
UNIDENTIFIED = """
SELECT relname::text FROM pg_class
WHERE relname LIKE 'pgjobs%%' AND relkind IN ('r', 'p') AND relreplident <> 'f'
AND NOT EXISTS (SELECT FROM pg_index WHERE indrelid = pg_class.oid AND indisprimary)
"""


def objects(alias: str) -> list[tuple[str, str]]:
    """Return everything of ours in the database."""
    with connections[alias].cursor() as cursor:
        cursor.execute(OURS)
        return cursor.fetchall()


def migrate(alias: str, target: str | None = None) -> None:
    """Migrate our app in the database of *alias*."""
    call_command("migrate", "pgjobs", *filter(None, [target]), database=alias, verbosity=0)


@pytest.fixture
def empty() -> Iterator[str]:
    """The alias of an empty database."""
    with extra_database("empty") as alias:
        yield alias


def test_the_migrations_say_what_the_models_say() -> None:
    output = StringIO()
    call_command("makemigrations", "pgjobs", check=True, dry_run=True, stdout=output)
    assert "No changes detected" in output.getvalue()


@pytest.mark.slow
def test_forwards_backwards_and_forwards_again(empty: str) -> None:
    migrate(empty)
    made = objects(empty)
    names = {name for _, name in made}
    assert {"pgjobs_job", "pgjobs_job_live", "pgjobs_job_finished", "pgjobs_worker"} <= names
    migrate(empty, "zero")
    assert objects(empty) == []
    migrate(empty)
    assert objects(empty) == made


@pytest.mark.slow
def test_backwards_with_jobs_in_the_table(empty: str) -> None:
    migrate(empty)
    with override_settings(DATABASE_ROUTERS=[JobsTo(empty)]):
        tasks.add.enqueue(1, 2)
    migrate(empty, "zero")
    assert objects(empty) == []


def test_the_tables_may_live_in_a_schema_of_their_own(empty: str) -> None:
    """Triggers name their tables with the schema of the migration."""
    with connections[empty].cursor() as cursor:
        cursor.execute("CREATE SCHEMA jobs")
    name = connections.settings[empty]["NAME"]
    in_schema = {"NAME": name, "OPTIONS": {"options": "-c search_path=jobs"}}
    with extra_alias("in_schema", **in_schema), connect(database_url(settings_of(empty))) as other:
        migrate("in_schema")
        other.execute("LISTEN pgjobs")
        other.execute(
            "INSERT INTO jobs.pgjobs_worker (name, host, pid, version, slots, backends, task_paths,"
            " excluded_queues, lost, listening, lease_expires_at)"
            " VALUES ('w', 'h', 1, '0', 1, '{}', '{}', '{}', false, true, now())"
        )
        with override_settings(DATABASE_ROUTERS=[JobsTo("in_schema")]):
            result = tasks.add.enqueue(1, 2)
            assert tasks.add.get_result(result.id) == result
        assert describe_server(OwnConnection("in_schema", "test"), needed_schema()).queues == [
            "default"
        ]
        assert [n.channel for n in other.notifies(timeout=10, stop_after=1)] == ["pgjobs"]
        # From a session that does not look there by itself.
        other.execute("INSERT INTO jobs.pgjobs_job (task_path) VALUES ('x')")
        assert [n.channel for n in other.notifies(timeout=10, stop_after=1)] == ["pgjobs"]


def test_changes_of_each_table_can_be_published(empty: str) -> None:
    """The server refuses UPDATE and DELETE in a published table whose rows nothing identifies."""
    migrate(empty)
    with connections[empty].cursor() as cursor:
        cursor.execute(UNIDENTIFIED)
        assert cursor.fetchall() == []


def test_a_database_of_another_vendor_is_left_alone(tmp_path: Path) -> None:
    """`migrate --database=` of a project that has SQLite beside PostgreSQL."""
    sqlite = {"ENGINE": "django.db.backends.sqlite3", "NAME": tmp_path / "db", "OPTIONS": {}}
    with extra_alias("lite", **sqlite) as alias:
        migrate(alias)
        tables = connections[alias].introspection.table_names()
        assert [table for table in tables if table.startswith("pgjobs")] == []
        migrate(alias, "zero")


def test_a_router_keeps_the_tables_out_of_other_databases(empty: str) -> None:
    class NotHere:
        def allow_migrate(self, db: str, app_label: str, **hints: object) -> bool:
            return app_label != "pgjobs"

    with override_settings(DATABASE_ROUTERS=[NotHere()]):
        migrate(empty)
        assert objects(empty) == []


def test_the_sql_can_be_read_before_it_runs() -> None:
    forwards, backwards = StringIO(), StringIO()
    call_command("sqlmigrate", "pgjobs", "0001", stdout=forwards)
    call_command("sqlmigrate", "pgjobs", "0001", backwards=True, stdout=backwards)
    assert "CREATE TABLE pgjobs_job (" in forwards.getvalue()
    assert "DROP TABLE pgjobs_job;" in backwards.getvalue()
