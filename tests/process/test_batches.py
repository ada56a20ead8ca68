"""A payroll whose workers are killed in the middle: each cheque once, and one mail."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from django_pgjobs import workflow
from django_pgjobs.models import Batch, Job
from tests import tasks
from tests.helpers import WorkerProcess, wait_until
from tests.process.support import Journal

pytestmark = [pytest.mark.process, pytest.mark.django_db(transaction=True)]

Start = Callable[..., WorkerProcess]
SHORT_LEASE = ("--lease-seconds", "1", "--concurrency", "4")
EMPLOYEES = 400


def finished() -> int:
    """Return the number of successful jobs."""
    return Job.objects.filter(status="successful").count()


def test_a_payroll_survives_its_workers(start: Start, journal: Journal) -> None:
    """S2.8: W2, W3, W4."""
    workers = [start(*SHORT_LEASE), start(*SHORT_LEASE)]
    with workflow("payroll") as pay:
        cheques = pay.each(tasks.add.s(1000))
        slips = cheques.each(tasks.echo.s())
        everything = pay.join(cheques, slips).gather(tasks.add.s())
        pay.on_complete(tasks.echo.s("over"))
        pay.add_many(tasks.add, [(number, 0) for number in range(EMPLOYEES)])
    for part in (0.2, 0.5, 1.0, 1.8):
        wait_until(lambda part=part: finished() >= part * EMPLOYEES)  # type: ignore[misc]
        workers.pop(0).kill()
        workers.append(start(*SHORT_LEASE))
    wait_until(lambda: not Batch.objects.filter(tree_completed_at=None).exists(), timeout=60)
    wait_until(lambda: finished() == 3 * EMPLOYEES + 2, timeout=60)
    for batch in (pay, cheques, slips):
        batch.refresh_from_db()
        assert (batch.jobs, batch.successful, batch.completions) == (EMPLOYEES, EMPLOYEES, 1)
    amounts = [job.result for job in Job.objects.filter(batch_id=cheques.pk).order_by("pk")]
    assert sorted(amounts) == [1000 + number for number in range(EMPLOYEES)]
    sources = Job.objects.filter(batch_id=slips.pk).values_list("source_id", flat=True)
    assert len(set(sources)) == EMPLOYEES
    [both] = everything.results()
    assert both[:EMPLOYEES] == amounts
    assert sorted(both[EMPLOYEES:]) == sorted([[amount], {}] for amount in amounts)
    assert Job.objects.filter(batch_id=None).count() == 1
