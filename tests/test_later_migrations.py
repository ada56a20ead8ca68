"""Migrations after the first run beside open transactions and enqueues, and hold up neither."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from django.db import NotSupportedError, OperationalError, connections, migrations, models
from django.db.migrations.operations.base import Operation
from django.test import override_settings

from django_pgjobs import operations
from django_pgjobs.operations import BuildIndex, PostgresSQL, ShortLocks
from tests.aliases import extra_database
from tests.helpers import ROOT, connect, database_url, settings_of, wait_until

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("transactional_db"),
    pytest.mark.slow,
]

OURS, SAMPLE = "django_pgjobs.migrations", "tests.sample.migrations"
INDEX = re.compile(r"\bCREATE\s+(UNIQUE\s+)?INDEX\b", re.IGNORECASE)
ENQUEUE = "INSERT INTO pgjobs_job (task_path) VALUES ('tests.tasks.add') RETURNING id"
# Whether a table was written anew shows in the name of its file.
FILES = """
SELECT relname, pg_relation_filenode(oid)
FROM pg_class WHERE relname IN ('pgjobs_job_live', 'pgjobs_job_finished', 'pgjobs_worker')
"""


def names(module: str) -> list[str]:
    """Return the migrations of a package, in order."""
    folder = ROOT / Path(*module.split("."))
    return sorted(path.stem for path in folder.glob("0*.py"))


def steps() -> list[tuple[str, str, str]]:
    """Return each migration after a first one: the package, the one before, its name."""
    return [
        (module, former, name)
        for module in (OURS, SAMPLE)
        for former, name in zip(names(module), names(module)[1:], strict=False)
    ]


def migrate(alias: str, target: str) -> None:
    """Migrate our app in the database of *alias*."""
    call_command("migrate", "pgjobs", target, database=alias, verbosity=0)


class Migrating(Thread):
    """Migrates in a thread, on a connection of its own."""

    def __init__(self, alias: str, target: str) -> None:
        super().__init__(daemon=True)
        self._alias, self._target = alias, target
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            migrate(self._alias, self._target)
        except Exception as error:
            self.error = error
        finally:
            connections[self._alias].close()

    def finish(self) -> None:
        """Wait for the end; raise what the migration raised."""
        self.join(30)
        assert not self.is_alive(), "the migration does not end"
        if self.error is not None:
            raise self.error


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "LOCK_SECONDS", 0.2)
    monkeypatch.setattr(operations, "PAUSE_SECONDS", 0.1)
    monkeypatch.setattr(operations, "LOOK_SECONDS", 0.02)


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[[], str]:
    """What has been said on the terminal so far."""
    lines: list[str] = []

    def read() -> str:
        lines.append(capsys.readouterr().err)
        return "".join(lines)

    return read


@pytest.fixture
def alias(transactional_db: None) -> Iterator[str]:
    """The alias of an empty database: `default`, which Django's tests let threads connect to."""
    settings = connections.settings["default"]
    before = dict(settings)
    with extra_database("later") as made:
        connections["default"].close()
        settings["NAME"] = connections.settings[made]["NAME"]
        yield "default"
        connections["default"].close()
        settings.update(before)


def client(alias: str) -> psycopg.Connection:
    """Return a connection of somebody else, who does not wait for ever."""
    options = "-c statement_timeout=20s"
    return connect(database_url(settings_of(alias)), options=options)


@contextlib.contextmanager
def reading(alias: str) -> Iterator[psycopg.Connection]:
    """Keep a transaction open that has read our tables and keeps its snapshot."""
    with client(alias) as reader:
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM pgjobs_job, pgjobs_worker")
        yield reader
        reader.execute("COMMIT")


def fill(alias: str) -> None:
    """Enqueue a few jobs, of which one has finished."""
    with client(alias) as other:
        for _ in range(5):
            other.execute(ENQUEUE)
        other.execute("UPDATE pgjobs_job SET status = 'failed' WHERE id = 1")


def files(alias: str) -> dict[str, int]:
    """Return the file of each table that many rows may be in."""
    with client(alias) as other:
        return dict(other.execute(FILES).fetchall())


@pytest.mark.parametrize(("module", "former", "name"), steps(), ids=lambda part: part)
def test_it_waits_for_a_reader_while_others_enqueue(
    alias: str, said: Callable[[], str], module: str, former: str, name: str
) -> None:
    with override_settings(MIGRATION_MODULES={"pgjobs": module}):
        migrate(alias, former)
        fill(alias)
        before = files(alias)
        for target in (name, former):
            with reading(alias) as reader, client(alias) as writer:
                migrating = Migrating(alias, target)
                waits = f"waits for session {reader.info.backend_pid} (idle in transaction"
                wait_until(lambda w=waits: not migrating.is_alive() or w in said())  # noqa: B023
                for _ in range(3):
                    assert writer.execute(ENQUEUE).fetchone()
                assert module == OURS or migrating.is_alive(), migrating.error
            migrating.finish()
            assert files(alias) == before, "a table was written anew"


def test_the_samples_make_what_they_say(alias: str) -> None:
    with override_settings(MIGRATION_MODULES={"pgjobs": SAMPLE}):
        migrate(alias, "0004_worker")
        fill(alias)
        with client(alias) as other:
            assert other.execute("SELECT DISTINCT sample FROM pgjobs_job").fetchall() == [(7,)]
            assert other.execute("SELECT count(sample) FROM pgjobs_worker").fetchone() == (0,)
            other.execute("REINDEX INDEX pgjobs_job_sample")
        migrate(alias, "zero")


