"""What `TASKS` says of a backend of ours, checked."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from django_pgjobs.conf import ATTEMPTS, WrongSetting, accepts
from django_pgjobs.values.bounds import MAX_ALIAS_BYTES, MAX_QUEUE_NAME_BYTES
from django_pgjobs.values.payload import fits_column, quoted

KEYS = ("BACKEND", "QUEUES", "OPTIONS")
OPTION_RULES = {"FOREIGN_MAX_ATTEMPTS": ATTEMPTS}


def find_backend_problems(
    alias: str, params: Mapping[str, Any], known_options: Collection[str]
) -> Iterator[WrongSetting]:
    """Yield all that is wrong with TASKS[*alias*] of a backend of ours.

    *known_options* are the keys of OPTIONS that its class takes.
    """
    place = f"TASKS[{alias!r}]"
    if not fits_column(alias, MAX_ALIAS_BYTES):
        expected = f"an alias of 1 to {MAX_ALIAS_BYTES} bytes without NUL"
        fact = f"expected {expected} in TASKS, got {alias!r}."
        yield WrongSetting(place, fact, "Give it another name.")
    for key in params:
        if key not in KEYS:
            fact = f"unknown key {quoted(key)} in {place}."
            yield WrongSetting(f"{place}[{quoted(key)}]", fact, _hint(key, KEYS))
    queues = params.get("QUEUES", [])
    if not isinstance(queues, list | tuple | set | frozenset) or not all(
        fits_column(name, MAX_QUEUE_NAME_BYTES) for name in queues
    ):
        names = f"a list of names of 1 to {MAX_QUEUE_NAME_BYTES} bytes"
        fact = f"expected {place}['QUEUES'] to be {names}, got {quoted(queues)}."
        yield WrongSetting(f"{place}['QUEUES']", fact, "Write [] to allow any name.")
    options, place = params.get("OPTIONS", {}), f"{place}['OPTIONS']"
    if not isinstance(options, Mapping):
        fact = f"expected {place} to be a dict, got {quoted(options)}."
        yield WrongSetting(place, fact, "See docs/settings.md.")
        return
    for key, value in options.items():
        rule, about = OPTION_RULES.get(key), f"{place}[{quoted(key)}]"
        if key not in known_options:
            fact = f"unknown key {quoted(key)} in {place}."
            yield WrongSetting(about, fact, _hint(key, known_options))
        elif rule is not None and not accepts(rule, value):
            fact = f"expected {about} to be {rule.expected}, got {quoted(value)}."
            yield WrongSetting(about, fact, "See docs/settings.md.")


def _hint(key: object, known: Collection[str]) -> str:
    """Return what to do about an unknown key: what is near, and what is known."""
    near = difflib.get_close_matches(quoted(key).strip("'"), known, n=1, cutoff=0.4)
    known_keys = ", ".join(sorted(known))
    return f"Did you mean {near[0]}? Known: {known_keys}." if near else f"Known: {known_keys}."
