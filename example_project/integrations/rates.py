"""What a euro costs elsewhere, asked for every ten seconds."""

from __future__ import annotations

from datetime import timedelta

from django_pgjobs import current_job, task
from example_project.integrations import outside_client
from example_project.integrations.models import ExchangeRate

SCHEDULE = "exchange rates"
EVERY = timedelta(seconds=10)


@task(
    queue_name="rates",
    timeout=30,
    atomic=True,
    # The next one comes soon, and nobody wants to know a rate of the past.
    max_attempts=1,
    schedule={"name": SCHEDULE, "every": EVERY, "missed": "skip", "overlap": "skip"},
)
def fetch_rates() -> float:
    """Ask for the rate, and keep it under the time it was due at."""
    dollars = float(outside_client.call("GET", "/rates")["USD"])
    ExchangeRate.objects.create(as_of=current_job().scheduled_for, dollars=dollars)
    return dollars
