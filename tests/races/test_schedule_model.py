"""Thousands of occurrences in simulated time: four workers, kills, pauses, a clock set back.

Two zones change their clocks meanwhile. What must have happened is worked out beside it, from the
policies as docs/schedules.md tells them and from a clock that is watched from minute to minute.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.db import Error as DatabaseError
from django.db import connection

from django_pgjobs.models import Job, Occurrence, Schedule
from django_pgjobs.schedules.control import pause_schedule, resume_schedule
from django_pgjobs.schedules.firing import fire_due
from tests.helpers import wait_until
from tests.occurrences.clock import watch
from tests.races.support import DjangoThread
from tests.schedules.support import NOTE_TIME

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.race,
    pytest.mark.slow,
    pytest.mark.time_limit(900),
]

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
WORKERS = 4
# Of the enqueues, how many are the last thing that their worker does.
KILLED_SHARE = 0.02
BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"


def utc(*numbers: int) -> datetime:
    return datetime(*numbers, tzinfo=UTC)  # type: ignore[misc, arg-type]


# Between them nobody works. In each a clock is changed: both back, then both forward.
STRETCHES = (
    (utc(2025, 10, 25, 21), utc(2025, 10, 26, 5)),
    (utc(2025, 11, 2, 2), utc(2025, 11, 2, 9)),
    (utc(2026, 3, 8, 3), utc(2026, 3, 8, 10)),
    (utc(2026, 3, 28, 22), utc(2026, 3, 29, 5)),
)


@dataclass
class Kept:
    """A schedule as the test understands it, and what it has come to."""

    name: str
    columns: dict[str, Any]
    times: Callable[[datetime, datetime], list[datetime]]
    missed: str = "latest"
    grace: timedelta = DAY
    overlap: str = "allow"
    # The instant that is looked at next; None while it is paused.
    due: datetime | None = None
    # What becomes of each occurrence, and jobs that have not finished.
    outcomes: dict[datetime, str] = field(default_factory=dict)
    open: list[datetime] = field(default_factory=list)
    cancelled: set[datetime] = field(default_factory=set)

    def plan(self, now: datetime) -> None:
        """It is due at the first time later than now."""
        spans = (self.times(now, now + span) for span in (HOUR, DAY, 40 * DAY))
        self.due = next(filter(None, spans))[0]

    def turn(self, now: datetime) -> None:
        """What is due by now is enqueued or left out."""
        if self.due is None or self.due > now:
            return
        instants = self.times(self.due - timedelta(microseconds=1), now)
        on_time = [at for at in instants if at >= now - MINUTE]
        missed = [at for at in instants if at < now - MINUTE and at >= now - self.grace]
        made_up = {"all": missed, "latest": [] if on_time else missed[-1:], "skip": []}[self.missed]
        chosen = [*made_up, *on_time]
        if instants[0] not in chosen and instants[0] < now - MINUTE:
            self.outcomes.setdefault(instants[0], "missed")
        self._enqueue([at for at in chosen if at not in self.outcomes])
        self.plan(now)

    def _enqueue(self, new: list[datetime]) -> None:
        for at in new:
            is_overtaken = self.overlap == "cancel" and at != new[-1]
            if is_overtaken or (self.overlap == "skip" and self.open):
                self.outcomes[at] = "skipped"
            else:
                if self.overlap == "cancel":
                    self.cancelled |= set(self.open)
                    self.open.clear()
                self.outcomes[at] = "enqueued"
                self.open.append(at)


def by_interval(seconds: float, after: datetime, until: datetime) -> list[datetime]:
    """Return the multiples of so many seconds since 1970."""
    first = int(after.timestamp() // seconds) + 1
    last = int(until.timestamp() // seconds)
    return [datetime.fromtimestamp(n * seconds, UTC) for n in range(first, last + 1)]


def by_clock(known: list[datetime], after: datetime, until: datetime) -> list[datetime]:
    return known[bisect_right(known, after) : bisect_right(known, until)]


def every(name: str, seconds: float, **policies: Any) -> Kept:
    return Kept(name, {"every": seconds}, partial(by_interval, seconds), **policies)


def cron(name: str, text: str, zone: str, *, after: bool, twice: bool, **policies: Any) -> Kept:
    """A cron expression; *after* and *twice* are what it is to mean for the watched clock."""
    days = {(begin + n * DAY).date() for begin, _ in STRETCHES for n in range(-3, 4)}
    known: set[datetime] = set()
    for day in days:
        begin = datetime(day.year, day.month, day.day, tzinfo=UTC)
        known |= set(watch(text, zone, begin, begin + DAY, after_gaps=after, twice=twice))
    columns = {"cron": text, "timezone": zone}
    return Kept(name, columns, partial(by_clock, sorted(known)), **policies)


def make_schedules() -> list[Kept]:
    return [
        every("each minute", 60, missed="all", grace=2 * HOUR),
        every("seconds", 40, overlap="skip"),
        every("jitter", 150, missed="all", grace=HOUR),
        cron("half hours", "*/30 * * * *", NEW_YORK, after=False, twice=True, overlap="queue",
             missed="skip"),
        cron("twice", "15,45 1,2,3 * * *", NEW_YORK, after=False, twice=True, missed="all"),
        cron("sevens", "*/7 1,2,3 * * *", BERLIN, after=False, twice=True),
        cron("night", "30 2 * * *", BERLIN, after=True, twice=False, missed="all"),
        cron("other night", "30 1,2 * * *", NEW_YORK, after=True, twice=False),
        cron("newest", "*/5 * * * *", BERLIN, after=False, twice=True, overlap="cancel"),
    ]  # fmt: skip


def has_ended(pid: int) -> bool:
    """Does the server know no such session any more?"""
    with connection.cursor() as cursor:
        cursor.execute("SELECT FROM pg_stat_activity WHERE pid = %s", [pid])
        return cursor.rowcount == 0


class Model:
    """The table and the test's own book, and a clock that both go by."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.kept = make_schedules()
        self.now = STRETCHES[0][0]
        self.seen: Counter[str] = Counter()
        for each in self.kept:
            extra: dict[str, Any] = {"jitter": 30.0} if each.name == "jitter" else {}
            if each.name == "twice":
                extra = {"skipped_time": "never", "repeated_time": "twice"}
            Schedule.objects.create(
                name=each.name, task_path=NOTE_TIME, missed=each.missed, overlap=each.overlap,
                grace=each.grace.total_seconds(), **each.columns, **extra,
            )  # fmt: skip
            each.plan(self.now)
        fire_due(now=self.now)

    def work(self, seed: int) -> int:
        """Take turns until nothing is due; return how often this worker was killed."""
        chance, killed, session = random.Random(seed), 0, 0

        def be_killed_perhaps() -> None:
            nonlocal session
            raw = connection.connection
            if chance.random() < KILLED_SHARE and not raw.closed:
                session = raw.info.backend_pid
                raw.pgconn.finish()

        while True:
            try:
                if fire_due(now=self.now, on_move=be_killed_perhaps).taken == 0:
                    return killed
            except DatabaseError:
                # Its transaction is gone, and its locks once the server has noticed. Another worker
                # starts in its place.
                killed += 1
                connection.close()
                wait_until(partial(has_ended, session))

    def round(self) -> None:
        """Let all workers work at the same moment, and write into the book what they must do."""
        seeds = [self.random.random() for _ in range(WORKERS)]
        threads = [DjangoThread(partial(self.work, hash(seed))) for seed in seeds]
        self.seen["kills"] += sum(thread.result() for thread in threads)
        for each in self.kept:
            each.turn(self.now)

    def finish_some(self) -> None:
        """Let jobs end, of some schedules all."""
        for each in self.kept:
            if self.random.random() < 0.5:
                Job.objects.filter(schedule=each.name, status="ready").update(status="successful")
                each.open.clear()

    def pause_some(self) -> None:
        """Pause one, or let it go on: what was due meanwhile is not made up for."""
        each = self.random.choice(self.kept)
        if each.due is None:
            resume_schedule(each.name)
            each.plan(self.now)
            self.seen["pauses"] += 1
            fire_due(now=self.now)
        elif self.random.random() < 0.3:
            pause_schedule(each.name)
            each.due = None

    def step(self) -> None:
        """Let time pass: mostly a little, sometimes more than a minute, or backwards."""
        dice = self.random.random()
        if dice < 0.05:
            self.now -= timedelta(seconds=self.random.uniform(10, 1_800))
            self.seen["set back"] += 1
        elif dice < 0.1:
            self.now += timedelta(seconds=self.random.uniform(300, 3 * 3_600))
        else:
            self.now += timedelta(seconds=self.random.uniform(20, 200))

    def run(self) -> None:
        for begin, end in STRETCHES:
            self.now = max(self.now, begin)
            while self.now < end:
                self.round()
                self.finish_some()
                self.pause_some()
                self.step()

    def check(self) -> None:
        """Compare the table with the book."""
        for each in self.kept:
            rows = Occurrence.objects.filter(schedule=each.name).order_by("scheduled_for")
            found = {at.astimezone(UTC): str(what) for at, what in
                     rows.values_list("scheduled_for", "outcome")}  # fmt: skip
            assert found == dict(sorted(each.outcomes.items())), each.name
            self.seen.update(found.values())
            enqueued = sorted(at for at, what in each.outcomes.items() if what == "enqueued")
            jobs = Job.objects.filter(schedule=each.name)
            assert sorted(jobs.values_list("scheduled_for", flat=True)) == enqueued, each.name
            assert set(rows.exclude(job_id=None).values_list("job_id", flat=True)) == set(
                jobs.values_list("id", flat=True)
            )
            ended = jobs.filter(status="cancelled").values_list("scheduled_for", flat=True)
            assert set(ended) == each.cancelled, each.name
            assert Schedule.objects.get(name=each.name).runs == len(enqueued), each.name


@pytest.mark.parametrize("seed", [1, 2])
def test_every_occurrence_is_treated_as_its_policy_says(seed: int) -> None:
    model = Model(seed)
    model.run()
    model.check()
    # It was about something.
    assert model.seen["enqueued"] > 1_000
    rare = ("missed", "skipped", "kills", "pauses", "set back")
    assert min(model.seen[what] for what in rare) > 9
    queued = Job.objects.filter(schedule="half hours")
    assert set(queued.values_list("concurrency_key", "concurrency_limit")) == {
        ("schedule:half hours", 1)
    }
    assert not Job.objects.filter(schedule="jitter", run_after__isnull=True).exists()
