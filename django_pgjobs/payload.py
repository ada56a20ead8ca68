"""Arguments, results and error texts <-> what PostgreSQL can hold.

A value is encoded once, by the C encoder; the checks look at the text and walk the value
only when the text gives reason to, because this runs for every job that is enqueued.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django_pgjobs.compat import normalize_json
from django_pgjobs.exceptions import PayloadError

# Deeper values make json.loads of a reader raise RecursionError long before Python's encoder.
MAX_DEPTH = 100
# One recorded error text; the whole list of a job stays far below PostgreSQL's limits.
MAX_TEXT = 8_000

_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


def encode_value(value: object, *, name: str, max_bytes: int) -> str:
    """Return *value* as JSON text that PostgreSQL stores unchanged.

    Raise TypeError for a type that JSON does not have, and ValueError for NaN, infinity, NUL,
    lone surrogates, more than 100 levels or more than *max_bytes* bytes. The message names
    the place of the value below *name*.
    """
    try:
        text = _encode(value)
    except (TypeError, ValueError, RecursionError, OverflowError):
        text = _encode_slowly(value, name)
    if "\\u" in text:
        _refuse_characters(value, name)
    if text.count("[") + text.count("{") > MAX_DEPTH:
        _refuse_depth(value, name)
    if len(text) > max_bytes:
        raise ValueError(
            f"expected {name} to take at most {max_bytes} bytes as JSON, got {len(text)}. "
            "Store the data in a table or file and pass its key, or raise "
            "PGJOBS['MAX_PAYLOAD_BYTES']."
        )
    return text


def _encode_slowly(value: object, name: str) -> str:
    for path, item in walk(value, name):
        if isinstance(item, float) and not math.isfinite(item):
            raise ValueError(f"expected a finite number at {path}, got {item!r}.")
        if isinstance(item, bytes | str | int | float | None | Mapping | Sequence):
            continue
        raise TypeError(
            f"Unsupported type: {type(item)} at {path}: it is not JSON serializable. "
            "Pass a key, a string or numbers instead."
        )
    try:
        return _encode(normalize_json(value))
    except RecursionError:
        raise ValueError(f"expected at most {MAX_DEPTH} levels in {name}, got more.") from None
    except (ValueError, TypeError) as error:
        raise type(error)(f"{name} cannot be stored as JSON: {error}") from error


def walk(value: object, path: str, depth: int = 0) -> Iterator[tuple[str, object]]:
    """Yield (path, item) for *value* and everything in it, keys included."""
    yield path, value
    if depth > MAX_DEPTH:
        raise ValueError(f"expected at most {MAX_DEPTH} levels, got more at {path[:200]}.")
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield f"{path} key {key!r}", key
            yield from walk(item, f"{path}[{key!r}]", depth + 1)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for index, item in enumerate(value):
            yield from walk(item, f"{path}[{index}]", depth + 1)


def _refuse_characters(value: object, name: str) -> None:
    for path, item in walk(value, name):
        if isinstance(item, bytes):
            item = item.decode()
        if isinstance(item, str):
            if "\0" in item:
                raise ValueError(
                    f"expected text without NUL characters at {path}: PostgreSQL cannot store them."
                )
            if any("\ud800" <= character <= "\udfff" for character in item):
                raise ValueError(
                    f"expected text without lone surrogates at {path}: "
                    "PostgreSQL cannot store them."
                )


def _refuse_depth(value: object, name: str) -> None:
    for _ in walk(value, name):
        pass


def decode_arguments(args: str, kwargs: str) -> tuple[list[Any], dict[str, Any]]:
    """Return what a job's two columns hold; raise PayloadError, never anything else."""
    try:
        positional = [] if args == "[]" else json.loads(args)
        named = {} if kwargs == "{}" else json.loads(kwargs)
    except (ValueError, RecursionError) as error:
        raise PayloadError(f"the stored arguments cannot be decoded: {error}") from error
    if not isinstance(positional, list) or not isinstance(named, dict):
        raise PayloadError(
            "expected args to hold a JSON array and kwargs a JSON object, got "
            f"{type(positional).__name__} and {type(named).__name__}."
        )
    return positional, named


def encode_result(value: object, max_bytes: int) -> str | None:
    """Return a task's return value as JSON text, None for None.

    Raise TypeError or ValueError as `encode_value` does.
    """
    if value is None:
        return None
    return encode_value(value, name="the return value", max_bytes=max_bytes)


def scrub(text: str, limit: int = MAX_TEXT) -> str:
    """Return *text* as PostgreSQL can store it, its middle left out beyond *limit* characters.

    NUL becomes the visible U+2400, lone surrogates their escapes.
    """
    if len(text) > limit:
        half = limit // 2
        text = f"{text[:half]}\n... {len(text) - limit} characters left out ...\n{text[-half:]}"
    if "\0" in text:
        text = text.replace("\0", "\u2400")
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
