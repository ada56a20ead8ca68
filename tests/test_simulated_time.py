"""`simulated_time()`: schedules and retries at their times, in the transaction of a TestCase."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any

import pytest
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connection
from django.test import TestCase

from django_pgjobs import current_job, pause, schedule, task
from django_pgjobs.models import Job, Occurrence, Pause, RateLimit, Schedule
from django_pgjobs.schedules.control import skip_next
from django_pgjobs.schedules.firing import fire_due
from django_pgjobs.testing import Clock, simulated_time
from tests.models import Effect
from tests.schedules import tasks as scheduled_tasks
from tests.schedules.support import declaring_anew

pytestmark = pytest.mark.django_db

# In Berlin.
NOON = datetime(2026, 3, 27, 11, tzinfo=UTC)
SECOND, MINUTE, HOUR, DAY = (timedelta(seconds=n) for n in (1, 60, 3_600, 86_400))

# When the tasks of these tests ran, by the clock of the test.
RAN: list[tuple[str, timedelta]] = []
CLOCKS: list[Clock] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> Iterator[None]:
    with declaring_anew():
        yield
    RAN.clear()
    CLOCKS.clear()


def told(name: str) -> None:
    RAN.append((name, CLOCKS[-1].now - NOON))


@task
def tick() -> None:
    """Tell the time."""
    told(f"tick {current_job().scheduled_for:%H}" if current_job().scheduled_for else "tick")


@task(max_attempts=3, backoff=[600, 7_200])
def fail_twice() -> None:
    """Succeed at the third attempt."""
    told(f"attempt {current_job().attempt}")
    if current_job().attempt < 3:
        raise ValueError("not yet")


@task(rate_limit="slow")
def limited() -> None:
    """Wait for a token."""
    told("limited")


@task
def remind_later() -> None:
    """Enqueue something for later."""
    tick.using(run_after=30 * MINUTE).enqueue()


def doze() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(0.5)")


@task
def doze_and_remind() -> None:
    """Enqueue something for later, and take a while."""
    told("dozed")
    doze()
    remind_later.func()
    doze()


def whole(ran: list[tuple[str, timedelta]]) -> list[tuple[str, timedelta]]:
    """Return what ran, with times in whole minutes: a retry is late by what a write takes."""
    return [(name, at // MINUTE * MINUTE) for name, at in ran]


def at(begin: datetime = NOON, **options: Any) -> Any:
    return simulated_time(begin, **options)


def test_a_schedule_is_due_at_its_times_in_its_zone() -> None:
    """The night of the 29th has no 2:30 in Berlin: it is due when the gap ends."""
    schedule(tick, name="night", cron="30 2 * * *", timezone="Europe/Berlin")
    with at() as clock:
        CLOCKS.append(clock)
        assert clock.advance(3 * DAY) == 3
        assert clock.now == NOON + 3 * DAY
    times = [(28, 1, 30), (29, 1, 0), (30, 0, 30)]
    instants = [datetime(2026, 3, *numbers, tzinfo=UTC) for numbers in times]
    jobs = Job.objects.filter(schedule="night").order_by("id")
    assert [job.scheduled_for for job in jobs] == instants
    assert [when for _, when in whole(RAN)] == [instant - NOON for instant in instants]
    assert Schedule.objects.get().next_at == datetime(2026, 3, 31, 0, 30, tzinfo=UTC)


def test_retries_come_after_their_delays() -> None:
    with at() as clock:
        CLOCKS.append(clock)
        job_id = fail_twice.enqueue().id
        assert clock.advance(timedelta()) == 1
        assert clock.advance(9 * MINUTE) == 0
        assert clock.advance(3 * HOUR) == 2
    expected = [timedelta(), 10 * MINUTE, 10 * MINUTE + 2 * HOUR]
    assert whole(RAN) == [(f"attempt {n}", when) for n, when in enumerate(expected, start=1)]
    assert Job.objects.get(pk=job_id).status == "successful"


def test_schedules_and_jobs_come_in_the_order_of_their_times() -> None:
    schedule(tick, name="hours", every=HOUR)
    with at() as clock:
        CLOCKS.append(clock)
        remind_later.using(run_after=HOUR).enqueue()
        clock.advance_to(NOON + 2 * HOUR)
    hour = timedelta(hours=1)
    assert whole(RAN) == [("tick 12", hour), ("tick", 1.5 * hour), ("tick 13", 2 * hour)]


@pytest.mark.slow
def test_what_code_takes_is_no_time() -> None:
    """Half a second passes before, while and after a job is enqueued for later."""
    with at() as clock:
        CLOCKS.append(clock)
        doze()
        doze_and_remind.using(run_after=HOUR).enqueue()
        doze()
        clock.advance(HOUR + 10 * MINUTE)
        doze()
        fail_twice.enqueue()
        began_at = monotonic()
        clock.advance(DAY)
        took = timedelta(seconds=monotonic() - began_at)
    when = dict(RAN)
    first = HOUR + 10 * MINUTE
    assert (when["dozed"], when["attempt 1"], when["tick"]) == (HOUR, first, 1.5 * HOUR)
    # Late by what it takes to write an outcome, and not by what the test took before.
    for name, planned in (("attempt 2", 10 * MINUTE), ("attempt 3", 130 * MINUTE)):
        assert timedelta() <= when[name] - first - planned <= took


def test_jitter_is_of_the_clocks_time() -> None:
    schedule(tick, name="spread", every=HOUR, jitter=timedelta(minutes=30))
    for begin in (NOON, datetime(2035, 1, 1, 12, tzinfo=UTC)):
        RAN.clear()
        with at(begin) as clock:
            CLOCKS.append(clock)
            clock.advance(90 * MINUTE)
        [(_, when)] = RAN
        assert HOUR < when - (begin - NOON) < 90 * MINUTE
    # Whichever year it is by the clock, the jobs are the schedule's own.
    assert Job.objects.filter(schedule="spread").count() == 2


def test_only_the_schedules_that_are_named_are_planned() -> None:
    schedule(tick, name="seconds", every=SECOND)
    schedule(tick, name="days", every=DAY)
    with at(schedules=["days"]) as clock:
        CLOCKS.append(clock)
        assert clock.advance(2 * DAY) == 2
    assert set(Job.objects.values_list("schedule", flat=True)) == {"days"}


@pytest.mark.slow
def test_too_many_attempts_end_it() -> None:
    schedule(tick, name="minutes", every=MINUTE)
    with at(limit=10) as clock:
        CLOCKS.append(clock)
        assert clock.advance(5 * MINUTE) == 5
        with pytest.raises(RuntimeError) as caught:
            clock.advance(HOUR)
    said = str(caught.value)
    assert "simulated_time(limit=10)" in said and "schedule 'minutes': 1" in said


def test_too_many_retries_end_it_too() -> None:
    with at(limit=2) as clock:
        CLOCKS.append(clock)
        fail_twice.enqueue()
        with pytest.raises(RuntimeError, match=r"simulated_time\(limit=2\)"):
            clock.advance(3 * HOUR)


@pytest.mark.parametrize(
    ("given", "kind", "said"),
    [
        (["nope"], ValueError, r"got \['nope'\]. There are: minutes."),
        (["minutes", "nope"], ValueError, r"got \['nope'\]"),
        ("minutes", TypeError, "to list names, got 'minutes'"),
        ([tick], TypeError, "to list names"),
    ],
)
def test_schedules_that_are_none_are_refused(given: Any, kind: Any, said: str) -> None:
    schedule(tick, name="minutes", every=MINUTE)
    with pytest.raises(kind, match=said), at(schedules=given):
        pass


@pytest.mark.parametrize(
    ("verb", "given", "kind", "said"),
    [
        ("advance", 5, TypeError, r"advance\(\) expected a timedelta, got 5"),
        ("advance_to", "x", TypeError, "a datetime with a time zone, got 'x'"),
        ("advance_to", HOUR, TypeError, "a datetime with a time zone"),
        ("advance_to", NOON.replace(tzinfo=None), ValueError, "with a time zone"),
    ],
)
def test_times_that_are_none_are_refused(verb: str, given: Any, kind: Any, said: str) -> None:
    with at() as clock, pytest.raises(kind, match=said):
        getattr(clock, verb)(given)


def test_rows_of_before_are_planned_anew() -> None:
    Schedule.objects.create(name="row", task_path=tick.module_path, every=3_600.0)
    fire_due()
    with at(datetime(2020, 1, 1, tzinfo=UTC)) as clock:
        CLOCKS.append(clock)
        assert clock.advance(HOUR) == 1
    assert Occurrence.objects.get().scheduled_for == datetime(2020, 1, 1, 1, tzinfo=UTC)


def test_the_same_time_twice() -> None:
    schedule(tick, name="hours", every=HOUR, overlap="skip")
    for _ in range(2):
        with at() as clock:
            CLOCKS.append(clock)
            assert clock.advance(3 * HOUR) == 3


def test_what_a_person_has_skipped_stays_so() -> None:
    schedule(tick, name="hours", every=HOUR)
    with at():
        pass
    instant = skip_next("hours")
    with at(instant - MINUTE) as clock:
        CLOCKS.append(clock)
        assert clock.advance(2 * MINUTE) == 0


def test_tasks_that_are_not_here_hold_up_nothing() -> None:
    Schedule.objects.bulk_create(
        Schedule(name=f"gone {number}", task_path="no.such.task", every=60.0)
        for number in range(120)
    )
    schedule(tick, name="minutes", every=MINUTE)
    with at() as clock:
        CLOCKS.append(clock)
        assert clock.advance(2 * MINUTE) == 2


def test_policies_are_kept() -> None:
    schedule(scheduled_tasks.without_key, name="keyless", every=HOUR)
    schedule(tick, name="three", every=MINUTE, max_runs=3)
    with at() as clock:
        CLOCKS.append(clock)
        assert clock.advance(HOUR) == 3
    assert Occurrence.objects.get(schedule="keyless").outcome == "failed"


def test_pauses_and_tokens_go_by_the_clock() -> None:
    RateLimit.objects.create(name="slow", count=1, period=3_600.0)
    schedule(tick, name="quarters", every=15 * MINUTE)
    pause(task=tick, until=40 * MINUTE)
    with at() as clock:
        CLOCKS.append(clock)
        for _ in range(2):
            limited.enqueue()
        clock.advance(30 * MINUTE)
        assert whole(RAN) == [("limited", timedelta())]
        clock.advance(HOUR)
    assert whole(RAN)[1:4] == [("tick 11", 45 * MINUTE)] * 2 + [("tick 11", 45 * MINUTE)]
    assert ("limited", HOUR) in whole(RAN)
    assert Pause.objects.count() == 1


def test_time_never_goes_back() -> None:
    with at() as clock, pytest.raises(ValueError, match="no way back"):
        clock.advance(-SECOND)


def test_a_begin_without_a_zone_is_refused() -> None:
    with pytest.raises(TypeError, match="got '2026'"), simulated_time("2026"):  # type: ignore[arg-type]
        pass
    naive = NOON.replace(tzinfo=None)
    with pytest.raises(ValueError, match="with a time zone"), simulated_time(naive):
        pass


def test_without_a_begin_it_is_now() -> None:
    with simulated_time() as clock:
        assert abs(clock.now - datetime.now(UTC)) < MINUTE


def test_it_is_refused_in_async_code() -> None:
    with at() as clock:

        async def advance() -> None:
            clock.advance(SECOND)

        with pytest.raises(SynchronousOnlyOperation):
            asyncio.run(advance())


def test_timeouts_of_the_session_stay_as_they_are() -> None:
    schedule(tick, name="minutes", every=MINUTE)
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL statement_timeout = '77s'")
        with at() as clock:
            CLOCKS.append(clock)
            clock.advance(MINUTE)
        cursor.execute("SHOW statement_timeout")
        assert cursor.fetchone() == ("77s",)
        for name in ("lock_timeout", "idle_in_transaction_session_timeout"):
            cursor.execute(f"SHOW {name}")
            assert cursor.fetchone() == ("0",)


class InATestCase(TestCase):
    """What a project writes."""

    def test_nothing_of_it_is_left_of_the_test_before(self) -> None:
        self.run_for_an_hour()

    def test_nothing_of_it_is_left_of_the_other_test(self) -> None:
        self.run_for_an_hour()

    def run_for_an_hour(self) -> None:
        assert not Schedule.objects.exists()
        schedule(scheduled_tasks.note_time, name="noted", every=20 * MINUTE)
        with at() as clock:
            assert clock.advance(HOUR) == 3
        keys = [f"noted 2026-03-27T{when}:00+00:00" for when in ("11:20", "11:40", "12:00")]
        assert list(Effect.objects.order_by("pk").values_list("key", flat=True)) == keys
