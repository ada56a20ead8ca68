"""Tasks for the tests of the worker; those that wait do so at a gate of the test."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connection, transaction

from django_pgjobs import Discard, JobCancelled, Snooze, current_job, task
from tests import tasks as plain_tasks
from tests.models import Effect
from tests.tasks import Mishap
from tests.worker.support import Gate

gates: dict[str, Gate] = {}
meetings: Counter[str] = Counter()


@task
def wait_at_gate(value: Any = None) -> Any:
    """Wait until the test opens the gate."""
    for _ in gates["gate"].passed():
        pass
    return value


@task
async def wait_at_gate_async(value: Any = None) -> Any:
    """Wait until the test opens the gate, on the event loop."""
    for _ in gates["gate"].passed():
        await asyncio.sleep(0.01)
    return value


@task
async def block_the_loop() -> None:
    """Wait at the gate, and give way to no other job."""
    wait_at_gate.func()


@task
async def block_behind() -> None:
    """Leave behind on the loop what waits at the gate, and gives way to nothing."""
    asyncio.get_running_loop().call_soon(wait_at_gate.func)


@task(backoff=[0])
def spin() -> None:
    """Work for ever without waiting for anything."""
    while True:
        pass


@task(backoff=[0])
async def spin_async() -> None:
    """Give way to other jobs now and then, for ever."""
    while True:
        await asyncio.sleep(0)


@task(backoff=[0])
async def sleep_async() -> None:
    """Wait for ever on the event loop."""
    await asyncio.sleep(3600)


@task
async def clean_up_slowly() -> None:
    """Wait for ever on the event loop, and at the gate before it ends."""
    try:
        await asyncio.sleep(3600)
    finally:
        await wait_at_gate_async.func()


@task(timeout=0.1, max_attempts=1)
def spin_briefly() -> None:
    """Work for ever, which the task does not allow."""
    spin.func()


@task(max_attempts=1)
def spin_catching_exceptions() -> None:
    """Work for ever and go on after any Exception."""
    while True:
        try:
            for _ in range(1_000):
                pass
        except Exception:
            pass


@task
def catch_cancel() -> list[str]:
    """End well when the job is cancelled."""
    try:
        wait_at_gate.func()
    except JobCancelled:
        return ["caught"]
    return ["not cancelled"]


@task
def ignore_interrupts() -> None:
    """Go on until the gate is open, whatever the worker raises."""
    gate = gates["gate"]
    gate.entered.release()
    while not gate.opened.is_set():
        try:
            gate.opened.wait(0.01)
        except BaseException:
            pass


@task
def never_called() -> None:
    """Fail the test: nobody may call it."""
    raise AssertionError("the task was called")


@task(max_attempts=1)
async def meet(name: str, parties: int) -> int:
    """Wait until *parties* jobs are here at once."""
    meetings[name] += 1
    while meetings[name] < parties:
        await asyncio.sleep(0.005)
    return meetings[name]


@task
async def describe_job_async() -> list[Any]:
    """Return what current_job() says before and after others had their turn."""
    before = current_job()
    await asyncio.sleep(0.02)
    return [before.id, current_job().id, before.attempt, before.queue_name]


@task
async def use_orm_async(key: str) -> int:
    """Write and read through the ORM from the event loop."""
    await Effect.objects.acreate(key=key, job_id=current_job().id)
    return await Effect.objects.filter(key=key).acount()


def backend_pid() -> int:
    """Return the server's process behind Django's connection of this thread."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


@task(max_attempts=1)
def session() -> int:
    """Return the server's process behind Django's connection of a slot."""
    return backend_pid()


@task(max_attempts=1)
async def shared_session() -> int:
    """Return the server's process behind the connection that async jobs share."""
    return await sync_to_async(backend_pid)()


@task
async def enqueue_async(a: int) -> str:
    """Enqueue another job from the event loop."""
    return (await plain_tasks.add.aenqueue(a, a)).id


@task(max_attempts=1)
async def cancel_itself() -> None:
    """Cancel the asyncio task that it is."""
    this = asyncio.current_task()
    assert this is not None
    this.cancel()
    await asyncio.sleep(10)


@task(max_attempts=1)
async def leave_a_task_behind() -> list[str]:
    """Start something on the loop that fails after the job has ended."""

    async def fail_later() -> None:
        await asyncio.sleep(0)
        raise Mishap("later")

    handle = asyncio.get_running_loop().create_task(fail_later())
    handle.add_done_callback(lambda done: done.exception())
    return ["ended"]


@task(takes_context=True)
async def describe_context_async(context: Any, value: Any) -> list[Any]:
    """Return what the context says."""
    return [context.attempt, context.task_result.id, value]


@task(atomic=True)
def record_atomic_at_gate(key: str) -> None:
    """Insert an Effect and wait at the gate, all in one transaction."""
    plain_tasks.record.func(key)
    wait_at_gate.func()


