"""A time limit for what a page reads: a slow query must not hold up the database."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from django.db import OperationalError, connections, transaction
from psycopg.errors import LockNotAvailable, QueryCanceled

from django_pgjobs.exceptions import TooSlow
from django_pgjobs.queries.cursor import Cursor

# For statements that walk an index: no sorting of what an index has in order, and tables are joined
# in the order in which a statement names them. Planning another order took longer than some run.
WALKING = {"enable_sort": "off", "join_collapse_limit": "1", "from_collapse_limit": "1"}
SET_LIMITS = """
SELECT
    given.name, current_setting(given.name), set_config(given.name, given.value, TRUE)
FROM unnest(%(names)s::text[], %(values)s::text[]) AS given (name, value)
"""

# Where a time is for several statements together, none begins after this part of it, and each may
# take what is left then.
BEGINNING = 1 / 3


@contextmanager
def time_budget(
    alias: str,
    seconds: float,
    *,
    walks: bool = False,
    together: bool = False,
    one_snapshot: bool = False,
) -> Iterator[Callable[[], None]]:
    """Let no statement on *alias* in the block take longer than *seconds*, nor compile (JIT).

    The block is a transaction, or a savepoint of the one that is open. Raise TooSlow, with all of
    it rolled back, if a statement took longer, or waited for a lock longer than the role may.

    With *together* the time is for all statements: call the function that this yields before each
    of them but the first; it raises TooSlow once a third of the time has passed.

    With *walks* statements find their first rows by walking an index, step by step. Without it the
    planner, which takes a table for empty if a VACUUM saw it before it was filled, would read and
    sort all of it for each step.

    With *one_snapshot* all statements see what was committed when the block began; in a transaction
    that was open before, they see what its isolation gives.
    """
    longest = seconds * (1 - BEGINNING) if together else seconds
    limits = {"statement_timeout": f"{max(int(longest * 1000), 1)}ms", "jit": "off"}
    freezes = one_snapshot and connections[alias].get_autocommit()
    with apart(alias):
        if freezes:
            with connections[alias].cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        with _with_settings(alias, limits | WALKING if walks else limits):
            yield _go_on_in(seconds if together else math.inf)


@contextmanager
def walking(alias: str) -> Iterator[None]:
    """Let statements on *alias* walk indexes, as within a `time_budget`, but take their time.

    In a transaction, or a savepoint of the one that is open.
    """
    with transaction.atomic(using=alias), _with_settings(alias, {"jit": "off"} | WALKING):
        yield


@contextmanager
def apart(alias: str) -> Iterator[None]:
    """Roll back only what the block did on *alias* if a statement in it takes too long.

    Raise TooSlow then. What else is read within the same `time_budget` goes on.
    """
    try:
        with transaction.atomic(using=alias):
            yield
    except OperationalError as error:
        if isinstance(error.__cause__, QueryCanceled | LockNotAvailable):
            raise TooSlow("a statement took longer than it may.") from error
        raise


def _go_on_in(seconds: float) -> Callable[[], None]:
    """Return what raises TooSlow once a third of *seconds* has passed."""
    last_begin = time.monotonic() + seconds * BEGINNING

    def go_on() -> None:
        if time.monotonic() > last_begin:
            raise TooSlow(f"the statements before took most of {seconds:g} s.")

    return go_on


@contextmanager
def _with_settings(alias: str, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings in the transaction or savepoint that has just begun, up to its end."""
    with connections[alias].cursor() as cursor:
        before = _set(cursor, settings)
        yield
        # A savepoint that is released leaves the setting to the transaction around it.
        if len(connections[alias].savepoint_ids) > 0:
            _set(cursor, before)


def _set(cursor: Cursor, settings: Mapping[str, str]) -> dict[str, str]:
    """Change settings up to the end of the transaction; return what they were."""
    params = {"names": list(settings), "values": list(settings.values())}
    cursor.execute(SET_LIMITS, params)
    return {name: before for name, before, _ in cursor.fetchall()}
