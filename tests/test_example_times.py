"""The example's schedules, and what the demo says of them: run on the test's connection."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from django_pgjobs.models import Job, Occurrence
from django_pgjobs.schedules.control import backfill, run_now
from django_pgjobs.schedules.syncing import sync_schedules
from django_pgjobs.testing import run_jobs
from example_project.integrations import rates
from example_project.integrations.models import ExchangeRate
from example_project.integrations.outside import OutsideApi
from example_project.shop import reports
from example_project.shop.demo import times
from example_project.shop.demo.checks import Check
from example_project.shop.demo.feed import DemoError
from example_project.shop.demo.times import Scheduled, Times, check_times
from example_project.shop.models import Customer, DailyReport, Order

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def declared(settings: Any) -> Iterator[None]:
    """The example's schedules are in the table, and the outside API answers."""
    from django_pgjobs import schedule

    schedule(reports.report_day, name=reports.SCHEDULE, cron="0 3 * * *", timezone="Europe/Berlin")
    schedule(rates.fetch_rates, name=rates.SCHEDULE, every=rates.EVERY, missed="skip")
    sync_schedules()
    with OutsideApi(limit=25) as api:
        settings.OUTSIDE_API_URL = api.url
        yield


def place(reference: str, at: datetime, amount: int) -> None:
    customer, _ = Customer.objects.get_or_create(user=User.objects.get_or_create(username="ada")[0])
    order = Order.objects.create(reference=reference, customer=customer, total_amount=amount)
    Order.objects.filter(pk=order.pk).update(placed_at=at)


def failed(found: list[Check]) -> list[str]:
    return [check.text for check in found if not check.passed]


def test_a_report_tells_of_the_day_before_its_night() -> None:
    """Of the shop's own day, which has 25 hours when the clock is put back."""
    place("before", datetime(2025, 10, 25, 21, 59, tzinfo=UTC), 1)
    place("first", datetime(2025, 10, 25, 22, 0, tzinfo=UTC), 10)
    place("last", datetime(2025, 10, 26, 22, 59, tzinfo=UTC), 100)
    place("after", datetime(2025, 10, 26, 23, 0, tzinfo=UTC), 1_000)
    night = datetime(2025, 10, 27, 2, 0, tzinfo=UTC)
    assert backfill(reports.SCHEDULE, night, night).enqueued == 1
    assert run_jobs() == 1
    [report] = DailyReport.objects.all()
    assert (report.day, report.orders, report.amount) == (date(2025, 10, 26), 2, 110)


def test_a_report_that_is_written_again_is_the_same_one() -> None:
    run_now(reports.SCHEDULE)
    run_now(reports.SCHEDULE)
    assert run_jobs() == 2
    assert DailyReport.objects.count() == 1


def test_a_job_without_a_schedule_makes_no_report() -> None:
    reports.report_day.enqueue()
    run_jobs()
    assert Job.objects.get().errors[-1]["message"].startswith("expected a job of a schedule")
    assert not DailyReport.objects.exists()


def test_a_rate_is_kept_under_the_time_it_was_due_at() -> None:
    job_id = run_now(rates.SCHEDULE).job_id
    assert run_jobs() == 1
    assert ExchangeRate.objects.get().as_of == Job.objects.get(pk=job_id).scheduled_for


@pytest.fixture
def scheduled() -> Scheduled:
    """Three nights made up for, and ten seconds in which a rate was fetched."""

    def work() -> None:
        """Stand in for the workers: what is enqueued is run, and one rate is due."""
        if not Occurrence.objects.filter(schedule=rates.SCHEDULE).exists():
            last_ten = datetime.now(UTC) - rates.EVERY
            backfill(rates.SCHEDULE, last_ten, datetime.now(UTC))
        run_jobs()

    return Times(work).run()


def test_the_checks_pass_when_all_went_well(scheduled: Scheduled) -> None:
    assert failed(check_times(scheduled)) == []
    assert len(list(times.summary(scheduled))) == 2
    assert DailyReport.objects.count() >= 3


def test_a_rate_that_was_fetched_twice_is_noticed(scheduled: Scheduled) -> None:
    ExchangeRate.objects.create(as_of=ExchangeRate.objects.latest("as_of").as_of, dollars=1.0)
    assert failed(check_times(scheduled)) == ["rates, one of each job"]


def test_ten_seconds_that_were_left_out_are_noticed(scheduled: Scheduled) -> None:
    newest = Occurrence.objects.filter(schedule=rates.SCHEDULE).latest("scheduled_for")
    Occurrence.objects.create(
        schedule=rates.SCHEDULE,
        scheduled_for=newest.scheduled_for + 2 * rates.EVERY,
        outcome="skipped",
    )
    assert failed(check_times(scheduled)) == ["syncs of each ten seconds, none left out"]


def test_an_occurrence_that_was_enqueued_twice_is_noticed(scheduled: Scheduled) -> None:
    job = Job.objects.filter(schedule=rates.SCHEDULE).latest("pk")
    rates.fetch_rates.enqueue()
    Job.objects.filter(schedule=None).update(schedule=job.schedule, scheduled_for=job.scheduled_for)
    assert failed(check_times(scheduled)) == ["jobs of these, one for each"]


def test_a_night_without_a_report_is_noticed(scheduled: Scheduled) -> None:
    DailyReport.objects.filter(day=scheduled.days[1]).delete()
    assert failed(check_times(scheduled)) == ["nights with a report, of the last"]


def test_a_demo_whose_schedules_stand_still_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(times, "STALL_SECONDS", 0.01)
    with pytest.raises(DemoError, match=r"expected reports within 0\.01 s, there is none"):
        Times(lambda: None).run()


def test_an_earlier_run_is_none_of_this_one() -> None:
    backfill(rates.SCHEDULE, datetime.now(UTC) - 2 * rates.EVERY, datetime.now(UTC))
    after = Times(lambda: None)._scheduled
    assert after.after is not None
    assert not after.occurrences.exists()
    assert after.after > datetime.now(UTC) - timedelta(minutes=1)
