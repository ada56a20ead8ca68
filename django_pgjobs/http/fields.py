"""The fields of a body: each is read by its name and type, and all that is wrong is told at once.

    fields = request.fields()
    name = fields.text("name", max_length=200)
    slots = fields.integer("slots", 1, 1000, default=1)
    for item in fields.objects("results", max_items=1000):
        assignment = item.text("assignment", max_length=500)
    fields.check()

Until `check()` has returned nothing may be done with what was read: a field that is missing or
wrong is noted, and something of its type stands in its place. A field that nobody has asked for
is an error, too. null stands for a field that is not given where *default* is None.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from enum import Enum
from itertools import islice
from typing import Any, Final, TypeVar, overload

from django.http import HttpRequest
from django.utils.dateparse import parse_datetime

from django_pgjobs.http.bodies import MAX_ERRORS, below, read_object
from django_pgjobs.http.problems import FieldError, invalid
from django_pgjobs.values.bounds import is_number, is_whole
from django_pgjobs.values.payload import EARLIEST, LATEST

Default = TypeVar("Default")


class Missing(Enum):
    """What stands for a default where there is none."""

    REQUIRED = "required"


REQUIRED: Final = Missing.REQUIRED


def read_fields(request: HttpRequest, max_bytes: int) -> Fields:
    """Return the fields of a request's body; raise Problem if it is no object, or too large."""
    return Fields(read_object(request, max_bytes))


