"""Jobs name databases and forget them while others run, which ends no slot of the worker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.postgresql.base import DatabaseWrapper

from django_pgjobs.queries import sessions
from django_pgjobs.worker.running.housekeeping import (
    clean_connections,
    close_connections,
    drop_dead_connections,
)


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Let the settings name the databases that they named before."""
    before = dict(connections.settings)
    yield
    connections.settings.clear()
    connections.settings.update(before)


def in_new_thread(work: Callable[[], None]) -> list[BaseException]:
    """Return what it raised, in a list."""
    raised: list[BaseException] = []

    def call() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    return raised


def test_a_database_that_another_job_names_meanwhile_ends_no_slot() -> None:
    """What another thread does while this one makes its connections."""
    create = connections.create_connection

    def create_and_name(alias: str) -> Any:
        connections.settings.setdefault("tenant1", dict(connections.settings["default"]))
        return create(alias)

    with mock.patch.object(connections, "create_connection", create_and_name):
        assert in_new_thread(drop_dead_connections) == []


def test_a_database_that_another_job_forgets_meanwhile_ends_no_slot() -> None:
    create = connections.create_connection
    connections.settings["tenant1"] = dict(connections.settings["default"])

    def create_and_forget(alias: str) -> Any:
        connections.settings.pop("tenant1", None)
        return create(alias)

    with mock.patch.object(connections, "create_connection", create_and_forget):
        assert in_new_thread(drop_dead_connections) == []


def test_a_database_without_an_engine_ends_no_slot() -> None:
    connections.settings["tenant1"] = {}
    assert in_new_thread(drop_dead_connections) == []


def name_tenant() -> None:
    connections.settings["tenant1"] = dict(connections["default"].settings_dict)


def test_a_thread_lists_the_connections_that_it_has_made() -> None:
    """Not those of all threads to whatever the settings name."""
    listed: list[str] = []

    def work() -> None:
        name_tenant()
        listed.extend(each.alias for each in sessions.ConnectionsOfThread())

    assert (in_new_thread(work), listed) == ([], ["default"])


def test_async_code_that_names_a_database_in_a_thread_ends_no_slot() -> None:
    async def use_one() -> None:
        connections["default"]

    def work() -> None:
        asyncio.run(use_one())
        drop_dead_connections()

    assert in_new_thread(work) == []


@pytest.fixture
def _any_database() -> Iterator[None]:
    """Allow databases that pytest-django does not know."""

    def opened(self: Any) -> None:
        if self.connection is None:
            self.connect()

    with mock.patch.object(BaseDatabaseWrapper, "ensure_connection", opened):
        yield


def timeout_in_tenant() -> str:
    with connections["tenant1"].cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        return str(cursor.fetchone()[0])


def leave_timeout_in_tenant() -> None:
    with connections["tenant1"].cursor() as cursor:
        cursor.execute("SET statement_timeout = '77s'")


@pytest.mark.usefixtures("_any_database")
@pytest.mark.django_db(transaction=True)
def test_a_database_that_was_forgotten_open_is_clean_when_it_is_named_again() -> None:
    found: list[str] = []

    def work() -> None:
        drop_dead_connections()  # as a slot does
        name_tenant()
        leave_timeout_in_tenant()
        del connections.settings["tenant1"]
        clean_connections(mock.Mock())  # the job has ended; the next one:
        name_tenant()
        found.append(timeout_in_tenant())
        close_connections()

    assert (in_new_thread(work), found) == ([], ["0"])


@pytest.mark.usefixtures("_any_database")
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("others", [0, 1])
def test_a_session_whose_opening_fails_halfway_is_clean_for_each_job(others: int) -> None:
    """A timeout meets it there, say. Django uses it as it is, and tells nobody that it is open.

    *others*: as many databases are forgotten as are named.
    """
    found: list[str] = []
    begin = DatabaseWrapper.init_connection_state
    fail_once = mock.Mock(side_effect=[RuntimeError("halfway"), None])

    def begin_late(self: Any) -> None:
        if self.alias == "tenant1":
            fail_once()
        begin(self)

    def run(job: Callable[[], None]) -> None:
        name_tenant()
        job()
        if not others:
            del connections.settings["tenant1"]
        clean_connections(mock.Mock())

    def fail() -> None:
        with pytest.raises(RuntimeError):
            connections["tenant1"].cursor()

    def work() -> None:
        if others:
            connections.settings["tenant0"] = {}
        drop_dead_connections()
        connections.settings.pop("tenant0", None)
        run(fail)
        run(leave_timeout_in_tenant)
        found.append(timeout_in_tenant())
        close_connections()

    with mock.patch.object(DatabaseWrapper, "init_connection_state", begin_late):
        assert (in_new_thread(work), found) == ([], ["0"])
