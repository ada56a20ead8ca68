"""Arguments, results and error texts <-> what PostgreSQL can hold.

A value is encoded once, by the C encoder; the checks look at the text and walk the value
only when the text gives reason to, because this runs for every job that is enqueued.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeGuard

from django_pgjobs.compat import normalize_json
from django_pgjobs.exceptions import PayloadError

# Deeper values make json.loads of a reader raise RecursionError long before Python's encoder.
MAX_DEPTH = 100
# Digits of a number that casts to jsonb; Python has more where its own limit is taken off.
MAX_DIGITS = 131_072
DIGIT_BITS = math.log2(10)
# One recorded error text; the whole list of a job stays far below PostgreSQL's limits.
MAX_TEXT = 8_000
# What Python can read back in any time zone; PostgreSQL's calendar is longer.
EARLIEST = datetime(1, 1, 2, tzinfo=UTC)
LATEST = datetime(9999, 12, 30, tzinfo=UTC)
BOUNDS_OF_TIMES = EARLIEST.isoformat(" ", "minutes"), LATEST.isoformat(" ", "minutes")
# How much of a value a message shows.
MAX_SHOWN = 80

# What args hold in the place of a list where the results of batches come first (batch_steps.sql).
REFERENCE = ("results_of", "more")

VALUE_TYPES = (bytes, str, int, float, type(None), Mapping, Sequence)
KEY_TYPES = (bytes, str, int, float, type(None))

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
    if _may_exceed(text, MAX_DEPTH):
        try:
            decode_value(text)
        except ValueError:
            _refuse_depth(value, name)
    if len(text) > MAX_DIGITS:
        _refuse_digits(value, name)
    if len(text) > max_bytes:
        raise ValueError(
            f"expected {name} to take at most {max_bytes} bytes as JSON, got {len(text)}. "
            "Store the data in a table or file and pass its key, or raise "
            "PGJOBS['MAX_PAYLOAD_BYTES']."
        )
    return text


def _encode_slowly(value: object, name: str) -> str:
    for path, item, is_key in walk(value, name):
        _refuse_scalar(item, path)
        if not isinstance(item, KEY_TYPES if is_key else VALUE_TYPES):
            raise TypeError(
                f"Unsupported type: {type(item)} at {path}: it is not JSON serializable. "
                "Pass a key, a string or numbers instead."
            )
    return _encode(normalize_json(value))


def _refuse_scalar(item: object, path: str) -> None:
    if isinstance(item, float) and not math.isfinite(item):
        raise ValueError(f"expected a finite number at {path}, got {item!r}.")
    if isinstance(item, int):
        try:
            str(item)
        except ValueError as error:
            raise ValueError(f"expected fewer digits in the number at {path}: {error}.") from None
    if isinstance(item, bytes):
        try:
            item.decode()
        except UnicodeDecodeError:
            raise ValueError(f"expected bytes to be UTF-8 text at {path}.") from None


def walk(value: object, path: str, depth: int = 0) -> Iterator[tuple[str, object, bool]]:
    """Yield (path, item, is it a key?) for *value* and everything in it.

    Raise ValueError at a list or dict that lies in more than 99 others.
    """
    yield path, value, False
    if isinstance(value, str | bytes) or not isinstance(value, Mapping | Sequence):
        return
    if depth >= MAX_DEPTH:
        raise ValueError(f"expected at most {MAX_DEPTH} levels, got more at {path[:200]}.")
    if isinstance(value, Mapping):
        for key, item in value.items():
            shown = shorten(quoted(key))
            yield f"{path} key {shown}", key, True
            yield from walk(item, f"{path}[{shown}]", depth + 1)
    else:
        for index, item in enumerate(value):
            yield from walk(item, f"{path}[{index}]", depth + 1)


def shorten(text: str) -> str:
    """Return *text* as it fits into a message."""
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def quoted(value: object) -> str:
    """Return the repr of *value*, or why it has none: a number may have too many digits."""
    try:
        return repr(value)
    except Exception as error:
        try:
            reason = str(error)
        except Exception:  # it is the project's code as well
            reason = type(error).__name__
        return f"<{type(value).__name__}: {reason}>"


def _refuse_characters(value: object, name: str) -> None:
    for path, item, _ in walk(value, name):
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


def _refuse_digits(value: object, name: str) -> None:
    for path, item, is_key in walk(value, name):
        if isinstance(item, int) and not is_key and item.bit_length() > MAX_DIGITS * DIGIT_BITS:
            raise ValueError(
                f"expected fewer digits in the number at {path}: PostgreSQL takes {MAX_DIGITS}."
            )


def _refuse_depth(value: object, name: str) -> None:
    for _ in walk(value, name):
        pass


def finite(digits: str) -> float:
    """Return a number of JSON text; raise ValueError if it is too large for a float."""
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"expected a finite number, got {digits[:40]}")
    return number


# Made once: json.loads would make it for each text.
_decode = json.JSONDecoder(parse_float=finite).decode


def decode_value(text: str) -> Any:
    """Return the value of stored JSON text; raise ValueError if it cannot be used.

    Raw SQL can store what `encode_value` refuses: numbers of 5,000 digits, 1e400, 5,000 levels.
    What json.loads stands can still be too deep for the code it is given to.
    """
    try:
        value = _decode(text)
    except RecursionError:
        raise ValueError(f"expected at most {MAX_DEPTH} levels, got more.") from None
    if exceeds_depth(value, text, MAX_DEPTH):
        raise ValueError(f"expected at most {MAX_DEPTH} levels, got more.")
    return value


def _may_exceed(text: str, levels: int) -> bool:
    return text.count("[") + text.count("{") > levels


def exceeds_depth(value: Any, text: str, levels: int) -> bool:
    """Has *value*, decoded from JSON *text*, more than so many levels?"""
    if not _may_exceed(text, levels):
        return False
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(levels):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def decode_arguments(args: str, kwargs: str) -> tuple[list[Any], dict[str, Any]]:
    """Return what a job's two columns hold; raise PayloadError, never anything else.

    The results of whole batches, which the worker reads, have a text in their place.
    """
    try:
        positional = [] if args == "[]" else decode_value(args)
        named = {} if kwargs == "{}" else decode_value(kwargs)
    except ValueError as error:
        raise PayloadError(f"the stored arguments cannot be decoded: {error}") from error
    if isinstance(positional, list) and isinstance(named, dict):
        return positional, named
    referring = _with_references(positional)
    if referring is None or not isinstance(named, dict):
        raise PayloadError(
            "expected args to hold a JSON array and kwargs a JSON object, got "
            f"{type(positional).__name__} and {type(named).__name__}."
        )
    return referring, named


def _with_references(given: Any) -> list[Any] | None:
    """Return what stands for arguments that are results of batches, None if they are not."""
    ids, more = (given.get(key) if isinstance(given, dict) else None for key in REFERENCE)
    if not isinstance(ids, list) or not isinstance(more, list):
        return None
    return [*(f"results of batch {batch_id}" for batch_id in ids), *more]


def referred_batches(args: str) -> list[int]:
    """Return the ids of the batches whose results are the first arguments of a job, decoded once
    by `decode_arguments`; none for most.
    """
    if not args.startswith("{"):
        return []
    ids = decode_value(args).get("results_of")
    return [int(batch_id) for batch_id in ids]


def encode_result(value: object, max_bytes: int) -> str | None:
    """Return a task's return value as JSON text, None for None.

    Raise TypeError or ValueError as `encode_value` does.
    """
    if value is None:
        return None
    return encode_value(value, name="the return value", max_bytes=max_bytes)


def in_utc(moment: datetime) -> datetime:
    """Return an aware instant in UTC, one that cannot be stored as the nearest that can.

    The server refuses offsets of 16 hours and more, which Python has up to 24.
    """
    return min(max(moment, EARLIEST), LATEST).astimezone(UTC)


def is_storable(text: object) -> TypeGuard[str]:
    """Is *text* a str that a text column can hold, whatever its length?"""
    if not isinstance(text, str) or "\0" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def fits_column(text: object, max_bytes: int, *, min_bytes: int = 1) -> TypeGuard[str]:
    """Can a text column of *min_bytes* to *max_bytes* bytes hold *text*?"""
    return is_storable(text) and min_bytes <= len(text.encode()) <= max_bytes


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
