"""A clock that a test moves: schedules and retries come when it says so, and nobody waits.

    from django_pgjobs.testing import simulated_time

    def test_the_report_is_sent_each_night():
        with simulated_time(datetime(2026, 3, 28, 12, tzinfo=BERLIN)) as clock:
            clock.advance(timedelta(days=2))
        assert len(mail.outbox) == 2

The server keeps its time, and so does Python. What waits is moved instead: when an hour passes,
each waiting job has waited an hour longer, and what the code of the test takes is given back to
them. Schedules are planned as if it were the clock's time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import DateTimeField, F, Value
from django.db.models.functions import Cast, Greatest
from django.utils.asyncio import async_unsafe

from django_pgjobs.control.rate_limits import on_django_connection
from django_pgjobs.declaring.job_result import running_jobs_here
from django_pgjobs.models import Job, Occurrence, Schedule
from django_pgjobs.queries import schedules as queries
from django_pgjobs.queries import simulating
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.queries.database import job_cursor
from django_pgjobs.schedules.control import skipped_by_hand
from django_pgjobs.schedules.firing import ScheduleTurn, fire_due
from django_pgjobs.schedules.syncing import sync_schedules
from django_pgjobs.status import JobStatus
from django_pgjobs.testing.running import TooManyAttempts, discover_or_raise, run_due
from django_pgjobs.values.given import given_instant

# The times of a job that waits.
MOVED = ("enqueued_at", "run_after", "due_at", "ready_at", "expires_at")


class Clock:
    """The time of a test: `now`, and what moves it."""

    def __init__(
        self, now: datetime, excluded: Collection[str], limit: int, *, read_at: datetime
    ) -> None:
        self.now = now
        # The server's time that is the clock's now.
        self._read_at = read_at
        self._excluded = set(excluded)
        self._limit = limit
        # How many jobs of each schedule there were.
        self._fired: Counter[str] = Counter()

    def advance(self, span: timedelta) -> int:
        """Let *span* pass, and run what becomes due, in its order; return the number of attempts.

        What may run now runs first. Raise TypeError for a *span* that is no timedelta, ValueError
        for a negative one, and RuntimeError above the limit of attempts.
        """
        if not isinstance(span, timedelta):
            raise TypeError(f"advance() expected a timedelta, got {span!r}.")
        return self.advance_to(self.now + span)

    @async_unsafe("Clock.advance() cannot be called in an async test. Use sync_to_async().")
    def advance_to(self, until: datetime) -> int:
        """Do as `advance`, up to an aware instant; raise ValueError for one that is over."""
        until = given_instant("advance_to() expected an instant", until)
        if until < self.now:
            raise ValueError(f"expected a time from {self.now} on, got {until}: no way back.")
        try:
            return self._advance_to(until)
        except TooManyAttempts:
            raise RuntimeError(self._too_many()) from None

    def _advance_to(self, until: datetime) -> int:
        ran = 0
        with job_cursor() as cursor, _here():
            ran += self._work(cursor, self._limit)
            while (wait := self._wait(cursor)) is not None and self.now + wait <= until:
                self._pass(cursor, wait)
                ran += self._work(cursor, self._limit - ran)
            self._pass(cursor, until - self.now)
        return ran

    def _too_many(self) -> str:
        said = f"simulated_time(limit={self._limit}) expected no more attempts in one advance."
        if not self._fired:
            return said
        [(name, count)] = self._fired.most_common(1)
        return (
            f"{said} Most jobs are of schedule {name!r}: {count}. Name those that you need with "
            "schedules=[...], or give a higher limit."
        )

    def _wait(self, cursor: Cursor) -> timedelta | None:
        """Return how long it is until something is due, None if nothing is."""
        known = [
            queries.get_schedule_wait(cursor, late=0.0, excluded=self._excluded, now=self.now),
            simulating.get_due_wait(cursor, self._read_at),
        ]
        waits = [max(0.0, seconds) for seconds in known if seconds is not None]
        return timedelta(seconds=min(waits)) if waits else None

    def _pass(self, cursor: Cursor, span: timedelta) -> None:
        _waiting().update(**{name: F(name) - span for name in MOVED})
        simulating.pass_time(cursor, span.total_seconds())
        self.now += span

    def _stand_still(self, cursor: Cursor) -> None:
        """Give back what has passed on the server's clock since the last call."""
        now = queries.get_now(cursor)
        # A job that was enqueued since then has waited for a shorter time.
        counted = Value(now) - Greatest(Value(self._read_at), F("enqueued_at"))
        _waiting().update(**{name: F(name) + counted for name in MOVED})
        simulating.give_time_back(cursor, read_at=self._read_at, now=now)
        self._read_at = now

    def _work(self, cursor: Cursor, limit: int) -> int:
        """Enqueue what is due by the clock, and run what may run."""
        while self._fire(cursor).is_full:
            pass
        ran = run_due(limit, before_time_counts=lambda: self._stand_still(cursor))
        self._stand_still(cursor)
        return ran

    def _fire(self, cursor: Cursor) -> ScheduleTurn:
        turn = fire_due(excluded=self._excluded, now=self.now)
        if turn.hook_error is not None:
            raise turn.hook_error
        # The schedule of another project or release.
        self._excluded |= set(turn.unknown)
        self._fired.update(row.schedule for row in turn.occurrences if row.job_id is not None)
        ids = [row.job_id for row in turn.occurrences if row.job_id is not None]
        # A start that is asked for is in the clock's time until here.
        moved = F("run_after") - (Value(self.now) - F("enqueued_at"))
        Job.objects.filter(pk__in=ids, run_after__isnull=False).update(
            run_after=moved, due_at=moved
        )
        return turn


