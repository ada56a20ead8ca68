"""What the migrations are made of.

0001 is SQL and makes what nobody uses yet. Every later migration runs beside workers and web
processes that enqueue, so it is `atomic = False` and holds one operation of two kinds (a test
looks):

- `ShortLocks` for what needs a strong lock for a moment: a column, a constraint that is not
  validated, a function, a table;
- `BuildIndex` for an index, which takes long and locks nobody out.

One operation, because each is done as a whole or not at all: a migration that was interrupted is
run again.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.db import DatabaseError, NotSupportedError, OperationalError, migrations
from django.db.migrations.operations.base import Operation

from django_pgjobs.queries.locks import (
    GAVE_UP,
    Blocker,
    another_session,
    is_index_valid,
    limit_waits,
    list_blockers,
    unlimited_waits,
)

# A lock that is waited for holds up everybody who comes after it. So it is waited for so long, ...
LOCK_SECONDS = 1.0
# ... and then others have so long to go on, before it is tried again, ...
PAUSE_SECONDS = 3.0
# ... in all for about seven minutes.
TRIES = 100
# How often it is asked for whom the migration waits, and how often the same is said again.
LOOK_SECONDS = 0.25
REPEAT_SECONDS = 30.0


class PostgresSQL(migrations.RunSQL):
    """SQL that databases of other vendors are spared: `migrate` visits all that it is given."""

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        if schema_editor.connection.vendor == "postgresql":
            super().database_forwards(app_label, schema_editor, from_state, to_state)

    def database_backwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        if schema_editor.connection.vendor == "postgresql":
            super().database_backwards(app_label, schema_editor, from_state, to_state)


class ShortLocks(migrations.SeparateDatabaseAndState):
    """Operations on tables in use, in one transaction that holds up nobody for long.

    No statement waits for a lock, or runs, for more than LOCK_SECONDS; if one would, all is rolled
    back and tried again a little later. Name one table of ours: locks of several add up.
    """

    def __init__(self, operations: Sequence[Operation]) -> None:
        for operation in operations:
            if not operation.reversible:
                raise ValueError(f"{operation!r} has no way back. Give it one.")
        super().__init__(operations, operations)

    def deconstruct(self) -> tuple[str, Sequence[Any], dict[str, Any]]:
        return type(self).__name__, [self.database_operations], {}

    def describe(self) -> str:
        return ", ".join(operation.describe() for operation in self.database_operations)

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        forwards = super().database_forwards
        _patiently(schema_editor, lambda each: forwards(app_label, each, from_state, to_state))

    def database_backwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        backwards = super().database_backwards
        _patiently(schema_editor, lambda each: backwards(app_label, each, from_state, to_state))


class BuildIndex(PostgresSQL):
    """An index, built while the table is read and written.

    *definition* is what follows the name in CREATE INDEX, from ON; the table is a partition
    (pgjobs_job_live or pgjobs_job_finished), because a partitioned one cannot be indexed so. One
    that was built by hand before is left alone, what an interruption left is built anew.
    """

    def __init__(self, name: str, definition: str) -> None:
        super().__init__(
            f"CREATE INDEX CONCURRENTLY {name} {definition}",
            f"DROP INDEX CONCURRENTLY IF EXISTS {name}",
        )
        self.name = name
        self.definition = definition

    def deconstruct(self) -> tuple[str, Sequence[Any], dict[str, Any]]:
        return type(self).__name__, [self.name, self.definition], {}

    def describe(self) -> str:
        return f"Build the index {self.name}"

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        states = (from_state, to_state)
        with _without_limits(schema_editor) as cursor:
            is_valid = is_index_valid(cursor, self.name) if cursor else None
            if is_valid is False:
                super().database_backwards(app_label, schema_editor, *states)
            if not is_valid:
                super().database_forwards(app_label, schema_editor, *states)

    def database_backwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        with _without_limits(schema_editor):
            super().database_backwards(app_label, schema_editor, from_state, to_state)


class BlockerWatch(threading.Thread):
    """Says on the terminal for whom the session *pid* waits, from a connection of its own."""

    def __init__(self, connection: Any) -> None:
        super().__init__(name="pgjobs migration watch", daemon=True)
        self.pid: int | None = None
        self._connection = connection
        self._ended = threading.Event()

    def run(self) -> None:
        try:
            with another_session(self._connection) as cursor:
                self._look(cursor)
        except DatabaseError as error:
            _say(f"cannot see for whom it waits: {error}")

    def end(self) -> None:
        """Look no more."""
        self._ended.set()
        self.join()

    def _look(self, cursor: Any) -> None:
        said: list[int] = []
        said_at = 0.0
        while not self._ended.wait(LOOK_SECONDS):
            found = list_blockers(cursor, self.pid) if self.pid else []
            pids = [blocker.pid for blocker in found]
            is_old = pids == said and time.monotonic() < said_at + REPEAT_SECONDS
            if pids and not is_old:
                said, said_at = pids, time.monotonic()
                _say(f"waits for {', '.join(map(_in_words, found))}")


@contextmanager
def _watch(connection: Any) -> Iterator[BlockerWatch]:
    """Say for whom the session waits whose pid the block gives to the watch."""
    if connection.in_atomic_block:
        raise NotSupportedError("this migration must not be in a transaction: say atomic = False.")
    watch = BlockerWatch(connection)
    watch.start()
    try:
        yield watch
    finally:
        watch.end()


def _is_only_text(schema_editor: Any) -> bool:
    """Is nothing run: by sqlmigrate, or in a database of another vendor?"""
    return bool(schema_editor.collect_sql or schema_editor.connection.vendor != "postgresql")


def _patiently(schema_editor: Any, change: Callable[[Any], None]) -> None:
    """Make a change in a transaction that waits for no lock for long, until it is done."""
    if _is_only_text(schema_editor):
        change(schema_editor)
        return
    connection = schema_editor.connection
    with _watch(connection) as watch:
        for _ in range(TRIES):
            try:
                # An editor of its own, whose deferred statements are part of the transaction.
                with connection.schema_editor(atomic=True) as editor:
                    with connection.cursor() as cursor:
                        watch.pid = limit_waits(cursor, LOCK_SECONDS)
                    change(editor)
                return
            except OperationalError as error:
                if not isinstance(error.__cause__, GAVE_UP):
                    raise
            time.sleep(PAUSE_SECONDS)
    raise OperationalError(
        f"{TRIES} times others did not let go of a table within {LOCK_SECONDS:g} s. Nothing was "
        "changed; run migrate again when the sessions named above have ended."
    )


@contextmanager
def _without_limits(schema_editor: Any) -> Iterator[Any]:
    """Let a statement that locks nobody out take its time; give a cursor, None if nothing runs."""
    if _is_only_text(schema_editor):
        yield None
        return
    connection = schema_editor.connection
    with _watch(connection) as watch, connection.cursor() as cursor:
        with unlimited_waits(cursor) as watch.pid:
            yield cursor


def _in_words(blocker: Blocker) -> str:
    since = "" if blocker.seconds is None else f" for {blocker.seconds:.0f} s"
    state = f"{blocker.state or 'state unknown'}{since}"
    application = f"{blocker.application}, " if blocker.application else ""
    query = " ".join((blocker.query or "").split())
    return f"session {blocker.pid} ({application}{state}): {query}"


def _say(text: str) -> None:
    """Write a line on the terminal, where `migrate` has left one open."""
    sys.stderr.write(f"\n  pgjobs: the migration {text}\n")
    sys.stderr.flush()