def test_it_gives_up_in_the_end_and_has_changed_nothing(
    alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "TRIES", 2)
    with override_settings(MIGRATION_MODULES={"pgjobs": SAMPLE}):
        migrate(alias, "0001_initial")
        with reading(alias):
            migrating = Migrating(alias, "0002_column")
            with pytest.raises(OperationalError, match="2 times others did not let go"):
                migrating.finish()
        migrate(alias, "0002_column")


def test_another_error_is_not_tried_again(alias: str) -> None:
    with override_settings(MIGRATION_MODULES={"pgjobs": SAMPLE}):
        migrate(alias, "0001_initial")
        with client(alias) as other:
            other.execute("ALTER TABLE pgjobs_job ADD COLUMN sample integer")
        with pytest.raises(Exception, match="already exists"):
            migrate(alias, "0002_column")


def test_what_is_left_of_an_index_is_built_anew(alias: str) -> None:
    """And an index that was built by hand before is left alone."""
    with override_settings(MIGRATION_MODULES={"pgjobs": SAMPLE}):
        migrate(alias, "0002_column")
        with reading(alias), client(alias) as other:
            other.execute("SET statement_timeout = 200")
            with pytest.raises(psycopg.errors.QueryCanceled):
                other.execute(
                    "CREATE INDEX CONCURRENTLY pgjobs_job_sample ON pgjobs_job_finished (sample)"
                )
        migrate(alias, "0003_index")
        find = "SELECT indisvalid, indexrelid FROM pg_index WHERE indexrelid = %s::regclass"
        with client(alias) as other:
            built = other.execute(find, ["pgjobs_job_sample"]).fetchone()
            other.execute("DELETE FROM django_migrations WHERE name = '0003_index'")
            assert built and built[0]
            migrate(alias, "0003_index")
            assert other.execute(find, ["pgjobs_job_sample"]).fetchone() == built


def test_a_short_timeout_of_the_role_does_not_end_an_index(alias: str) -> None:
    settings = connections.settings[alias]
    with override_settings(MIGRATION_MODULES={"pgjobs": SAMPLE}):
        migrate(alias, "0002_column")
        settings["OPTIONS"] = {**settings["OPTIONS"], "options": "-c lock_timeout=50"}
        with reading(alias) as reader:
            migrating = Migrating(alias, "0003_index")
            with client(alias) as other:
                pid = reader.info.backend_pid
                wait_until(
                    lambda: (
                        other.execute(
                            "SELECT FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"
                            " AND clock_timestamp() - query_start > interval '200 ms'",
                            [pid],
                        ).fetchone()
                        is not None
                    )
                )
        migrating.finish()


@pytest.mark.parametrize(
    "operation", [ShortLocks([]), BuildIndex("name", "ON pgjobs_job_live (id)")]
)
def test_it_does_not_run_in_a_transaction(alias: str, operation: Operation) -> None:
    connection = connections[alias]
    with connection.schema_editor(atomic=True) as editor:
        with pytest.raises(NotSupportedError, match="say atomic = False"):
            operation.database_forwards("pgjobs", editor, None, None)  # type: ignore[arg-type]


def faults(migration: Any) -> list[str]:
    """Return why a migration is not one that may run beside workers."""
    found = [] if not migration.atomic else ["atomic = False is missing"]
    if len(migration.operations) != 1:
        found.append("not one operation")
    for operation in migration.operations:
        if isinstance(operation, ShortLocks):
            for part in operation.database_operations:
                if isinstance(part, migrations.AddIndex) or INDEX.search(
                    str(getattr(part, "sql", ""))
                ):
                    found.append("an index in ShortLocks")
        elif not isinstance(operation, BuildIndex):
            found.append(f"{type(operation).__name__} outside of ShortLocks")
    return found


@pytest.mark.parametrize(("module", "former", "name"), steps(), ids=lambda part: part)
def test_it_is_made_of_our_operations(module: str, former: str, name: str) -> None:
    assert faults(import_module(f"{module}.{name}").Migration) == []


ADD = migrations.AddField("worker", "sample", models.IntegerField(null=True))


@pytest.mark.parametrize(
    ("is_atomic", "made_of", "fault"),
    [
        (True, [ShortLocks([ADD])], "atomic = False is missing"),
        (False, [], "not one operation"),
        (False, [ShortLocks([ADD]), ShortLocks([ADD])], "not one operation"),
        (False, [ADD], "AddField outside of ShortLocks"),
        (False, [PostgresSQL("SELECT 1", "")], "PostgresSQL outside of ShortLocks"),
        (
            False,
            [ShortLocks([PostgresSQL("CREATE INDEX a ON b (c)", "")])],
            "an index in ShortLocks",
        ),
    ],
)
def test_what_is_made_otherwise_is_noticed(
    is_atomic: bool, made_of: list[Operation], fault: str
) -> None:
    class Migration:
        atomic = is_atomic
        operations = made_of

    assert faults(Migration) == [fault]


def test_each_change_has_a_way_back() -> None:
    with pytest.raises(ValueError, match="no way back"):
        ShortLocks([PostgresSQL("SELECT 1")])


def test_the_sql_of_our_operations_can_be_read_before_it_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with override_settings(MIGRATION_MODULES={"pgjobs": SAMPLE}):
        for name in ("0002", "0003", "0004"):
            call_command("sqlmigrate", "pgjobs", name)
            call_command("sqlmigrate", "pgjobs", name, backwards=True)
    text = capsys.readouterr().out
    assert "ADD COLUMN sample integer" in text and "DROP COLUMN sample" in text
    assert "CREATE INDEX CONCURRENTLY pgjobs_job_sample" in text
    assert 'ADD COLUMN "sample" integer NULL' in text
