"""One line of a job's arguments: cut off in the database, with secret values masked.

The text may end anywhere, so it is read token by token: nothing after the name of a secret is
shown until its value is known to have ended, and what is no JSON ends the line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from django.db.models import F, Func, TextField

from django_pgjobs.declaring.redaction import MASK, is_secret
from django_pgjobs.declaring.registry import find_task
from django_pgjobs.declaring.signatures import signature_of
from django_pgjobs.exceptions import UnknownTask

# Characters of a column that are read, and of a line that are shown.
MAX_READ = 200
MAX_SHOWN = 160
# A value that takes more than this in the table is not unpacked for a list.
MAX_STORED = 32_768
CUT = "…"

TOKEN = re.compile(
    r'\s*(?:(?P<text>"(?:[^"\\]|\\.)*")|(?P<mark>[\[\]{}:,])|(?P<word>[^\s\[\]{}:,"]+))',
    re.DOTALL,
)
SPACE = re.compile(r"\s*")


def start_of(column: str) -> Func:
    """Return the expression of the first characters of a JSON column, NULL if it is large."""
    return Func(
        F(column),
        template=(
            f"CASE WHEN pg_column_size(%(expressions)s) <= {MAX_STORED}"
            f" THEN left(%(expressions)s::text, {MAX_READ}) END"
        ),
        output_field=TextField(),
    )


def arguments_line(task_path: str, args: str | None, kwargs: str | None) -> str:
    """Return the arguments of a job as its call would be written, from its cut columns."""
    if args is None or kwargs is None:
        return CUT
    items = [*_items(args, _secret_places(task_path)), *_items(kwargs, frozenset())]
    line = ", ".join(items)
    return line if len(line) <= MAX_SHOWN else line[:MAX_SHOWN].rstrip() + CUT


def _secret_places(task_path: str) -> frozenset[int]:
    """Return which positional arguments of a task have the name of a secret."""
    try:
        task = find_task(task_path)
        signature = signature_of(task.func, task.takes_context)
    except (UnknownTask, TypeError, ValueError):
        return frozenset()
    places = enumerate(signature.places)
    return frozenset(place for place, names in places if any(map(is_secret, names)))


@dataclass
class _Reader:
    """Where in the text we are: the open brackets, and since which depth all is hidden."""

    secret_places: frozenset[int]
    open: list[str] = field(default_factory=list)
    hidden: int | None = None
    # Is the next text of an object a name, and what was the last one?
    wants_name: bool = False
    name: str | None = None
    place: int = 0
    item: str = ""

    def is_hidden_value(self) -> bool:
        """Is a value that begins here the value of a secret?"""
        if self.open == ["["]:
            return self.place in self.secret_places
        return self.open[-1:] == ["{"] and self.name is not None and is_secret(self.name)

    def begin_value(self, shown: str) -> None:
        """Show a value, or the bracket that opens it; a mask if it is to be hidden."""
        if self.hidden is not None:
            return
        if self.is_hidden_value():
            self.item += MASK
            self.hidden = len(self.open)
        else:
            self.item += shown

    def show(self, text: str) -> None:
        """Show what is between values, unless it is within a hidden one."""
        if self.hidden is None:
            self.item += text

    def close(self, bracket: str) -> None:
        """A list or an object ended."""
        del self.open[-1:]
        if self.open:
            self.show(bracket)
        self.end_value()
        self.wants_name, self.name = False, None

    def take_item(self) -> str:
        """Return what has been read of the outermost list or object since the last time."""
        item, self.item = self.item, ""
        self.place += 1
        return item

    def end_value(self) -> None:
        """A value ended; was it the one that was hidden?"""
        if self.hidden == len(self.open):
            self.hidden = None


def _items(text: str, secret_places: frozenset[int]) -> Iterator[str]:
    """Yield what the list or object in *text* holds, each as one text."""
    reader = _Reader(secret_places)
    position = SPACE.match(text).end()  # type: ignore[union-attr]
    is_cut = len(text) >= MAX_READ
    while position < len(text):
        token = TOKEN.match(text, position)
        if token is None or (token["word"] and token.end() == len(text) and is_cut):
            yield reader.item + _begun_text(reader, text[position:]) + CUT
            return
        position = token.end()
        if token["mark"]:
            yield from _read_mark(reader, token["mark"])
        else:
            _read_value(reader, token["text"] or token["word"])
    if reader.item or (is_cut and reader.open):
        yield reader.item + (CUT if reader.open else "")


def _begun_text(reader: _Reader, rest: str) -> str:
    """Return a text that was cut off, if it may be shown."""
    is_value = rest.lstrip().startswith('"') and not reader.wants_name
    is_secret_value = reader.hidden is not None or reader.is_hidden_value()
    return rest.lstrip() if is_value and not is_secret_value else ""


def _read_mark(reader: _Reader, mark: str) -> Iterator[str]:
    if mark in "[{":
        # The outermost bracket is not shown: it is the call's own.
        if reader.open:
            reader.begin_value(mark)
        reader.open.append(mark)
        reader.wants_name, reader.name = mark == "{", None
    elif mark == ":":
        reader.wants_name = False
        reader.show("=" if len(reader.open) == 1 else ": ")
    elif mark == ",":
        reader.wants_name, reader.name = reader.open[-1:] == ["{"], None
        if len(reader.open) == 1:
            yield reader.take_item()
        else:
            reader.show(", ")
    else:
        reader.close(mark)
        if not reader.open and reader.item:
            yield reader.take_item()


def _read_value(reader: _Reader, token: str) -> None:
    if reader.wants_name:
        reader.name = _decoded(token)
        reader.show(reader.name if len(reader.open) == 1 else token)
        return
    reader.begin_value(_readable(token))
    reader.end_value()


def _decoded(token: str) -> str:
    """Return what a JSON text says; the token itself if it is none."""
    try:
        value: Any = json.loads(token)
    except ValueError:
        return token
    return value if isinstance(value, str) else token


def _readable(token: str) -> str:
    """Return a JSON text with its letters instead of their numbers, where they can be shown."""
    if "\\u" not in token:
        return token
    shown = json.dumps(_decoded(token), ensure_ascii=False)
    return shown.encode("utf-8", "backslashreplace").decode("utf-8")
