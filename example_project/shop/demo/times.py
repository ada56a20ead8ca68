"""What the example's schedules do while the demo runs: reports of nights, rates all the time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta

from django.db.models import QuerySet
from django.utils import timezone

from django_pgjobs.models import Job, Occurrence, Schedule
from django_pgjobs.schedules.control import backfill
from example_project.integrations import rates
from example_project.integrations.models import ExchangeRate
from example_project.shop import reports
from example_project.shop.demo.checks import Check
from example_project.shop.demo.feed import DemoError
from example_project.shop.demo.report import row
from example_project.shop.models import DailyReport

POLL_SECONDS = 0.05
STALL_SECONDS = 40
NIGHTS = 3
AT_NIGHT = 3  # o'clock


@dataclass(slots=True)
class Scheduled:
    """What was there before, and what the demo asked for."""

    # The newest occurrence of an earlier run: what is later belongs to this one.
    after: datetime | None
    days: list[date] = field(default_factory=list)

    @property
    def occurrences(self) -> QuerySet[Occurrence]:
        """Those of the rates that a worker of this run has seen in time."""
        mine = Occurrence.objects.filter(schedule=rates.SCHEDULE).exclude(outcome="missed")
        return mine if self.after is None else mine.filter(scheduled_for__gt=self.after)

    @property
    def rates(self) -> QuerySet[ExchangeRate]:
        """What came of them."""
        return ExchangeRate.objects.filter(as_of__in=self.occurrences.values("scheduled_for"))


class Times:
    """Made before the first worker starts; *run* is for when they have."""

    def __init__(self, check_workers: Callable[[], object]) -> None:
        self._check_workers = check_workers
        found = Occurrence.objects.filter(schedule=rates.SCHEDULE).order_by("scheduled_for").last()
        self._scheduled = Scheduled(found.scheduled_for if found else None)

    def run(self) -> Scheduled:
        """Have the reports of the last nights written, and wait for them and for a rate."""
        self._wait(lambda: Schedule.objects.filter(name=reports.SCHEDULE).exists(), "a schedule")
        now = timezone.now().astimezone(reports.ZONE)
        today = now.date() if now.hour >= AT_NIGHT else now.date() - timedelta(days=1)
        self._scheduled.days = [today - timedelta(days=back) for back in range(1, NIGHTS + 1)]
        # Two hours more: a day may have 25.
        begin = now - timedelta(days=NIGHTS, hours=2)
        backfill(reports.SCHEDULE, begin, now, by="the demo")
        self._wait(lambda: len(_reported(self._scheduled)) == NIGHTS, "reports")
        self._wait(self._scheduled.rates.exists, "an exchange rate")
        return self._scheduled

    def _wait(self, is_there: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + STALL_SECONDS
        while not is_there():
            if time.monotonic() > end:
                raise DemoError(f"expected {what} within {STALL_SECONDS} s, there is none")
            self._check_workers()
            time.sleep(POLL_SECONDS)


def _reported(scheduled: Scheduled) -> set[date]:
    return set(DailyReport.objects.filter(day__in=scheduled.days).values_list("day", flat=True))


def check_times(scheduled: Scheduled) -> list[Check]:
    """Check that no ten seconds were left out, and none counted twice."""
    known = scheduled.occurrences.order_by("scheduled_for")
    instants = list(known.values_list("scheduled_for", flat=True))
    jobs = Job.objects.filter(schedule=rates.SCHEDULE, scheduled_for__in=instants)
    enqueued = known.filter(outcome="enqueued").count()
    span = instants[-1] - instants[0] + rates.EVERY if instants else timedelta()
    return [
        Check("nights with a report, of the last", NIGHTS, len(_reported(scheduled))),
        Check("syncs of each ten seconds, none left out", span // rates.EVERY, len(instants)),
        Check("jobs of these, one for each", enqueued, jobs.count()),
        Check(
            "rates, one of each job",
            jobs.filter(status="successful").count(),
            scheduled.rates.count(),
        ),
        Check("rates at all", 1, scheduled.rates.count(), "at least "),
    ]


def summary(scheduled: Scheduled) -> Iterator[str]:
    """Yield the lines of the table."""
    yield row("exchange rates", scheduled.rates.count(), "one every ten seconds")
    yield row("nightly reports", NIGHTS, "made up for")
