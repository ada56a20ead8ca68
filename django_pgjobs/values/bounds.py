"""The whole numbers that columns can hold."""

from __future__ import annotations

# The largest of an `integer`, and of a `bigint`, which ids are.
MAX_INTEGER = 2**31 - 1
MAX_BIGINT = 2**63 - 1
# What `is_count` allows, in the words of messages.
COUNTS = f"from 1 to {MAX_INTEGER}"


def is_count(value: object) -> bool:
    """Is *value* a whole number from 1 that an `integer` can hold?"""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_INTEGER
