"""What enqueue_from selects: the arguments of a job per row, and its keys, as SQL of Django.

A key template becomes the concatenation of its parts in the database, which has to read as it
would in Python (`keys`): so a part is text, a whole number or a UUID, or a constant.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django.core.exceptions import EmptyResultSet, FieldError
from django.db import models
from django.db.models import F, Func, QuerySet, Value
from django.db.models.expressions import BaseExpression
from django.db.models.functions import Cast, JSONObject

from django_pgjobs.compat import AnyTask
from django_pgjobs.conf import SERVER_PAYLOAD_BYTES, get_conf
from django_pgjobs.declaring.keys import DIGEST_DIGITS, Key, key_part, parse_template
from django_pgjobs.declaring.redaction import is_secret
from django_pgjobs.declaring.signatures import default_arguments
from django_pgjobs.declaring.tasks import Task, has_keys
from django_pgjobs.queries.enqueue import CompiledSelect
from django_pgjobs.values.payload import encode_value

# Fields whose values read in SQL as the same values do in Python.
PLAIN_FIELDS = (models.CharField, models.IntegerField, models.TextField, models.UUIDField)

# Stands for an argument that is not given.
MISSING = object()

# What to do where the database cannot do it.
IN_PYTHON = "Use enqueue_many(), in a batch add_many()."


class OneLine(Func):
    """The texts joined; an empty text, which no key may be, if one is NULL or has a newline."""

    template = r"COALESCE(substring((%(expressions)s) FROM '^[^\n]+$'), '')"
    arg_joiner = " || "
    output_field = models.TextField()


class Digest(Func):
    """The digest that stands in a key for a secret text (`keys.digest_of`)."""

    template = (
        "('sha256:' || left(encode(sha256(convert_to(%(expressions)s, 'UTF8')), 'hex'), "
        f"{DIGEST_DIGITS}))"
    )
    output_field = models.TextField()


class TextArray(Func):
    """A text[] of the texts; NULL if there are none."""

    template = "ARRAY[%(expressions)s]::text[]"
    output_field = models.TextField()


def select_arguments(
    task: AnyTask, queryset: QuerySet[Any], arguments: Mapping[str, Any]
) -> CompiledSelect | None:
    """Return the SQL expressions of the arguments, and of the task's keys, of a job per row.

    Return None if there are certainly no rows; raise TypeError or ValueError for a constant
    or a key that cannot be.
    """
    encode_value(list(arguments), name="the names of arguments", max_bytes=SERVER_PAYLOAD_BYTES)
    expressions = {
        name: value if isinstance(value, BaseExpression | F) else _constant(name, value)
        for name, value in arguments.items()
    }
    columns: dict[str, BaseExpression] = {"pgjobs_kwargs": JSONObject(**expressions)}
    if has_keys(task):
        columns |= _key_expressions(task, queryset, arguments)
    query = queryset.annotate(**columns).values_list(*columns).query
    try:
        sql, params = query.get_compiler(using=queryset.db).as_sql()
    except EmptyResultSet:
        return None
    return CompiledSelect(sql, params, has_keys(task))


def _constant(name: str, value: Any) -> BaseExpression:
    text = encode_value(value, name=name, max_bytes=get_conf().MAX_PAYLOAD_BYTES)
    plain = json.loads(text)
    if isinstance(plain, str):
        # Bound on the server, a text without a cast has no type before PostgreSQL 16.
        return Cast(Value(plain), models.TextField())
    if isinstance(plain, dict | list):
        return Value(plain, output_field=models.JSONField())
    return Value(plain)


def _key_expressions(
    task: Task, queryset: QuerySet[Any], arguments: Mapping[str, Any]
) -> dict[str, BaseExpression]:
    """Return the expressions of the three columns on keys, in the order of `CompiledSelect`."""
    given = default_arguments(task) | dict(arguments)

    def key_of(option: str, key: Key | None) -> BaseExpression:
        if key is None:
            return Cast(Value(None), models.TextField())
        return _key(option, key, task.module_path, queryset, given)

    limits = [key_of("rate_limit", key) for key in task.rate_limit]
    nothing = Cast(Value(None), TextArrayColumn())
    return {
        "pgjobs_concurrency_key": key_of("concurrency_key", task.concurrency_key),
        "pgjobs_rate_limits": TextArray(*limits) if limits else nothing,
        "pgjobs_unique_key": key_of("unique_key", task.unique_key),
    }


class TextArrayColumn(models.TextField):  # type: ignore[type-arg]
    """The type text[], to cast to."""

    def db_type(self, connection: Any) -> str:
        return "text[]"


def _key(
    option: str, key: Key, task_path: str, queryset: QuerySet[Any], given: Mapping[str, Any]
) -> BaseExpression:
    if not isinstance(key, str):
        raise TypeError(
            f"expected {option} to be a template, got a function, which cannot be called in the "
            f"database. {IN_PYTHON}"
        )
    parts: list[BaseExpression] = []
    for literal, name in parse_template(key):
        if literal:
            parts.append(_text(literal))
        if name == "args" and name not in given:
            raise ValueError(
                f"cannot compute {{args}} of {option} in the database. Name the arguments one by "
                f"one. {IN_PYTHON}"
            )
        if name is not None:
            value = task_path if name == "task" and name not in given else given.get(name, MISSING)
            if value is MISSING:
                raise TypeError(
                    f"expected the argument {name!r}, which {option} names, to be given."
                )
            parts.append(_part(option, name, value, queryset))
    return OneLine(*parts)


def _part(option: str, name: str, value: Any, queryset: QuerySet[Any]) -> BaseExpression:
    if not isinstance(value, BaseExpression | F):
        return _text(key_part(option, name, value))
    # A clone, because to resolve an expression may add joins.
    try:
        field = value.resolve_expression(queryset.query.clone()).output_field
    except FieldError as error:
        raise TypeError(
            f"cannot tell the type of the argument {name!r} of {option}: {error} Give the "
            "expression an output_field, or wrap it in Cast()."
        ) from None
    field = getattr(field, "target_field", field)
    if not isinstance(field, PLAIN_FIELDS):
        raise TypeError(
            f"expected the argument {name!r} of {option} to be text, a whole number or a UUID, got "
            f"a {type(field).__name__}. Wrap it in Cast(..., TextField())."
        )
    text: BaseExpression = Cast(value, models.TextField())  # type: ignore[arg-type]
    return Digest(text) if is_secret(name) else text


def _text(text: str) -> BaseExpression:
    return Cast(Value(text), models.TextField())
