"""The request that a handler is given, and the reply that it returns."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from django.http import HttpRequest

from django_pgjobs.conf import get_conf
from django_pgjobs.http.access import Access
from django_pgjobs.http.fields import Fields, read_fields
from django_pgjobs.http.problems import FieldError, invalid
from django_pgjobs.values.payload import is_storable


class Reply(NamedTuple):
    """What a handler returns: *body* is an object, or JSON in bytes; None: no body at all."""

    status: int
    body: Mapping[str, Any] | bytes | None = None
    headers: Mapping[str, str] = {}


class ApiRequest:
    """One request: who asks (*access*), what of (`fields()`, `query()`), and Django's *http*."""

    def __init__(self, http: HttpRequest, access: Access) -> None:
        self.http = http
        self.access = access
        self._fields: Fields | None = None

    def fields(self) -> Fields:
        """Return the fields of the body, which is read at the first call; raise Problem."""
        if self._fields is None:
            self._fields = read_fields(self.http, get_conf().HTTP_MAX_BODY_BYTES)
        return self._fields

    def query(
        self, name: str, *, max_length: int = 1_000, choices: Collection[str] = ()
    ) -> str | None:
        """Return a parameter of the address, None without it; raise Problem (422) if it is wrong.

        The handler's route has to name the parameter: `Handler(..., query=("limit",))`.
        """
        value = self.http.GET.get(name)
        if value is None:
            return None
        if choices and value not in choices:
            raise wrong_parameter(name, f"expected one of {', '.join(choices)}")
        if not 1 <= len(value) <= max_length or not is_storable(value):
            raise wrong_parameter(name, f"expected a text of 1 to {max_length} characters")
        return value

    def query_integer(self, name: str, low: int, high: int, *, default: int) -> int:
        """Return a parameter as a whole number from *low* to *high*; raise Problem (422)."""
        text = self.query(name)
        if text is None:
            return default
        is_number = text.isascii() and text.isdecimal() and len(text) <= 19
        if not is_number or not low <= int(text) <= high:
            raise wrong_parameter(name, f"expected a whole number from {low} to {high}")
        return int(text)


def wrong_parameter(name: str, detail: str) -> Exception:
    """Return the problem of a wrong parameter of the address."""
    return invalid([FieldError(name, detail, is_parameter=True)])
