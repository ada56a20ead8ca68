"""A payroll at work: one of its workers is killed while cheques are written."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from django.db.models import QuerySet

from django_pgjobs.models import Batch, Job
from example_project.payroll.models import Employee, Payroll
from example_project.payroll.paying import calculate, deduct_taxes, pay_everybody
from example_project.shop.demo.feed import DemoError
from example_project.shop.demo.progress import Progress
from example_project.shop.demo.workers import Workers

POLL_SECONDS = 0.05
KILL_SHARE = 0.1  # of the cheques written before a worker is killed
SETTLE_SECONDS = 0.3  # the server may still be busy with the last words of a killed worker
STALL_SECONDS = 20
NAMES = ("Ada", "Grace", "Edsger", "Barbara", "Donald", "Frances", "Niklaus", "Radia")


@dataclass(slots=True)
class Paid:
    """What happened."""

    payroll: Payroll
    employees: int
    killed_pid: int | None = None
    orphans: list[int] = field(default_factory=list)  # jobs that the killed worker was running
    left: int = 0  # how many had no cheque when it was killed
    seconds: float = 0.0

    @property
    def jobs(self) -> QuerySet[Job]:
        """The jobs of the workflow."""
        tree = Batch.objects.filter(root_id=self.payroll.batch_id).values_list("pk", flat=True)
        return Job.objects.filter(batch_id__in=list(tree))

    @property
    def taxed(self) -> QuerySet[Job]:
        """Those that the tax office has done."""
        return self.jobs.filter(task_path=deduct_taxes.module_path, status="successful")


def hire(count: int) -> int:
    """Let at least so many people work here; return how many do."""
    there = Employee.objects.count()
    Employee.objects.bulk_create(
        Employee(name=f"{NAMES[number % len(NAMES)]} {number}", wage=2_000 + number)
        for number in range(there, count)
    )
    return max(there, count)


class Payday:
    """One payroll, with workers that were started before."""

    def __init__(self, month: str, workers: Workers, *, employees: int) -> None:
        self._workers = workers
        employees = hire(employees)
        self._paid = Paid(pay_everybody(month), employees)

    def run(self, progress: Progress, *, kill: bool) -> Paid:
        """Wait until the summary is mailed; raise DemoError if that does not come."""
        paid = self._paid
        started = changed = time.monotonic()
        before = (-1, -1)
        while (now := self._count())[1] == 0:
            progress.show(now[0], "cheques")
            if now != before:
                before, changed = now, time.monotonic()
            elif time.monotonic() - changed > STALL_SECONDS:
                raise DemoError(f"no cheque was written for {STALL_SECONDS} s; {now[0]} are")
            self._workers.check()
            if kill and not paid.killed_pid and now[0] >= KILL_SHARE * paid.employees:
                self._kill_one(progress, now[0])
            time.sleep(POLL_SECONDS)
        paid.seconds = time.monotonic() - started
        progress.finish(now[0], "cheques")
        return paid

    def _count(self) -> tuple[int, int]:
        payroll = self._paid.payroll
        return payroll.cheques.count(), payroll.summaries.count()

    def _kill_one(self, progress: Progress, cheques: int) -> None:
        """Kill a worker that calculates; none does at the moment: try again next time."""
        paid = self._paid
        busy = paid.jobs.filter(status="running", task_path=calculate.module_path)
        running = Counter(busy.values_list("worker_id", flat=True))
        rows = self._workers.rows()
        victims = [(running[row], row) for row in rows if running[row]]
        if not victims:
            return
        row = max(victims)[1]
        self._workers.kill(rows[row])
        paid.killed_pid, paid.left = rows[row], paid.employees - cheques
        time.sleep(SETTLE_SECONDS)
        held = paid.jobs.filter(status="running", worker_id=row)
        paid.orphans = list(held.values_list("id", flat=True))
        replacement = self._workers.start()
        progress.say(
            f"  ✕ kill -9 {rows[row]} in the middle of the payroll: it held {len(paid.orphans)} "
            f"jobs. Worker {replacement} replaces it."
        )
