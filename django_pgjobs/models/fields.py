"""Model fields for what PostgreSQL holds and Django's own fields do not read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from django.db import models

from django_pgjobs.values.payload import EARLIEST, LATEST, decode_value


class Undecodable(str):
    """The text of a JSON column that Python cannot decode; shown as it is."""


class PlainJSONField(models.Field):  # type: ignore[type-arg]
    """A column of type `json`, which keeps a value exactly as it was sent.

    `jsonb`, behind Django's JSONField, turns 1e16 into an integer and reorders keys. The
    column is read as text and decoded here, so that a row Python cannot decode (a number of
    5,000 digits, 5,000 levels) yields `Undecodable` and not an error for the whole page.
    To filter inside the value, cast it: `Cast("args", JSONField())`.
    """

    def db_type(self, connection: Any) -> str:
        return "json"

    def get_prep_value(self, value: Any) -> Any:
        if value is None or hasattr(value, "as_sql"):
            return value
        return json.dumps(value, allow_nan=False)

    # Until Django 6.0; then the method below.
    def get_placeholder(self, value: Any, compiler: Any, connection: Any) -> str:
        return "%s::json"

    def get_placeholder_sql(
        self, value: Any, compiler: Any, connection: Any
    ) -> tuple[str, Sequence[Any]]:
        sql, params = compiler.compile(value) if hasattr(value, "as_sql") else ("%s", (value,))
        return f"{sql}::json", params

    def select_format(self, compiler: Any, sql: str, params: Any) -> tuple[str, Any]:
        return f"({sql})::text", params

    def from_db_value(self, value: str | None, expression: Any, connection: Any) -> Any:
        if value is None:
            return None
        try:
            return decode_value(value)
        except ValueError:
            return Undecodable(value)

    def value_to_string(self, obj: models.Model) -> Any:
        return self.value_from_object(obj)


class TextArrayField(models.Field):  # type: ignore[type-arg]
    """A column of type `text[]`, read and written as a list of str.

    Django's own ArrayField would oblige every project to install `django.contrib.postgres`.
    """

    def db_type(self, connection: Any) -> str:
        return "text[]"

    def value_to_string(self, obj: models.Model) -> Any:
        return self.value_from_object(obj)


class CountArrayField(TextArrayField):
    """A column of type `bigint[]`, read and written as a list of int."""

    def db_type(self, connection: Any) -> str:
        return "bigint[]"


class InstantField(models.DateTimeField):  # type: ignore[type-arg]
    """A time that can always be read: one that Python has no datetime for shows as the nearest.

    The calendar of PostgreSQL is longer, and has `infinity`; one such row, written by hand,
    would be an error for the whole page. A query that orders by the column and selects it by
    name reads it as it is: it selects `shown_time` instead.
    """

    def deconstruct(self) -> tuple[str, str, Sequence[Any], dict[str, Any]]:
        name, _path, args, kwargs = super().deconstruct()
        return name, "django.db.models.DateTimeField", args, kwargs

    def select_format(self, compiler: Any, sql: str, params: Any) -> tuple[str, Any]:
        # Django orders such a query by the place of the column: the index is on the column itself.
        query = compiler.query
        if getattr(query, "has_plain_times", False):  # nothing of it is read, only counted
            return sql, params
        is_of_column = bool(self.name and query.values_select)
        if is_of_column and any(self.name in repr(item) for item in query.order_by):
            return sql, params
        nearest = (
            f"CASE WHEN {sql} < '{EARLIEST}' THEN '{EARLIEST}'::timestamptz"
            f" WHEN {sql} > '{LATEST}' THEN '{LATEST}'::timestamptz ELSE {sql} END"
        )
        return nearest, [*params] * 3


def shown_time(name: str) -> models.ExpressionWrapper[models.F]:
    """Return what selects a time column so that it can be read also where it gives the order."""
    return models.ExpressionWrapper(models.F(name), InstantField())
