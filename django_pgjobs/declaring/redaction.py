"""Masking values with secret names, wherever people see them."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

from django_pgjobs.conf import get_conf

MASK = "••••••"
# What is nested deeper is masked as a whole.
MAX_DEPTH = 50
# The tokens of JSON text: a string, which may be cut off at the end, a bracket, all between.
TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\Z)|\\|[{}\[\]]|[^"\\{}\[\]]+', re.DOTALL)


class Patterns:
    """Regular expressions, each by itself: joined into one they would not mean the same.

    Names of groups are there once, references to groups are counted, flags are for the whole.
    """

    def __init__(self, expressions: tuple[str, ...]) -> None:
        self._all = [re.compile(expression, re.IGNORECASE) for expression in expressions]

    def search(self, name: str) -> bool:
        """Is one of them found in *name*?"""
        return any(pattern.search(name) for pattern in self._all)


def redact(value: Any) -> Any:
    """Return a JSON value with the values of secret names masked, at every depth.

    Secret is a name that one of PGJOBS["REDACT"] is found in. The value itself is not changed.
    """
    pattern = _pattern(get_conf().REDACT)
    return value if pattern is None else _redact(value, pattern, 0)


def is_secret(name: str) -> bool:
    """Does PGJOBS["REDACT"] say that values of this name are masked?"""
    pattern = _pattern(get_conf().REDACT)
    return pattern is not None and pattern.search(name)


def redact_text(text: str) -> str:
    """Return JSON text with the values of secret names masked; it may be cut off or too deep.

    For what `redact` cannot take, because Python cannot decode it.
    """
    pattern = _pattern(get_conf().REDACT)
    if pattern is None:
        return text
    pieces: list[str] = []
    tokens = [found[0] for found in TOKEN.finditer(text)]
    place = 0
    while place < len(tokens):
        token = tokens[place]
        pieces.append(token)
        place += 1
        following = tokens[place] if place < len(tokens) else ""
        if token[0] == '"' and following.lstrip()[:1] == ":" and pattern.search(_plain(token)):
            place, rest = _pass_value(tokens, place)
            pieces += [": ", MASK, rest]
    return "".join(pieces)


def _pass_value(tokens: list[str], place: int) -> tuple[int, str]:
    """Return the place after the value whose colon is at *place*, and what is left before it."""
    head = tokens[place].lstrip()[1:]
    if head.strip():  # a number, true, false or null, up to the comma
        return place + 1, head[head.index(",") :] if "," in head else ""
    depth = 0
    for after in range(place + 1, len(tokens)):
        depth += (tokens[after] in "{[") - (tokens[after] in "}]")
        if depth <= 0:
            return after + 1, ""
    return len(tokens), ""


def _plain(token: str) -> str:
    """Return the text of a string token, its escapes resolved."""
    try:
        return str(json.loads(token, strict=False))
    except ValueError:
        return token


def _redact(value: Any, pattern: Patterns, depth: int) -> Any:
    if not isinstance(value, dict | list):
        return value
    if depth >= MAX_DEPTH:
        return MASK
    if isinstance(value, list):
        return [_redact(item, pattern, depth + 1) for item in value]
    return {
        name: MASK if pattern.search(name) else _redact(item, pattern, depth + 1)
        for name, item in value.items()
    }


@cache
def _pattern(expressions: tuple[str, ...]) -> Patterns | None:
    return Patterns(expressions) if expressions else None
