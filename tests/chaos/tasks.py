"""What the jobs do: little, but they say so in the journal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import Iterator

from django_pgjobs import Discard, Retry, Snooze, current_batch, current_job, task
from tests.chaos.journal import BEGIN, DYING, END, Journal
from tests.models import Effect
from tests.tasks import Mishap, sleep_for

# Longer than a run: only a cancellation, a shutdown or a death ends it.
FOREVER = 36_000.0
BACKOFF = [0.1]


def note(kind: str, token: str) -> None:
    """Write a line about the current attempt."""
    Journal().write(kind, token=token, job=int(current_job().id), process=os.getpid())


@contextlib.contextmanager
def noted(token: str) -> Iterator[None]:
    """Write the begin of the attempt, and its end if it comes to that."""
    note(BEGIN, token)
    yield
    note(END, token)


def take(token: str, seconds: float) -> None:
    """Be busy for a while."""
    with noted(token):
        sleep_for.func(seconds)


@task(backoff=BACKOFF)
def work(token: str, seconds: float = 0.0) -> None:
    """Take *seconds*."""
    take(token, seconds)


@task(backoff=BACKOFF)
async def work_async(token: str, seconds: float = 0.0) -> None:
    """Take *seconds* on the event loop."""
    with noted(token):
        await asyncio.sleep(seconds)


@task(atomic=True, backoff=BACKOFF)
def record(token: str, seconds: float = 0.0) -> None:
    """Leave an effect that must be there exactly once."""
    with noted(token):
        Effect.objects.create(key=token, job_id=int(current_job().id))
        sleep_for.func(seconds)


@task(atomic=True, backoff=BACKOFF, max_attempts=3)
def record_and_fail(token: str) -> None:
    """Leave an effect and fail, now and then."""
    note(BEGIN, token)
    Effect.objects.create(key=token, job_id=int(current_job().id))
    if random.random() < 0.6:
        raise Mishap(token)
    note(END, token)


@task(backoff=BACKOFF, max_attempts=4)
def stumble(token: str) -> None:
    """Fail, retry, snooze or give up, whatever the dice say."""
    note(BEGIN, token)
    ends = [Mishap(token), Retry(token, after=0.2), Snooze(0.2), Discard(token), None, None]
    end = random.choice(ends)
    if end is not None:
        raise end
    note(END, token)


@task(timeout=0.3, backoff=BACKOFF, max_attempts=2)
def dawdle(token: str) -> None:
    """Take too long."""
    take(token, 5.0)


@task(backoff=BACKOFF)
def linger(token: str) -> None:
    """Go on until somebody cancels it."""
    take(token, FOREVER)


@task(backoff=BACKOFF)
async def linger_async(token: str) -> None:
    """Go on until somebody cancels it, on the event loop."""
    with noted(token):
        await asyncio.sleep(FOREVER)


@task(backoff=BACKOFF, max_attempts=2)
def die(token: str) -> None:
    """Kill the worker's process."""
    note(BEGIN, token)
    note(DYING, token)
    os.kill(os.getpid(), signal.SIGKILL)


@task(concurrency_key="order:{key}", backoff=BACKOFF)
def in_order(token: str, key: str, seconds: float = 0.0, mishap: float = 0.0) -> None:
    """Run alone and in order, through failures that come with the probability *mishap*."""
    note(BEGIN, token)
    if random.random() < mishap:
        raise Mishap(token)
    sleep_for.func(seconds)
    note(END, token)


@task(concurrency_key="skip:{key}", ordering="skip", backoff=[1.0])
def passing(token: str, key: str, mishap: float = 0.0) -> None:
    """Run alone, but let others pass while it waits for a retry."""
    in_order.func(token, key, 0.01, mishap)


@task(concurrency_key="wide:{key}", concurrency_limit=3, backoff=BACKOFF)
def beside(token: str, key: str, seconds: float = 0.0) -> None:
    """Run beside at most so many of the key."""
    take(token, seconds)


@task(queue_name="narrow", backoff=BACKOFF)
def squeeze(token: str, seconds: float = 0.0) -> None:
    """Run in a queue that has a limit."""
    take(token, seconds)


@task(rate_limit="chaos:{key}", backoff=BACKOFF)
def rated(token: str, key: str) -> None:
    """Start only as fast as the limit "chaos" lets the key."""
    take(token, 0.0)


@task(unique_key="{key}", backoff=BACKOFF)
def once(token: str, key: str, seconds: float = 0.0) -> None:
    """Be the only one of its key that is not finished."""
    take(token, seconds)


@task(unique_key="{key}", on_conflict="raise", backoff=BACKOFF)
def strictly_once(token: str, key: str, seconds: float = 0.0) -> None:
    """Do as `once`; a second enqueue is refused."""
    take(token, seconds)


@task(unique_key="{key}", on_conflict="replace", backoff=BACKOFF)
def latest(token: str, key: str) -> None:
    """Run with what was enqueued last."""
    take(token, 0.01)


@task(unique_key="{key}", on_conflict="merge", max_wait=5, backoff=BACKOFF)
def gather(tokens: list[str], key: str) -> None:
    """Take in what was enqueued while it waited."""
    for token in tokens:
        note(BEGIN, token)
    sleep_for.func(0.01)
    for token in tokens:
        note(END, token)


# Of workers over HTTP (`elsewhere`), which share keys with ours; the bodies stand in.


@task(remote=True, queue_name="remote", backoff=BACKOFF)
def elsewhere(token: str, seconds: float = 0.0, mishap: float = 0.0) -> str:
    """Take *seconds*."""
    return token


@task(remote=True, queue_name="remote", concurrency_key="order:{key}", backoff=BACKOFF)
def elsewhere_in_order(token: str, seconds: float, mishap: float, key: str) -> str:
    """Run alone and in order, as `in_order`."""
    return token


@task(
    remote=True,
    queue_name="remote",
    concurrency_key="wide:{key}",
    concurrency_limit=3,
    backoff=BACKOFF,
)
def elsewhere_beside(token: str, seconds: float, mishap: float, key: str) -> str:
    """Run beside at most so many of the key, as `beside`."""
    return token


# Of workflows.


@task(backoff=BACKOFF)
def give(token: str, count: int) -> list[int]:
    """Return so many numbers."""
    take(token, 0.0)
    return list(range(count))


@task(atomic=True, backoff=BACKOFF)
def give_atomic(token: str, count: int) -> list[int]:
    """Do as `give`, and be counted in the transaction of the task."""
    return list(give.func(token, count))


@task(backoff=BACKOFF, max_attempts=2)
def give_or_fail(token: str, count: int) -> list[int]:
    """Do as `give`, or fail."""
    note(BEGIN, token)
    if random.random() < 0.5:
        raise Mishap(token)
    note(END, token)
    return list(range(count))


@task(backoff=BACKOFF)
def grow(token: str, count: int) -> None:
    """Add to its own batch."""
    with noted(token):
        current_batch().add(*(give.s(token, number) for number in range(count)))


@task(backoff=BACKOFF)
def pass_on(value: object, token: str) -> object:
    """Return what came before."""
    take(token, 0.0)
    return value


@task(backoff=BACKOFF)
def told(batch_id: int, token: str) -> None:
    """Hear that a batch is complete."""
    take(token, 0.0)