def _waiting() -> Any:
    return Job.objects.filter(status=JobStatus.READY)


@contextmanager
def simulated_time(
    begin: datetime | None = None,
    *,
    schedules: Collection[str] | None = None,
    limit: int = 1_000,
) -> Iterator[Clock]:
    """Give a clock that shows *begin* (aware; the server's time), for code that enqueues jobs.

    The schedules of the code are written into the table, as a worker does when it starts, and
    planned from then on; with *schedules* only those of these names. Nothing runs but in
    `Clock.advance`: more than *limit* attempts in one of these raise RuntimeError.

    `current_job().scheduled_for` is of the clock's time; Python's clock and the server's are as
    ever. Inside a transaction, such as that of a TestCase, everything happens in it.

    Raise ValueError for a *begin* without a time zone and for *schedules* that are not there,
    TypeError for what are no names, ImportError if a tasks.py cannot be imported.
    """
    if begin is not None:
        begin = given_instant("simulated_time() expected a begin", begin)
    discover_or_raise()
    sync_schedules()
    anew = Cast(Value("-infinity"), DateTimeField())
    rows = Schedule.objects.all()
    rows.update(next_at=anew)
    known = list(rows.values_list("name", flat=True))
    if schedules is not None:
        _check_names(schedules, known)
    excluded = [] if schedules is None else [name for name in known if name not in schedules]
    with job_cursor() as cursor:
        read_at = queries.get_now(cursor)
        now = begin or read_at
        _forget_occurrences(now, set(known) - set(excluded))
        clock = Clock(now.astimezone(UTC), excluded, limit, read_at=read_at)
        # Only planned: nothing is due yet.
        while clock._fire(cursor).is_full:
            pass
    yield clock


def _forget_occurrences(begin: datetime, names: Collection[str]) -> None:
    """Let schedules be due at times at which an earlier clock had them be due.

    What a person has skipped stays so.
    """
    made = Occurrence.objects.filter(schedule__in=names, scheduled_for__gte=begin)
    made.exclude(skipped_by_hand()).delete()


def _check_names(given: Collection[str], known: Collection[str]) -> None:
    """Raise TypeError or ValueError unless these are names of schedules."""
    if isinstance(given, str) or not all(isinstance(name, str) for name in given):
        raise TypeError(f"simulated_time() expected schedules to list names, got {given!r}.")
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise ValueError(
            f"simulated_time() expected names of schedules, got {unknown}. There are: "
            f"{', '.join(sorted(known)) or 'none'}."
        )


@contextmanager
def _here() -> Iterator[None]:
    with on_django_connection(waits=False), running_jobs_here():
        yield
