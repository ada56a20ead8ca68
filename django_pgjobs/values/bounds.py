"""What columns can hold: the bounds of whole numbers, and of texts in bytes."""

from __future__ import annotations

from typing import TypeGuard

# The largest of an `integer`, and of a `bigint`, which ids are.
MAX_INTEGER = 2**31 - 1
MAX_BIGINT = 2**63 - 1
# Of a priority, as Django's own tasks have it.
MIN_PRIORITY, MAX_PRIORITY = -100, 100
# What `is_count` allows, in the words of messages.
COUNT = f"a whole number from 1 to {MAX_INTEGER}"

# The constraints of the columns say the same (tests/test_bounds.py).
MAX_QUEUE_NAME_BYTES = 128
MAX_TASK_PATH_BYTES = 512
MAX_ALIAS_BYTES = 128
# Of a concurrency key, a unique key or a dedupe key; a limit or a pause may be named like one.
MAX_KEY_BYTES = 512
MAX_LIMIT_NAME_BYTES = 512
# Of the keys of a job's rate limits together, one a line.
MAX_RATE_LIMITS_BYTES = 1_024
MAX_SUBJECT_BYTES = 512
MAX_CORRELATION_ID_BYTES = 256
MAX_BATCH_NAME_BYTES = 512
MAX_SCHEDULE_NAME_BYTES = 200


def is_whole(value: object) -> TypeGuard[int]:
    """Is *value* a whole number? True and False, which are ints to Python, are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[int | float]:
    """Is *value* a whole number or a float? NaN and infinity are, True and False are not."""
    return isinstance(value, float) or is_whole(value)


def is_count(value: object) -> TypeGuard[int]:
    """Is *value* a whole number from 1 that an `integer` can hold?"""
    return is_whole(value) and 1 <= value <= MAX_INTEGER