class Fields:
    """The members of one object: that of the body, or at *key* of what lies at *above*."""

    def __init__(
        self, members: dict[str, Any], above: str = "", key: str | int | None = None
    ) -> None:
        self.members = members
        self._above = above
        self._key = key
        self._known: set[str] = set()
        self._errors: list[FieldError] = []
        self._inner: list[Fields] = []

    @property
    def pointer(self) -> str:
        """Where the object is, as errors have it."""
        return self._above if self._key is None else below(self._above, self._key)

    def refuse(self, name: str, detail: str) -> None:
        """Note that something is wrong with the field *name*."""
        self._errors.append(FieldError(below(self.pointer, name), detail))

    def refuse_all(self, detail: str) -> None:
        """Note that something is wrong with the object itself."""
        self._errors.append(FieldError(self.pointer, detail))

    def is_refused(self, name: str) -> bool:
        """Is something wrong with the field itself?"""
        return any(error.pointer == below(self.pointer, name) for error in self._errors)

    def has(self, name: str) -> bool:
        """Is the field given, be it null?"""
        self._known.add(name)
        return name in self.members

    def check(self) -> None:
        """Raise Problem with all that is wrong, in these fields and all below them."""
        if errors := list(islice(self._all_errors(), MAX_ERRORS)):
            raise invalid(errors)

    def _all_errors(self) -> Iterator[FieldError]:
        yield from self._errors
        for name in self.members:
            if name not in self._known:
                known = ", ".join(sorted(self._known)) or "none"
                detail = f"there is no such field; known here: {known}"
                yield FieldError(below(self.pointer, name), detail)
        for fields in self._inner:
            yield from fields._all_errors()

    def _given(self, name: str, default: object, stand_in: object = None) -> tuple[bool, Any]:
        """Return (is it to be read?, value); what is not has its default, or a stand-in."""
        if self.has(name):
            value = self.members[name]
            return (False, None) if value is None and default is None else (True, value)
        if default is not REQUIRED:
            return False, default
        self.refuse(name, "this field is missing")
        return False, stand_in

    @overload
    def text(
        self, name: str, *, min_length: int = 1, max_length: int, choices: Collection[str] = ()
    ) -> str: ...
    @overload
    def text(
        self,
        name: str,
        *,
        default: Default,
        min_length: int = 1,
        max_length: int,
        choices: Collection[str] = (),
    ) -> str | Default: ...
    def text(
        self,
        name: str,
        *,
        default: object = REQUIRED,
        min_length: int = 1,
        max_length: int,
        choices: Collection[str] = (),
    ) -> object:
        """Return a text of *min_length* to *max_length* characters, one of *choices* if given."""
        is_there, value = self._given(name, default, "")
        if not is_there:
            return value
        if choices and value not in (list(choices) if isinstance(value, str) else ()):
            self.refuse(name, f"expected one of {', '.join(choices)}")
        elif not isinstance(value, str) or not min_length <= len(value) <= max_length:
            self.refuse(name, f"expected a text of {min_length} to {max_length} characters")
        else:
            return value
        return ""

    def integer(self, name: str, low: int, high: int, *, default: Default) -> int | Default:
        """Return a whole number from *low* to *high*."""
        is_there, value = self._given(name, default)
        if not is_there:
            return default
        # JSON knows one kind of numbers: 5.0 is 5.
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not is_whole(value) or not low <= value <= high:
            self.refuse(name, f"expected a whole number from {low} to {high}")
            return low
        return value

    @overload
    def number(self, name: str, low: float, high: float) -> float: ...
    @overload
    def number(
        self, name: str, low: float, high: float, *, default: Default, what: str = ...
    ) -> float | Default: ...
    def number(
        self,
        name: str,
        low: float,
        high: float,
        *,
        default: object = REQUIRED,
        what: str = "a number",
    ) -> object:
        """Return a number from *low* to *high*."""
        is_there, value = self._given(name, default, low)
        if not is_there:
            return value
        if not is_number(value) or not low <= value <= high or not math.isfinite(value):
            self.refuse(name, f"expected {what} from {low:.10g} to {high:.10g}")
            return low
        return float(value)

    def seconds(self, name: str, low: float, high: float, *, default: Default) -> float | Default:
        """Return a length of time, from *low* to *high* seconds."""
        return self.number(name, low, high, default=default, what="a number of seconds")

    @overload
    def flag(self, name: str) -> bool: ...
    @overload
    def flag(self, name: str, *, default: Default) -> bool | Default: ...
    def flag(self, name: str, *, default: object = REQUIRED) -> object:
        """Return true or false."""
        is_there, value = self._given(name, default, False)
        if not is_there:
            return value
        if not isinstance(value, bool):
            self.refuse(name, "expected true or false")
            return False
        return value

    def instant(self, name: str) -> datetime | None:
        """Return a time, in UTC, of a text as ISO 8601 has it, with an offset; None without it."""
        is_there, value = self._given(name, None)
        if not is_there:
            return None
        try:
            instant = parse_datetime(value) if isinstance(value, str) else None
        except ValueError:
            instant = None
        if instant is None or instant.tzinfo is None or not EARLIEST <= instant <= LATEST:
            self.refuse(name, "expected a time with an offset, such as 2026-05-01T09:30:00Z")
            return EARLIEST
        return instant.astimezone(UTC)

    @overload
    def texts(self, name: str, *, max_items: int, max_length: int) -> list[str]: ...
    @overload
    def texts(
        self, name: str, *, default: Default, max_items: int, max_length: int
    ) -> list[str] | Default: ...
    def texts(
        self, name: str, *, default: object = REQUIRED, max_items: int, max_length: int
    ) -> object:
        """Return a list of texts of 1 to *max_length* characters, in order."""
        is_there, value = self._given(name, default, [])
        if not is_there:
            return value
        items = self._list(name, value, max_items)
        texts = []
        for place, item in enumerate(items):
            if isinstance(item, str) and 1 <= len(item) <= max_length:
                texts.append(item)
            else:
                pointer = below(below(self.pointer, name), place)
                detail = f"expected a text of 1 to {max_length} characters"
                self._errors.append(FieldError(pointer, detail))
        return texts

    @overload
    def objects(self, name: str, *, max_items: int) -> list[Fields]: ...
    @overload
    def objects(self, name: str, *, default: Default, max_items: int) -> list[Fields] | Default: ...
    def objects(self, name: str, *, default: object = REQUIRED, max_items: int) -> object:
        """Return a list of objects, each as fields that `check()` looks at as well."""
        is_there, value = self._given(name, default, [])
        if not is_there:
            return value
        found = []
        above = below(self.pointer, name)
        for place, item in enumerate(self._list(name, value, max_items)):
            if isinstance(item, dict):
                found.append(self._below(item, above, place))
            else:
                self._errors.append(FieldError(below(above, place), "expected an object"))
        return found

    @overload
    def object(self, name: str) -> Fields: ...
    @overload
    def object(self, name: str, *, default: Default) -> Fields | Default: ...
    def object(self, name: str, *, default: Any = REQUIRED) -> Any:
        """Return an object as fields that `check()` looks at as well."""
        is_there, value = self._given(name, default)
        if not is_there and default is not REQUIRED:
            return default
        if isinstance(value, dict):
            return self._below(value, self.pointer, name)
        if is_there:
            self.refuse(name, "expected an object")
        return Fields({}, self.pointer, name)

    def mapping(self, name: str, *, default: Default, max_items: int) -> dict[str, Any] | Default:
        """Return an object with names and values of the client's own."""
        is_there, value = self._given(name, default)
        if not is_there:
            return default
        if not isinstance(value, dict) or len(value) > max_items:
            self.refuse(name, f"expected an object of at most {max_items} members")
            return {}
        return value

    def json(self, name: str, *, default: Any) -> Any:
        """Return whatever JSON is there; null is a value."""
        return self.members[name] if self.has(name) else default

    def _list(self, name: str, value: Any, max_items: int) -> list[Any]:
        if not isinstance(value, list) or len(value) > max_items:
            self.refuse(name, f"expected a list of at most {max_items}")
            return []
        return value

    def _below(self, members: dict[str, Any], above: str, key: str | int) -> Fields:
        fields = Fields(members, above, key)
        self._inner.append(fields)
        return fields