@task(atomic=True)
def set_read_only() -> None:
    """Let the transaction that is to finish the job write nothing."""
    with connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION READ ONLY")


@task(resets_session=False)
def leave_read_only() -> None:
    """Let the session write nothing from now on."""
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = on")


@task(atomic=True, max_attempts=1)
def leave_broken_hook(key: str) -> None:
    """Insert an Effect, and raise once that is committed."""
    Effect.objects.create(key=key, job_id=int(current_job().id))
    transaction.on_commit(lambda: 1 / 0)


@task(atomic=True)
def take_effect_atomic(key: str) -> None:
    """Lock an Effect, in the transaction that finishes the job."""
    Effect.objects.select_for_update().get(key=key)


@task(atomic=True, max_attempts=1)
def record_atomic_and_return_nan(key: str) -> float:
    """Insert an Effect and return what cannot be stored."""
    plain_tasks.record.func(key)
    return float("nan")


@task(atomic=True, backoff=[0])
def update_in_snapshot(pk: int) -> None:
    """Read a row, wait at the gate, and write the row, all in one snapshot."""
    with connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    effect = Effect.objects.get(pk=pk)
    wait_at_gate.func()
    Effect.objects.filter(pk=pk).update(attempt=(effect.attempt or 0) + 1)


@task(atomic=True, max_attempts=1)
def enqueue_atomic_and_fail() -> None:
    """Enqueue a job, and fail."""
    plain_tasks.add.enqueue(1, 2)
    raise Mishap("after the enqueue")


@task(atomic=True)
def steer_atomic(name: str) -> None:
    """Insert an Effect, and say what becomes of the job."""
    plain_tasks.record.func(name)
    raise {"Snooze": Snooze(60), "Discard": Discard("no use")}[name]


@task
def tell_time_left() -> list[float | None]:
    """Return how long the attempt may run."""
    return [current_job().seconds_left]


@task(takes_context=True, backoff=[0])
def fail_by_context(context: Any) -> list[int]:
    """Fail until the third attempt."""
    if context.attempt < 3:
        raise Mishap("not yet")
    return [context.attempt]


@task
def report_progress() -> None:
    """Report progress twice, the second time with a text that cannot be stored, and wait."""
    current_job().progress(1, 10, "one")
    current_job().progress(2, 10, "two\0")
    wait_at_gate.func()


def _report_and_end() -> None:
    for done in range(1, 4):
        current_job().progress(done, 3)


@task
def report_and_end() -> None:
    """Report progress up to the end."""
    _report_and_end()


@task
async def report_and_end_async() -> None:
    """Do so on the event loop."""
    _report_and_end()


@task(atomic=True)
def report_and_end_atomic() -> None:
    """Do so in the transaction that finishes the job."""
    _report_and_end()


@task(max_attempts=1)
def report_and_fail() -> None:
    """Do so and fail."""
    _report_and_end()
    raise ValueError("no")


@task
def report_when_told() -> None:
    """Report progress after the gate has opened, and wait there again."""
    wait_at_gate.func()
    gates["gate"].opened.clear()
    current_job().progress(1)
    wait_at_gate.func()


@task
def wait_until_cancelled() -> list[str]:
    """Swallow what the worker raises, and look at is_cancelled instead."""
    gate = gates["gate"]
    gate.entered.release()
    while not gate.opened.is_set():
        try:
            if current_job().is_cancelled:
                return ["saw it"]
            gate.opened.wait(0.01)
        except JobCancelled:
            pass
    return ["did not see it"]


@task
def wait_at_gate_stubbornly(value: Any) -> Any:
    """Wait until the test opens the gate, whatever the worker raises."""
    ignore_interrupts.func()
    return value


@task(atomic=True, backoff=[0])
def enqueue_from_another_path() -> None:
    """Let the session search another schema, as that of a tenant, and enqueue in every way."""
    with connection.cursor() as cursor:
        cursor.execute("SET search_path = information_schema")
    first = plain_tasks.add.enqueue(1, 2)
    plain_tasks.add.using(after=[first], concurrency_key="shop:1").enqueue(1, 2)
    plain_tasks.add.using(unique_key="once").enqueue(1, 2)
    plain_tasks.echo.enqueue_many([{"number": 1}, {"number": 2}])


@task(max_attempts=1)
def wait_at_gate_and_fail() -> None:
    """Fail for good after the test has opened the gate."""
    wait_at_gate.func()
    raise Mishap("on purpose")


@task
def wait_at_gate_and_snooze() -> None:
    """Put itself off for long after the test has opened the gate."""
    wait_at_gate.func()
    raise Snooze(3600)


@task(atomic=True)
def wait_at_gate_atomic() -> None:
    """Wait until the test opens the gate, in a transaction."""
    wait_at_gate.func()
