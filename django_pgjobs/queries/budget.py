"""A time limit for what a page reads: a slow query must not hold up the database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import OperationalError, connections, transaction
from psycopg.errors import QueryCanceled

from django_pgjobs.exceptions import TooSlow

SET_LIMITS = """
SELECT
    current_setting('statement_timeout'), current_setting('jit'), current_setting('enable_sort'),
    set_config('statement_timeout', %(timeout)s, TRUE), set_config('jit', 'off', TRUE),
    set_config(
        'enable_sort',
        CASE WHEN %(walks)s::boolean THEN 'off' ELSE current_setting('enable_sort') END, TRUE
    )
"""
RESTORE_LIMITS = """
SELECT
    set_config('statement_timeout', %(timeout)s, TRUE), set_config('jit', %(jit)s, TRUE),
    set_config('enable_sort', %(sort)s, TRUE)
"""


@contextmanager
def time_budget(alias: str, seconds: float, *, walks: bool = False) -> Iterator[None]:
    """Let no statement on *alias* take longer than *seconds*; nothing is compiled either.

    *walks*: they find the first rows by walking an index, step by step. The planner takes a table
    for empty that a VACUUM saw while it was filled, and would read and sort all of it for each
    step; so nothing is sorted that an index has in order.

    In a transaction, or a savepoint of the one that is open: raise TooSlow if a statement took
    longer, after rolling back to where the block began.
    """
    try:
        with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
            cursor.execute(SET_LIMITS, {"timeout": f"{int(seconds * 1000)}ms", "walks": walks})
            [(timeout, jit, sort, *_)] = cursor.fetchall()
            yield
            # A savepoint that is released leaves the setting to the transaction around it.
            if len(connections[alias].savepoint_ids) > 0:
                cursor.execute(RESTORE_LIMITS, {"timeout": timeout, "jit": jit, "sort": sort})
    except OperationalError as error:
        if isinstance(error.__cause__, QueryCanceled):
            raise TooSlow(f"a statement took longer than {seconds:g} s.") from error
        raise
