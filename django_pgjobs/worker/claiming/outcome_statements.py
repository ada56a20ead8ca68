"""The statements that write a batch of outcomes, one for each kind."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from django_pgjobs.queries import batches, dependencies, jobs
from django_pgjobs.queries.filling import Filling, send_fillings
from django_pgjobs.queries.sends import Send
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.running.outcome import Entry, Kind, Outcome


class OutcomeStatement(NamedTuple):
    """A statement that writes outcomes, and the outcomes that it writes."""

    send: Send
    entries: list[Entry]


def writings(batch: Sequence[Entry], *, skips_locked: bool = False) -> list[OutcomeStatement]:
    """Return the statements for a batch, one for each kind of outcome it has.

    Their rows are the ids of the jobs that were changed. Jobs of batches have statements of their
    own; where these have made jobs, a row without an id names the queue behind it.
    """
    plain = [entry for entry in batch if entry[0].row.batch_id is None]
    statements = _writings(plain, jobs, skips_locked=skips_locked)
    if len(plain) < len(batch):
        others = [entry for entry in batch if entry[0].row.batch_id is not None]
        statements += _writings(others, batches, skips_locked=skips_locked)
    return statements


class Finish(Protocol):
    """A module that sends outcomes which end or return jobs: `jobs` or `batches`."""

    send_successes: Callable[..., None]
    send_ends: Callable[..., None]
    send_returns: Callable[..., None]


def _writings(
    batch: Sequence[Entry], finish: Finish, *, skips_locked: bool
) -> list[OutcomeStatement]:
    now = time.monotonic()
    successes = [entry for entry in batch if entry[1].kind is Kind.DONE]
    others = [entry for entry in batch if entry[1].kind is not Kind.DONE]
    ends = [entry for entry in others if entry[1].status is not None]
    fillings = [entry for entry in others if entry[1].control is not None]
    controls = [
        Filling(a.id, a.claim, o.control, a.is_async) for a, o in fillings if o.control is not None
    ]
    returns = [e for e in others if e[1].status is None and e[1].control is None]
    rows: list[tuple[Callable[..., None], list[Any], list[Entry]]] = [
        (finish.send_successes, [_success(*entry, now) for entry in successes], successes),
        (finish.send_ends, [_end(*entry, now) for entry in ends], ends),
        (finish.send_returns, [_return(*entry, now) for entry in returns], returns),
        (send_fillings, controls, fillings),
    ]
    return [
        OutcomeStatement(partial(send, outcomes=outcomes, skips_locked=skips_locked), entries)
        for send, outcomes, entries in rows
        if entries
    ]


def resolution(batch: Sequence[Entry]) -> Send:
    """Return the function that releases the jobs that waited for those that a batch finished.

    It releases one page of them; the sweep finds the others.
    """
    ids = [attempt.id for attempt, _ in batch]
    return lambda cursor: dependencies.send_resolution(cursor, ids)


def _success(attempt: Attempt, outcome: Outcome, now: float) -> jobs.Success:
    age = now - outcome.ended_at
    return jobs.Success(attempt.id, attempt.claim, outcome.result, age, outcome.duration)


def _end(attempt: Attempt, outcome: Outcome, now: float) -> jobs.End:
    return jobs.End(
        id=attempt.id,
        claim=attempt.claim,
        status=str(outcome.status),
        error=outcome.error,
        note=outcome.note,
        age=now - outcome.ended_at,
        duration=outcome.duration,
        counted=outcome.kind is not Kind.EXPIRE,
    )


def _return(attempt: Attempt, outcome: Outcome, now: float) -> jobs.Return:
    return jobs.Return(
        id=attempt.id,
        claim=attempt.claim,
        delay=outcome.delay,
        counted=outcome.kind is Kind.RETRY,
        interrupted=outcome.interrupted,
        is_async=attempt.hint,
        begun=outcome.interrupted or outcome.kind in (Kind.RETRY, Kind.SNOOZE),
        error=outcome.error,
        note=outcome.note,
        age=now - outcome.ended_at,
        duration=outcome.duration,
    )
