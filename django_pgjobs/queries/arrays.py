"""Arrays as parameters of statements: their text forms, which take less time than lists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def array_text(items: Iterable[object]) -> str:
    """Return the text form of a PostgreSQL array of numbers, faster than psycopg adapts a list."""
    return "{" + ",".join(map(str, items)) + "}"


def text_array_text(items: Iterable[str | None]) -> str:
    """Return the text form of a PostgreSQL array of texts; None is NULL."""
    items = list(items)
    texts = [item for item in items if item is not None]
    # What no text holds: psycopg refuses it.
    between = "\0"
    if not texts or len(texts) < len(items) or between in "".join(texts):
        return array_text("NULL" if item is None else _quoted(item) for item in items)
    # All at once takes a tenth of the time.
    return "{" + _quoted(between.join(texts)).replace(between, '","') + "}"


def _quoted(item: str) -> str:
    escaped = item.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def columns_of(rows: Iterable[Sequence[Any]], count: int) -> list[tuple[Any, ...]]:
    """Return the columns of a table of so many, of which there may be no row."""
    return list(zip(*rows, strict=True)) or [()] * count
