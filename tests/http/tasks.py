"""Remote tasks for the tests; their bodies are what `run_jobs()` calls."""

from __future__ import annotations

from typing import Any

from django_pgjobs import task


@task(remote=True, queue_name="node")
def resize(width: int, height: int = 1) -> Any:
    """Return the area."""
    return width * height


@task(remote=True, queue_name="node", max_attempts=3, backoff=[0])
def convert(name: str = "a") -> Any:
    """Return the name; three attempts without a pause."""
    return name


@task(remote=True, queue_name="node", concurrency_key="shop:{shop}", timeout=60)
def bill(shop: int, number: int = 0) -> Any:
    """Return the number, of one shop at a time."""
    return number


@task(remote=True, queue_name="node", concurrency_key="pack:{shop}", concurrency_limit=2)
def pack(shop: int, number: int = 0) -> Any:
    """Return the number; two of a shop at a time."""
    return number


@task(remote=True, queue_name="node", rate_limit="partner:{shop}")
def push(shop: int, number: int = 0) -> Any:
    """Return the number, as fast as the limit "partner" lets the shop."""
    return number


@task(remote=True, queue_name="python")
def other() -> None:
    """Do nothing, in another queue."""
