"""What has an async twin names it where only that one works."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import SynchronousOnlyOperation

import django_pgjobs
from tests import tasks

CALLS: dict[str, Callable[[], object]] = {
    "enqueue": lambda: tasks.add.enqueue(1, 2),
    "enqueue_many": lambda: tasks.add.enqueue_many([(1, 2)]),
    "enqueue_from": lambda: tasks.add.enqueue_from(User.objects.all(), a=1, b=2),
    "cancel": lambda: django_pgjobs.cancel(1),
    "requeue": lambda: django_pgjobs.requeue(1),
    "reschedule": lambda: django_pgjobs.reschedule(1, None),
    "pause": lambda: django_pgjobs.pause(queue="mail"),
    "resume": lambda: django_pgjobs.resume(queue="mail"),
    "acquire": lambda: django_pgjobs.acquire("api"),
    "try_acquire": lambda: django_pgjobs.try_acquire("api"),
    "workflow": lambda: django_pgjobs.workflow("pay").__enter__(),
    "chain": lambda: django_pgjobs.chain(tasks.add.s(1, 2)),
    "group": lambda: django_pgjobs.group([tasks.add.s(1, 2)]),
}


def test_every_function_with_a_twin_is_tried() -> None:
    public = set(django_pgjobs.__all__)
    with_twin = {name for name in public if f"a{name}" in public}
    assert with_twin <= CALLS.keys()


@pytest.mark.parametrize("name", CALLS)
def test_in_async_code_a_function_names_its_twin(name: str) -> None:
    async def view() -> None:
        CALLS[name]()

    with pytest.raises(SynchronousOnlyOperation) as caught:
        asyncio.run(view())
    said = f"{name}() cannot be called in async code. Write `await a{name}(...)`."
    assert str(caught.value) == said
