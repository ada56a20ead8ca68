"""Two parties of a race: worker's connections with open transactions, and threads of Django."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from django.db import connection, transaction

from django_pgjobs.models import Batch
from django_pgjobs.queries.connection import OwnConnection
from tests.helpers import WAIT_SECONDS, connect, wait_until


class DjangoThread(threading.Thread):
    """Runs a function on a Django connection of its own, and keeps what it came to."""

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._function = function
        self._is_connected = threading.Event()
        self.backend_pid = 0
        self.value: Any = None
        self.error: BaseException | None = None
        self.start()
        assert self._is_connected.wait(WAIT_SECONDS), "the thread does not connect"

    def run(self) -> None:
        try:
            connection.ensure_connection()
            self.backend_pid = connection.connection.info.backend_pid
            self._is_connected.set()
            self.value = self._function()
        except BaseException as error:
            self.error = error
        finally:
            self._is_connected.set()
            connection.close()

    def result(self) -> Any:
        """Wait for the end and return the value; raise what the function raised."""
        self.join(WAIT_SECONDS)
        assert not self.is_alive(), "the thread does not end"
        if self.error is not None:
            raise self.error
        return self.value

    def wait_until_executed(self, text: str) -> None:
        """Wait until the thread has executed a statement containing *text*, as its last one."""
        wait_until(lambda: text in last_query(self.backend_pid))


def last_query(backend_pid: int) -> str:
    """Return the newest statement of a session."""
    with connect() as observer:
        found = observer.execute(
            "SELECT query FROM pg_stat_activity WHERE pid = %s", [backend_pid]
        ).fetchone()
    return found[0] if found else ""


def wait_until_role_is_blocked(role: str) -> None:
    """Wait until a worker's connection of that role waits for somebody's lock."""
    with connect() as observer:
        wait_until(
            lambda: (
                observer.execute(
                    "SELECT FROM pg_stat_activity WHERE datname = current_database()"
                    " AND application_name = %s AND cardinality(pg_blocking_pids(pid)) > 0",
                    [f"pgjobs {role}"],
                ).fetchone()
                is not None
            )
        )


@contextlib.contextmanager
def open_transaction(own: OwnConnection) -> Iterator[Callable[[str], None]]:
    """Keep a transaction open on a connection of the worker; end it by `end("COMMIT")`."""
    own.open().execute("BEGIN")
    ended = False

    def end(how: str) -> None:
        nonlocal ended
        ended = True
        own.open().execute(how)

    try:
        yield end
    finally:
        if not ended:
            own.open().execute("ROLLBACK")


@contextlib.contextmanager
def open_cancel(batch_id: int) -> Iterator[Callable[[], None]]:
    """Cancel a batch in a transaction of its own; yield what commits it."""
    cancelled, goes_on = threading.Event(), threading.Event()

    def cancel_slowly() -> None:
        with transaction.atomic():
            Batch.objects.get(pk=batch_id).cancel()
            cancelled.set()
            assert goes_on.wait(WAIT_SECONDS)

    canceller = DjangoThread(cancel_slowly)

    def commit() -> None:
        goes_on.set()
        canceller.result()

    try:
        assert cancelled.wait(WAIT_SECONDS)
        yield commit
    finally:
        commit()
