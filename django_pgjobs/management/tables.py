"""Tables of text, as commands print them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from django.utils import timezone


def write_table(
    write: Callable[[str], object], names: Sequence[str], rows: Iterable[Sequence[object]]
) -> None:
    """Write a line of names and one per row, in columns."""
    cells = [list(names), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
    for line in cells:
        padded = [text.ljust(width) for text, width in zip(line, widths, strict=True)]
        write("  ".join(padded).rstrip())


def _cell(value: object) -> str:
    if isinstance(value, datetime):
        local = timezone.localtime(value) if timezone.is_aware(value) else value
        return local.isoformat(" ", "seconds")
    return str(value)
