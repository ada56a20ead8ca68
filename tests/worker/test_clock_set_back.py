"""The server's clock is set back: leases that were given before seem to last for ever."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection
from django.db.models import F
from django.db.models.functions import Now

from django_pgjobs.models import Worker
from django_pgjobs.queries import jobs, workers
from django_pgjobs.queries.connection import OwnConnection
from tests import tasks
from tests.factories import get_job, get_worker, make_running_job, make_worker
from tests.helpers import wait_until
from tests.worker.support import ThreadedWorker

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)
Start = Callable[..., ThreadedWorker]
REFUSE_TO_CUT = """
CREATE FUNCTION refuse_to_cut() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    RAISE EXCEPTION 'refused';
END
$body$;
CREATE TRIGGER refuse_to_cut BEFORE UPDATE ON pgjobs_worker FOR EACH ROW
    WHEN (OLD.name = 'odd') EXECUTE FUNCTION refuse_to_cut();
"""


def register(own: OwnConnection, lease: float = 60.0) -> int:
    """Enter a worker as runjobs does."""
    row = {
        "name": "w", "host": "h", "version": "0", "pid": 1, "slots": 1, "queues": None,
        "excluded_queues": [], "backends": ["default"], "task_paths": [], "schedule_names": [],
        "token_id": None, "lease": lease, "quiet": False,
    }  # fmt: skip
    with own.cursor() as cursor:
        return workers.register_worker(cursor, row)


def renew(own: OwnConnection, worker_id: int) -> workers.Renewal:
    """Renew a lease as another worker's thread does."""
    with own.cursor() as cursor:
        renewal = workers.renew_lease(cursor, worker_id, lease=60.0)
        workers.cut_leases(cursor, worker_id)
    assert renewal is not None
    return renewal


def seconds_left(worker_id: int) -> float:
    """Return how long a lease still lasts by the server's clock."""
    left = Worker.objects.annotate(left=F("lease_expires_at") - Now()).get(pk=worker_id).left
    return float(left.total_seconds())


@pytest.mark.parametrize("fields", [("lease_expires_at", "heartbeat_at"), ("lease_expires_at",)])
def test_the_lease_of_a_dead_worker_ends_one_lease_later_at_most(
    own: OwnConnection, fields: tuple[str, ...]
) -> None:
    dead, living = register(own, lease=30.0), register(own)
    Worker.objects.filter(pk=dead).update(**{name: F(name) + HOUR for name in fields})
    renew(own, living)
    assert 25 < seconds_left(dead) <= 30
    assert 0 < (renew(own, living).next_expiry or 0) <= 30


@pytest.mark.slow
def test_its_job_is_rescued_when_that_lease_is_over(own: OwnConnection) -> None:
    dead, living = register(own, lease=0.001), register(own)
    Worker.objects.filter(pk=dead).update(lease_expires_at=F("lease_expires_at") + HOUR)
    job = make_running_job(dead)
    with own.cursor() as cursor:
        assert jobs.rescue_jobs(cursor, max_jobs=9, default_max_losses=3) == []
    renew(own, living)
    wait_until(lambda: seconds_left(dead) < 0)
    with own.cursor() as cursor:
        [rescued] = jobs.rescue_jobs(cursor, max_jobs=9, default_max_losses=3)
    assert rescued.id == job.id
    assert renew(own, living).is_leader


def test_a_living_worker_loses_nothing(own: OwnConnection) -> None:
    """Its next renewal, a third of a lease after the last one, writes right values."""
    living, other = register(own), register(own)
    Worker.objects.filter(pk=living).update(lease_expires_at=F("lease_expires_at") + HOUR)
    job = make_running_job(living)
    renew(own, other)
    assert seconds_left(living) > 50
    renew(own, living)
    assert seconds_left(living) > 55
    assert get_job(job.id).status == "running"


def test_the_leases_of_others_are_left_as_they_are(own: OwnConnection) -> None:
    long, plain, old = register(own, lease=600.0), register(own), make_worker(lease_seconds=90)
    me = register(own)
    before = {pk: Worker.objects.get(pk=pk).lease_expires_at for pk in (long, plain, old)}
    renew(own, me)
    assert {pk: Worker.objects.get(pk=pk).lease_expires_at for pk in before} == before


@pytest.mark.parametrize("lease", [0.0, -1.0, 1e300, -1e300, float("inf"), float("nan")])
def test_an_odd_length_of_a_lease_stops_no_renewal(own: OwnConnection, lease: float) -> None:
    odd, me = register(own), register(own)
    Worker.objects.filter(pk=odd).update(lease_seconds=lease)
    renew(own, me)


@pytest.mark.parametrize("lease", [None, -1.0, float("nan"), float("inf")])
def test_a_row_that_nobody_of_ours_has_written_does_not_lead_for_ever(
    own: OwnConnection, lease: float | None
) -> None:
    odd, living = register(own), register(own)
    Worker.objects.filter(pk=odd).update(
        lease_seconds=lease, lease_expires_at="9999-12-30T00:00:00Z"
    )
    renew(own, living)
    assert seconds_left(odd) <= 86_400


@pytest.mark.slow
def test_a_row_that_cannot_be_cut_costs_nobody_a_lease(start_thread: Start) -> None:
    odd = make_worker("odd", lease_seconds=86_400.0)
    with connection.cursor() as cursor:
        cursor.execute(REFUSE_TO_CUT)
    try:
        worker = start_thread(lease=3.0)
        job = tasks.add.enqueue(1, 2)
        wait_until(lambda: get_job(job.id).status == "successful")
        first = get_worker(worker.id).heartbeat_at
        wait_until(lambda: get_worker(worker.id).heartbeat_at > first)
        assert seconds_left(odd) > 80_000
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION refuse_to_cut() CASCADE")
