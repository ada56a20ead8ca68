"""Whether everybody was paid once, and the end told once."""

from __future__ import annotations

from django.db.models import F, Min, Sum

from django_pgjobs.models import Batch, Job
from example_project.payroll.demo.payday import Paid
from example_project.payroll.models import Employee
from example_project.payroll.paying import calculate, mail_summary
from example_project.shop.demo.checks import Check


def check_payroll(paid: Paid, *, killed: bool) -> list[Check]:
    """Return all checks of a payroll."""
    cheques, summaries = paid.payroll.cheques, paid.payroll.summaries
    right = cheques.filter(amount=F("employee__hours") * F("employee__wage") * 4 / 5)
    cents = Employee.objects.aggregate(net=Sum(F("hours") * F("wage") * 4 / 5, default=0))["net"]
    told = summaries.filter(cheques=paid.employees, amount=cents)
    whole = Batch.objects.filter(
        pk=paid.payroll.batch_id, tree_completed_at__isnull=False, tree_failed=False
    )
    mails = Job.objects.filter(task_path=mail_summary.module_path)
    callbacks = sum(job.args == [paid.payroll.batch_id] for job in mails.order_by("-pk")[:20])
    found = [
        Check(
            "employees with a cheque", paid.employees, right.values("employee").distinct().count()
        ),
        Check("cheques in all", paid.employees, cheques.count()),
        Check("jobs of the tax office that are done", paid.employees, paid.taxed.count()),
        Check("cheques before the last calculation ended", 1, early_cheques(paid), "at least "),
        Check("workflows that are complete", 1, whole.count()),
        Check("summaries that tell of everybody", 1, told.count()),
        Check("summaries in all", 1, summaries.count()),
        Check("callbacks of the workflow", 1, callbacks),
    ]
    return [*found, *check_rescue(paid)] if killed else found


def early_cheques(paid: Paid) -> int:
    """Return how many cheques were written while others were still calculated."""
    calculations = paid.jobs.filter(task_path=calculate.module_path)
    last = calculations.order_by(F("finished_at").desc(nulls_last=True)).first()
    if last is None or last.finished_at is None:
        return 0
    return int(paid.payroll.cheques.filter(written_at__lt=last.finished_at).count())


def check_rescue(paid: Paid) -> list[Check]:
    """Check that the payroll went on after the kill, with what the worker was running."""
    # A job whose commit was on its way when the worker died is none: it had finished.
    orphans = paid.jobs.filter(id__in=paid.orphans)
    rescued = orphans.filter(lost_count__gt=0, status="successful").count()
    lost = orphans.exclude(lost_count=0, status="successful").count()
    return [Check("jobs of the killed payroll worker rescued", max(1, lost), rescued)]


def first_cheque_seconds(paid: Paid) -> float:
    """Return the seconds until the first cheque was written."""
    begin = Batch.objects.get(pk=paid.payroll.batch_id).created_at
    first = paid.payroll.cheques.aggregate(at=Min("written_at"))["at"]
    return float((first - begin).total_seconds()) if first else 0.0
