"""Functions that have a twin for async code, `aenqueue` for `enqueue`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from django.utils.asyncio import async_unsafe

F = TypeVar("F", bound=Callable[..., Any])


def has_async_twin(function: F) -> F:
    """Refuse a function in async code, and name its twin; Django alone would name threads."""
    name = function.__name__
    refuse = async_unsafe(f"{name}() cannot be called in async code. Write `await a{name}(...)`.")
    guarded: F = refuse(function)
    return guarded
