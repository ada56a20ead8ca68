"""Who is paid, and what each payroll came to. Amounts are cents."""

from __future__ import annotations

from django.db import models


class Employee(models.Model):
    """Somebody who is paid by the hour."""

    name = models.CharField(max_length=100)
    hours = models.PositiveSmallIntegerField(default=160)
    wage = models.PositiveIntegerField(help_text="of an hour, in cents")

    def __str__(self) -> str:
        return self.name


class Payroll(models.Model):
    """One payment of everybody."""

    month = models.CharField(max_length=40, unique=True)
    # A plain number: the workflow is deleted some day, the payroll stays.
    batch_id = models.BigIntegerField(null=True, editable=False)

    def __str__(self) -> str:
        return self.month


class Cheque(models.Model):
    """What somebody got.

    Nothing here is unique on purpose: if a job's effect happened twice, there would be two
    rows, and the demo would show it.
    """

    payroll = models.ForeignKey(Payroll, models.CASCADE, related_name="cheques")
    employee = models.ForeignKey(Employee, models.CASCADE, related_name="cheques")
    amount = models.PositiveIntegerField()
    written_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.amount} to {self.employee}"


class Summary(models.Model):
    """A record of the mail that tells that a payroll is complete."""

    payroll = models.ForeignKey(Payroll, models.CASCADE, related_name="summaries")
    cheques = models.PositiveIntegerField()
    amount = models.PositiveBigIntegerField()
    sent_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name_plural = "summaries"

    def __str__(self) -> str:
        return f"{self.cheques} cheques of {self.payroll}"
