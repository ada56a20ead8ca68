"""Checking a call against a task's signature: the quick answer is the one that Python gives."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest

from django_pgjobs.declaring.signatures import Signature


def plain(a: int, b: int, c: int = 3) -> None: ...


def keyword_only(a: int, *, b: int, c: int = 3) -> None: ...


def positional_only(a: int, /, b: int = 2) -> None: ...


def starred(a: int, *rest: int) -> None: ...


def double_starred(a: int, **rest: int) -> None: ...


def empty() -> None: ...


def with_context(context: Any, a: int, b: int = 2) -> None: ...


FUNCTIONS = [plain, keyword_only, positional_only, starred, double_starred, empty, with_context]
NAMES = ("a", "b", "c", "d")


def fits(signature: inspect.Signature, args: tuple[Any, ...], names: tuple[str, ...]) -> bool:
    """Ask Python."""
    try:
        signature.bind(*args, **dict.fromkeys(names, 1))
    except TypeError:
        return False
    return True


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_quick_answer_agrees_with_python(function: Callable[..., None]) -> None:
    """Where it is no, Python is asked, so it may be no too often and never yes wrongly."""
    signature = Signature(function, function is with_context)
    yes = 0
    for count in range(5):
        for size in range(len(NAMES) + 1):
            for names in combinations(NAMES, size):
                answer = signature.accepts(count, names)
                yes += answer
                expected = fits(signature.full, (*signature.first, *range(count)), names)
                assert answer == expected if signature.is_simple else answer <= expected
    assert bool(yes) == signature.is_simple
