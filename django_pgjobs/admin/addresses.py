"""Addresses of the list of jobs: what it is searched for, and in which order it is."""

from __future__ import annotations

import re
from urllib.parse import urlencode

# What the parameter SORT is for the other order than the usual one.
SORT, OLDEST = "sort", "oldest"


def in_quotes(text: str) -> str:
    """Return a value as the search of the list reads it, whatever is in it."""
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def quoted(text: str) -> str:
    """Return a value as a person would write it, in quotes only if it needs them."""
    return text if re.fullmatch(r"[\w.:-]+", text) else in_quotes(text)


def search_address(listed: str, term: str, value: str, *, status: str = "") -> str:
    """Return the address of the list, at *listed*, searched for *value* as *term*.

    And for a *status*, if one is given.
    """
    also = f" status:{status}" if status else ""
    query = urlencode({"q": f"{term}:{in_quotes(value)}{also}"})
    return f"{listed}?{query}"
