"""What commands print: tables of text for people, JSON for programs."""

from __future__ import annotations

import errno
import io
import json
import math
import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.utils import timezone, translation

from django_pgjobs.values.moments import aware
from django_pgjobs.values.words import CONTROL, IN_LINES
from django_pgjobs.worker.process.exit_status import EXIT_INTERRUPTED

Write = Callable[[str], object]

# The same characters as JSON escapes: json escapes only those below 32 by itself.
_IN_JSON = {code: f"\\u{code:04x}" for code in IN_LINES if code >= 32}
NOT_WRITTEN = "the output cannot be written: "
# What a file or a terminal says that does not take what is written.
OUTPUT_FAILS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})
# As of a program that SIGPIPE ends.
EXIT_READER_GONE = 141


@contextmanager
def in_english() -> Iterator[None]:
    """Let what pages translate be English, as all that commands print."""
    with translation.override("en"):
        yield


@contextmanager
def while_somebody_reads() -> Iterator[None]:
    """End the process without a word when whoever reads its output has seen enough.

    A program closes the pipe (`head`), a person presses Ctrl-C. With a line where the output cannot
    be written. What its encoding lacks is written as an escape.
    """
    if sys.stdout is None:
        sys.exit(f"{NOT_WRITTEN}it is closed.")
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
        sys.exit(EXIT_READER_GONE)
    except OSError as error:
        if error.errno not in OUTPUT_FAILS or error.filename is not None:
            raise
        _drop_output()
        sys.exit(f"{NOT_WRITTEN}{error.strerror}.")
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


def _drop_output() -> None:
    """Let Python write nowhere what is left at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Encoder(DjangoJSONEncoder):
    """Writes times with their zone, also with USE_TZ = False."""

    def default(self, o: Any) -> Any:
        return super().default(aware(o) if isinstance(o, datetime) else o)


def json_text(value: Any) -> str:
    """Return *value* as indented JSON, in which nothing controls a terminal."""
    try:
        text = _dumps(value)
    except ValueError:
        text = _dumps(_without_odd_numbers(value))
    return text.translate(_IN_JSON)


def _dumps(value: Any) -> str:
    # Else the output's escapes would be none of JSON.
    is_unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    return json.dumps(value, indent=2, ensure_ascii=not is_unicode, allow_nan=False, cls=_Encoder)


def _without_odd_numbers(value: Any) -> Any:
    """Return *value* with text in place of numbers that JSON does not have, such as infinity."""
    if isinstance(value, dict):
        return {key: _without_odd_numbers(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_odd_numbers(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def width_of(screen: Any) -> int | None:
    """Return how many characters a line of a terminal has; None: it is none, and reads all."""
    return shutil.get_terminal_size().columns if screen.isatty() else None


def write_table(
    write: Write,
    names: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    nothing: str,
    numbers: Collection[str] = (),
    width: int | None = None,
) -> None:
    """Write a line of names and one per row, in columns; where there is no row, *nothing*.

    What reads a table passes over its first line, and finds none behind this one. The columns
    *numbers* end at the same place, and lines are cut that are longer than *width*.
    """
    cells = [list(names), *([_cell(value) for value in row] for row in rows)]
    if len(cells) == 1:
        write(nothing)
        return
    widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
    for line in cells:
        padded = (
            text.rjust(most) if name in numbers else text.ljust(most)
            for name, text, most in zip(names, line, widths, strict=True)
        )
        text = "  ".join(padded).rstrip()
        write(text if width is None or len(text) <= width else f"{text[: width - 1]}…")


def local_time(instant: datetime) -> str:
    """Return an instant in the time zone of the settings."""
    return timezone.localtime(aware(instant)).isoformat(" ", "seconds")


def _cell(value: object) -> str:
    if isinstance(value, datetime):
        return local_time(value)
    return str(value).translate(CONTROL)


def tell_of_more(tell: Write, limit: int) -> None:
    """Tell that a list was cut."""
    tell(f"there are more: --limit is {limit}.")
