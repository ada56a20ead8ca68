"""What commands print: tables of text for people, JSON for programs."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.utils import timezone

from django_pgjobs.values.words import CONTROL, IN_LINES

Write = Callable[[str], object]

# The same characters as JSON escapes: json escapes only those below 32 by itself.
_IN_JSON = {code: f"\\u{code:04x}" for code in IN_LINES if code >= 32}
# As of a program that SIGPIPE ends.
EXIT_READER_GONE = 141


@contextmanager
def while_somebody_reads() -> Iterator[None]:
    """End the process without a word when whoever reads its output has seen enough (`head`)."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # Python writes at its end what is left.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_READER_GONE)


def json_text(value: Any) -> str:
    """Return *value* as indented JSON, in which nothing controls a terminal."""
    try:
        text = _dumps(value)
    except ValueError:
        text = _dumps(_without_odd_numbers(value))
    return text.translate(_IN_JSON)


def _dumps(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False, cls=DjangoJSONEncoder)


def _without_odd_numbers(value: Any) -> Any:
    """Return *value* with text in place of numbers that JSON does not have, such as infinity."""
    if isinstance(value, dict):
        return {key: _without_odd_numbers(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_odd_numbers(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def write_table(
    write: Write, names: Sequence[str], rows: Iterable[Sequence[object]], *, nothing: str
) -> None:
    """Write a line of names and one per row, in columns; where there is no row, *nothing*.

    What reads a table passes over its first line, and finds none behind this one.
    """
    cells = [list(names), *([_cell(value) for value in row] for row in rows)]
    if len(cells) == 1:
        write(nothing)
        return
    widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
    for line in cells:
        padded = [text.ljust(width) for text, width in zip(line, widths, strict=True)]
        write("  ".join(padded).rstrip())


def _cell(value: object) -> str:
    if isinstance(value, datetime):
        local = timezone.localtime(value) if timezone.is_aware(value) else value
        return local.isoformat(" ", "seconds")
    return str(value).translate(CONTROL)
