"""Tasks that say what becomes of their job: by what they raise, and by what they declare."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django_pgjobs import Discard, Exponential, Retry, Snooze, current_job, task
from django_pgjobs.exceptions import JobTimeout, RemoteFailure
from tests.tasks import Mishap

# What a backoff callable was given, the newest last.
asked: list[tuple[BaseException, Any]] = []


class Fatal(Mishap):
    """A kind of Mishap that no repetition cures."""


def retry_from(cause: BaseException) -> Retry:
    """Return what `raise Retry("again") from cause` raises."""
    retry = Retry("again")
    retry.__cause__ = cause
    return retry


def in_circle(retry: Retry) -> Retry:
    """Return what `raise retry from retry` raises."""
    retry.__cause__ = retry
    return retry


RAISED: dict[str, Callable[[], BaseException]] = {
    "Retry": lambda: Retry("again"),
    "Retry after 30": lambda: Retry("again", after=30),
    "Retry after timedelta": lambda: Retry(after=timedelta(minutes=2)),
    "Retry at once": lambda: Retry(after=0),
    "Retry from Mishap": lambda: retry_from(Mishap("m")),
    "Retry from a Retry": lambda: retry_from(retry_from(Mishap("m"))),
    "Retry from a timeout": lambda: retry_from(JobTimeout()),
    "Retry in a circle": lambda: in_circle(Retry("again")),
    "told to retry a Mishap": lambda: RemoteFailure("Mishap", steering=Retry()),
    "Retry in an eternity": lambda: Retry(after=1e300),
    "Discard": lambda: Discard("no use"),
    "Snooze": lambda: Snooze(45, "not ready"),
    "Snooze timedelta": lambda: Snooze(timedelta(hours=1)),
    "Snooze for an eternity": lambda: Snooze(1e300),
    "Mishap": lambda: Mishap("m"),
    "Fatal": lambda: Fatal("f"),
    "KeyError": lambda: KeyError("k"),
    "SystemExit": lambda: SystemExit(1),
}


@task(backoff=[7], max_attempts=3)
def end_by(name: str) -> None:
    """Raise one of RAISED."""
    raise RAISED[name]()


@task(retry_on=(Mishap,), discard_on=(Fatal,), backoff=[7])
def end_by_chosen(name: str) -> None:
    """Raise one of RAISED; only a Mishap is tried again."""
    raise RAISED[name]()


@task(retry_on=(BaseException,), backoff=[7])
def end_by_retrying_all(name: str) -> None:
    """Raise one of RAISED; everything is tried again."""
    raise RAISED[name]()


@task(discard_on=(Mishap,), max_attempts=9)
def end_by_discarding(name: str) -> None:
    """Raise one of RAISED; no Mishap is tried again, whatever retry_on says."""
    raise RAISED[name]()


@task(backoff=[0, 10, 30, 60], max_attempts=9)
def fail_by_list() -> None:
    """Fail, to be tried again by a list of delays."""
    raise Mishap("list")


@task(backoff=Exponential(base=3, factor=2, maximum=20, jitter=0), max_attempts=9)
def fail_exponentially() -> None:
    """Fail, to be tried again after growing delays."""
    raise Mishap("exponential")


ANSWERS: dict[str, Any] = {
    "none": None,
    "12": 12,
    "timedelta": timedelta(minutes=1),
    "negative": -1,
    "text": "soon",
    "eternity": 1e300,
}


def answer(error: BaseException, result: Any) -> Any:
    """Give one of ANSWERS, by the message; raise for any other."""
    asked.append((error, result))
    return ANSWERS[str(error)]


@task(backoff=answer, max_attempts=9)
def fail_asking(message: str) -> None:
    """Fail, to be tried again when `answer` says."""
    raise Mishap(message)


@task(backoff=[0], max_attempts=5)
def fail_until(attempt: int) -> int:
    """Fail until the attempt of that number."""
    job = current_job()
    if job.attempt < attempt:
        raise Mishap(f"attempt {job.attempt}")
    return job.attempt


@task(max_attempts=1)
def snooze_until_snoozed(times: list[int]) -> None:
    """Put off, at the only attempt there is."""
    raise Snooze(0)
