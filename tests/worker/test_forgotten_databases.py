"""Jobs name databases and forget them while others run, which ends no slot of the worker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from unittest import mock

import pytest
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

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


def test_a_thread_makes_no_connection_to_what_another_one_has_named() -> None:
    made: list[bool] = []

    def work() -> None:
        sessions.connections_of_thread()
        connections.settings["tenant1"] = dict(connections.settings["default"])
        aliases = [each.alias for each in sessions.connections_of_thread()]
        made.append("tenant1" in aliases or hasattr(connections._connections, "tenant1"))  # type: ignore[attr-defined]

    assert (in_new_thread(work), made) == ([], [False])


@pytest.mark.django_db(transaction=True)
def test_a_database_that_was_forgotten_open_is_clean_when_it_is_named_again() -> None:
    stack = ExitStack()

    def opened(self: Any) -> None:
        if self.connection is None:
            self.connect()

    def work() -> None:
        # pytest-django forbids databases that it does not know.
        stack.enter_context(mock.patch.object(BaseDatabaseWrapper, "ensure_connection", opened))
        sessions.connections_of_thread()  # as a slot does
        connections.settings["tenant1"] = dict(connections["default"].settings_dict)
        with connections["tenant1"].cursor() as cursor:
            cursor.execute("SET statement_timeout = '77s'")
        del connections.settings["tenant1"]
        clean_connections(mock.Mock())  # the job has ended; the next one:
        connections.settings["tenant1"] = dict(connections["default"].settings_dict)
        with connections["tenant1"].cursor() as cursor:
            cursor.execute("SHOW statement_timeout")
            [found] = cursor.fetchone()
        close_connections()
        assert found == "0"

    with stack:
        assert in_new_thread(work) == []
