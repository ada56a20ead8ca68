"""What each day came to: a report a night, for the day before in the shop's time zone."""

from __future__ import annotations

from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from django.db.models import Count, Sum

from django_pgjobs import current_job, task
from example_project.shop.models import DailyReport, Order

ZONE = ZoneInfo("Europe/Berlin")
SCHEDULE = "nightly report"


@task(
    queue_name="reports",
    timeout=300,
    atomic=True,
    schedule={"name": SCHEDULE, "cron": "0 3 * * *", "timezone": ZONE.key, "missed": "all"},
)
def report_day() -> None:
    """Write the report of the day before the night it is for.

    However late it runs: the night is what the schedule says, not the time it is. So a night can
    be made up for, and a report that is written once more is the same one.
    """
    night = current_job().scheduled_for
    if night is None:
        raise ValueError("expected a job of a schedule, got one that was enqueued by itself.")
    day = night.astimezone(ZONE).date() - timedelta(days=1)
    begin = datetime.combine(day, time(), ZONE)
    end = datetime.combine(day + timedelta(days=1), time(), ZONE)
    placed = Order.objects.filter(placed_at__gte=begin, placed_at__lt=end)
    came_to = placed.aggregate(orders=Count("pk"), amount=Sum("total_amount", default=0))
    DailyReport.objects.update_or_create(day=day, defaults=came_to)
