"""Keys: what the jobs of a task share with each other, made from their arguments.

A key is a template such as `"shop:{shop_id}"`, whose fields name arguments of the task, or a
function of the arguments. `{task}` stands for the task's path and `{args}` for all arguments.

Keys are shown wherever jobs are. So a digest stands for what is masked there: for `{args}`, and
for arguments whose names PGJOBS["REDACT"] calls secret. All else stays readable, for patterns.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from string import Formatter
from typing import Any

from django_pgjobs.compat import normalize_json
from django_pgjobs.declaring.redaction import MASK, is_secret
from django_pgjobs.declaring.signatures import NAMELESS
from django_pgjobs.values.bounds import MAX_KEY_BYTES
from django_pgjobs.values.payload import is_storable, quoted

Key = str | Callable[..., str | None]

# 128 bits: two texts do not have one digest by chance.
DIGEST_DIGITS = 32
SPECIAL_FIELDS = frozenset({"task", "args"})


@lru_cache(maxsize=4096)
def parse_template(template: str) -> tuple[tuple[str, str | None], ...]:
    """Return the (literal text, name of the field after it or None) of a template.

    Raise ValueError if it is none.
    """
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        raise ValueError(f"{template!r} is no key template: {error}.") from None
    for _, name, spec, conversion in parts:
        if name is not None and (spec or conversion or not name.isidentifier()):
            raise ValueError(
                f"{template!r} is no key template: expected nothing but names of arguments in "
                f"braces, got {name!r}, {conversion=}, format={spec!r}."
            )
    return tuple((literal, name) for literal, name, _, _ in parts)


def find_key_problems(option: str, key: object, names: Collection[str]) -> Iterator[str]:
    """Yield what is wrong with *key* as the option of a task with these argument names."""
    if callable(key):
        return
    if not isinstance(key, str) or not is_storable(key) or not key or "\n" in key:
        yield (
            f"expected {option} to be a template such as 'shop:{{shop_id}}' or a function of "
            f"the arguments, got {quoted(key)}."
        )
        return
    try:
        parts = parse_template(key)
    except ValueError as error:
        yield f"{option}: {error}"
        return
    unknown = sorted({name for _, name in parts if name} - set(names) - SPECIAL_FIELDS)
    if unknown:
        yield (
            f"{option}={key!r} names {unknown}, which is no argument of the task; expected some "
            f"of {sorted(names)}, or task or args."
        )


def render_key(option: str, key: Key, task_path: str, arguments: Mapping[str, Any]) -> str | None:
    """Return the key of a job with these arguments by name; None if a function gives none.

    Raise TypeError or ValueError, naming the option, if it is unusable.
    """
    if callable(key) and NAMELESS in arguments:
        raise _nameless(option, "its arguments")
    if callable(key):
        value = _call(option, key, arguments)
    else:
        value = _fill(option, key, task_path, arguments)
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f"expected {option} to return text or None, got {value!r}.")
    if not value or "\n" in value or not is_storable(value):
        raise ValueError(f"expected {option} to be one line of text without NUL, got {value!r}.")
    if len(value.encode()) > MAX_KEY_BYTES:
        raise ValueError(
            f"expected {option} of at most {MAX_KEY_BYTES} bytes, got {len(value.encode())}: "
            f"{value[:80]!r}..."
        )
    return value


def _call(option: str, function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    try:
        return function(**arguments)
    except TypeError as error:
        problem = _misfit(function, arguments)
        if not problem:
            raise
        names = ", ".join(f"{name}=..." for name in arguments)
        raise TypeError(
            f"{option} is called with all arguments by name, ({names}): {problem}."
        ) from error


def _misfit(function: Callable[..., Any], arguments: Mapping[str, Any]) -> str:
    """Return why a function cannot be called so, "" if it can or nobody knows."""
    try:
        inspect.signature(function).bind(**arguments)
    except TypeError as error:
        return str(error)
    except ValueError:  # one of a C extension says nothing
        pass
    return ""


def _fill(option: str, template: str, task_path: str, arguments: Mapping[str, Any]) -> str:
    text = []
    for literal, name in parse_template(template):
        text.append(literal)
        if name is None:
            continue
        if name in arguments:
            text.append(key_part(option, name, arguments[name]))
        else:
            text.append(_special(option, name, task_path, arguments))
    return "".join(text)


def _special(option: str, name: str, task_path: str, arguments: Mapping[str, Any]) -> str:
    """Return what a field stands for that is no argument of the call."""
    if name == "task":
        return task_path
    if name == "args":
        return _all(arguments)
    if NAMELESS in arguments:
        raise _nameless(option, repr(name))
    raise TypeError(f"expected the argument {name!r}, which {option} names, to be given.")


def _nameless(option: str, what: str) -> TypeError:
    return TypeError(
        f"{option} needs {what} by name, but a decorator of the task takes positional ones as "
        "*args and does not simply pass them on. Give keyword arguments."
    )


def key_part(option: str, name: str, value: object) -> str:
    """Return an argument as a part of a key; raise TypeError if it is no text or whole number.

    Only what reads the same in Python and in SQL, for enqueue_from.
    """
    is_masked = is_secret(name)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise TypeError(
            f"expected the argument {name!r} of {option} to be text or a whole number, got "
            f"{MASK if is_masked else repr(value)}. Give a function of the arguments instead of "
            "a template."
        )
    return digest_of(str(value)) if is_masked else str(value)


def digest_of(text: str) -> str:
    """Return the digest that stands in a key for a secret text: the same in every process.

    `selecting.Digest` says the same in SQL.
    """
    found = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
    return f"sha256:{found[:DIGEST_DIGITS]}"


def _all(arguments: Mapping[str, Any]) -> str:
    # As they are stored: bytes as text, keys of dicts as text.
    stored = json.loads(json.dumps(normalize_json(arguments)))
    return digest_of(json.dumps(stored, sort_keys=True, separators=(",", ":"), ensure_ascii=False))
