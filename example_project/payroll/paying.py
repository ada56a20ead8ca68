"""The payroll as a workflow: calculate, have taxes deducted, write cheques, tell of the end."""

from __future__ import annotations

import time
from typing import TypedDict

from django.core.mail import EmailMessage
from django.db import transaction
from django.db.models import Count, F, Sum

from django_pgjobs import task, workflow
from example_project.payroll.models import Cheque, Employee, Payroll, Summary

# Somebody looks at what the time clock says.
LOOK_SECONDS = 0.05


class Pay(TypedDict):
    """What a calculation comes to: the result of a job, and the argument of the next."""

    employee: int
    amount: int


@task(queue_name="payroll", timeout=60)
def calculate(employee_id: int) -> Pay:
    """Return what somebody has earned."""
    employee = Employee.objects.get(pk=employee_id)
    time.sleep(LOOK_SECONDS)
    return {"employee": employee_id, "amount": employee.hours * employee.wage}


@task(queue_name="taxes", timeout=60, remote=True)
def deduct_taxes(pay: Pay) -> Pay:
    """Return what is left. Programs of the tax office do it over HTTP; tests call this."""
    return {**pay, "amount": pay["amount"] * 4 // 5}


@task(queue_name="payroll", timeout=60, atomic=True)
def write_cheque(pay: Pay, payroll_id: int) -> None:
    """Write a cheque: once, because it commits together with the job's completion."""
    Cheque.objects.create(payroll_id=payroll_id, employee_id=pay["employee"], amount=pay["amount"])


@task(queue_name="mail", timeout=60, atomic=True)
def mail_summary(batch_id: int, payroll_id: int) -> None:
    """Tell what was paid. *batch_id* is that of the workflow, as every callback gets it."""
    payroll = Payroll.objects.get(pk=payroll_id)
    paid = payroll.cheques.aggregate(cheques=Count("pk"), amount=Sum("amount", default=0))
    Summary.objects.create(payroll=payroll, **paid)
    EmailMessage(
        subject=f"Payroll {payroll.month}",
        body=f"{paid['cheques']} cheques, {paid['amount']} cents. Workflow {batch_id}.",
        to=["boss@example.com"],
    ).send()


def pay_everybody(month: str) -> Payroll:
    """Begin the payroll of a month; its jobs commit together with its row.

    Raise IntegrityError for a month that is there; the workflow's dedupe key would refuse it, too.
    """
    with transaction.atomic():
        payroll = Payroll.objects.create(month=month)
        with workflow("payroll", dedupe_key=month, metadata={"payroll": payroll.pk}) as pay:
            # Before the calculations that wait: who is through gets the cheque first.
            net = pay.each(deduct_taxes.using(priority=10).s())
            net.each(write_cheque.using(priority=10).s(payroll_id=payroll.pk))
            pay.on_complete(mail_summary.s(payroll_id=payroll.pk))
            pay.add_from(calculate, Employee.objects.order_by("pk"), employee_id=F("pk"))
        payroll.batch_id = pay.pk
        payroll.save(update_fields=["batch_id"])
    return payroll
