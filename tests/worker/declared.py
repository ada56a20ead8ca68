"""Tasks that declare when their jobs start, for rows that somebody writes without it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

from django_pgjobs import task

running = Counter[str]()
most = Counter[str]()
order: list[Any] = []
_lock = threading.Lock()


def note(key: str, value: Any = None) -> None:
    """Count how many jobs of a key run at once, and in which order they begin."""
    with _lock:
        order.append(value)
        running[key] += 1
        most[key] = max(most[key], running[key])
    time.sleep(0.005)
    with _lock:
        running[key] -= 1


def refuse(shop_id: int) -> str:
    """Be a key that comes to nothing for some shops."""
    if shop_id < 0:
        raise LookupError(f"no shop {shop_id}")
    return f"shop:{shop_id}"


@task(concurrency_key="shop:{shop_id}")
def one_at_a_time(shop_id: int, value: Any = None) -> None:
    note(f"shop:{shop_id}", value)


@task(concurrency_limit=2)
def two_at_a_time() -> None:
    note("two")


@task(rate_limit=["declared-api:{shop_id}", "declared-all"], rate_cost=2)
def limited(shop_id: int) -> None:
    note("limited")


@task(queue_name="mail", priority=7)
def placed() -> None:
    note("placed")


@task(unique_key="report:{month}")
def unique(month: str) -> list[str]:
    return [month]


@task(unique_key="report:{month}", unique_until="claimed", on_conflict="raise")
def unique_until_claimed(month: str) -> list[str]:
    return [month]


@task(unique_key="product:{product_id}", on_conflict="merge", queue_name="mail")
def merged(product_id: int, fields: list[str]) -> list[str]:
    return fields


@task(concurrency_key=refuse, ordering="skip", max_attempts=5)
def keyed_by_function(shop_id: int) -> int:
    note("function")
    return shop_id


@task(concurrency_key="shop:{shop_id}")
async def on_the_loop(shop_id: int) -> None:
    order.append(shop_id)


@task(timeout=5, max_attempts=2)
def free() -> None:
    note("free")
