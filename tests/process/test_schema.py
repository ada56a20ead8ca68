"""The schema is older than the code at the start, or changes under a running worker."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from tests import tasks as common
from tests.factories import make_job
from tests.helpers import WorkerProcess, connect, settings_of
from tests.process.support import wait_for_status, wait_until_listening

pytestmark = [pytest.mark.process, pytest.mark.django_db(transaction=True)]

Start = Callable[..., WorkerProcess]


@contextlib.contextmanager
def changed(*queries: str, back: str) -> Iterator[None]:
    """Change the test database, and take it *back* at the end."""
    with connect() as other:
        for query in queries:
            other.execute(query)
    try:
        yield
    finally:
        with connect() as other:
            other.execute(back)


def renamed(table: str, column: str) -> contextlib.AbstractContextManager[None]:
    """Let a column be missing."""
    return changed(
        f"ALTER TABLE {table} RENAME COLUMN {column} TO hidden",
        back=f"ALTER TABLE {table} RENAME COLUMN hidden TO {column}",
    )


@pytest.mark.parametrize("flags", [(), ("--check",), ("--child",)], ids=["run", "check", "child"])
def test_code_newer_than_the_schema_ends_with_3_and_names_the_migration(
    start: Start, flags: tuple[str, ...]
) -> None:
    with changed(
        "DELETE FROM django_migrations WHERE app = 'pgjobs' AND name = '0001_initial'",
        back="INSERT INTO django_migrations (app, name, applied)"
        " VALUES ('pgjobs', '0001_initial', now())",
    ):
        worker = start(*flags)
        assert worker.wait() == 3
    said = worker.output()
    assert "not applied: pgjobs.0001_initial. Run manage.py migrate first." in said
    assert "Traceback" not in said


def test_a_role_that_may_not_read_migrations_is_told_of_missing_columns(start: Start) -> None:
    database = settings_of()["NAME"]
    with changed(
        "CREATE ROLE pgjobs_reader LOGIN",
        "GRANT ALL ON ALL TABLES IN SCHEMA public TO pgjobs_reader",
        "GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO pgjobs_reader",
        "REVOKE ALL ON django_migrations FROM pgjobs_reader",
        back="DROP OWNED BY pgjobs_reader; DROP ROLE pgjobs_reader",
    ):
        settings = {"DATABASES": {"default": {**settings_of(), "USER": "pgjobs_reader"}}}
        del settings["DATABASES"]["default"]["TEST"]
        worker = start("--check", settings=settings)
        assert worker.wait() == 0, worker.output()
        with renamed("pgjobs_worker", "listening"):
            worker = start("--check", settings=settings)
            assert worker.wait() == 3
    assert f"the database {database!r} is behind this version of the code" in worker.output()
    assert "no column pgjobs_worker.listening. Run manage.py migrate first." in worker.output()


def test_migrations_of_the_project_in_place_of_ours_are_not_compared(start: Start) -> None:
    """MIGRATION_MODULES may name others, or none; the columns have to be there."""
    with changed(
        "DELETE FROM django_migrations WHERE app = 'pgjobs' AND name = '0001_initial'",
        back="INSERT INTO django_migrations (app, name, applied)"
        " VALUES ('pgjobs', '0001_initial', now())",
    ):
        worker = start("--check", settings={"MIGRATION_MODULES": {"pgjobs": None}})
        assert worker.wait() == 0, worker.output()


def test_a_worker_goes_on_under_a_schema_that_grows(start: Start) -> None:
    """A deployment migrates first: old workers meet new columns."""
    worker = start()
    wait_for_status(common.add.enqueue(1, 2), "successful")
    wait_until_listening()
    with changed(
        "ALTER TABLE pgjobs_job ADD COLUMN later text NOT NULL DEFAULT 'x'",
        "ALTER TABLE pgjobs_worker ADD COLUMN later integer",
        back="ALTER TABLE pgjobs_job DROP COLUMN later;"
        " ALTER TABLE pgjobs_worker DROP COLUMN later",
    ):
        wait_for_status(common.add.enqueue(1, 2), "successful", worker=worker)
        assert "failed" not in worker.output()
    assert worker.stop() == 0


def test_a_worker_says_what_is_missing_and_goes_on_when_it_is_there_again(start: Start) -> None:
    worker = start("--poll-interval", "0.2")
    wait_for_status(common.add.enqueue(1, 2), "successful")
    with renamed("pgjobs_job", "max_attempts"):
        make_job()
        worker.wait_for_output("max_attempts does not exist")
        assert worker.is_running
    wait_for_status(common.add.enqueue(1, 2), "successful", worker=worker)
    assert worker.stop() == 0
