"""What the integration service knows: whom it sends what, what it has sent, and trades.

Amounts are whole numbers of the currency's minor unit (cents).
"""

from __future__ import annotations

from django.db import models
from django.urls import reverse


class Integration(models.Model):
    """A customer's system elsewhere, which is to have the customer's products."""

    class Plan(models.TextChoices):
        """What the customer has bought there; `limits` knows what it allows."""

        BASIC = "basic", "basic"
        ENTERPRISE = "enterprise", "enterprise"

    name = models.CharField(max_length=100)
    plan = models.CharField(max_length=20, choices=Plan.choices, default=Plan.BASIC)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        """The customer's page about it."""
        return reverse("integrations:integration", args=[self.pk])


class Product(models.Model):
    """A product as we have it; *revision* rises with each edit."""

    integration = models.ForeignKey(Integration, models.CASCADE, related_name="products")
    title = models.CharField(max_length=100)
    description = models.TextField(blank=True)
    price = models.PositiveIntegerField(help_text="in cents; 0: none yet, nobody takes that")
    revision = models.PositiveIntegerField(default=1)

    def __str__(self) -> str:
        return self.title


class Delivery(models.Model):
    """What one call has brought to the other side, as the customer may see it."""

    integration = models.ForeignKey(Integration, models.CASCADE, related_name="deliveries")
    product = models.ForeignKey(Product, models.CASCADE, related_name="deliveries")
    fields = models.JSONField(help_text="names of what was sent")
    price = models.PositiveIntegerField()
    revision = models.PositiveIntegerField()
    # A plain number: finished jobs are deleted some day, the record stays.
    job_id = models.BigIntegerField(editable=False)
    started_at = models.DateTimeField()
    delivered_at = models.DateTimeField()

    class Meta:
        verbose_name_plural = "deliveries"
        indexes = [
            models.Index(fields=["integration", "-delivered_at"], name="deliveries_newest_first")
        ]

    def __str__(self) -> str:
        return f"{self.product} at revision {self.revision}"


class Company(models.Model):
    """A company whose trades are settled one after the other."""

    name = models.CharField(max_length=100)
    balance = models.BigIntegerField(default=0)

    class Meta:
        verbose_name_plural = "companies"

    def __str__(self) -> str:
        return self.name


class Trade(models.Model):
    """One trade: by how much it changes the balance, and what that was afterwards."""

    company = models.ForeignKey(Company, models.CASCADE, related_name="trades")
    amount = models.IntegerField()
    refusals = models.PositiveSmallIntegerField(
        default=0, help_text="how often the pretended exchange is busy before it takes the trade"
    )
    balance_after = models.BigIntegerField(null=True, editable=False)
    started_at = models.DateTimeField(null=True, editable=False)
    settled_at = models.DateTimeField(null=True, editable=False)

    def __str__(self) -> str:
        return f"{self.amount:+} for {self.company}"


class ExchangeRate(models.Model):
    """What a euro cost at a time.

    Nothing is unique on purpose: if a job's effect happened twice, there would be two rows, and
    the demo would show it.
    """

    as_of = models.DateTimeField()
    dollars = models.FloatField()

    def __str__(self) -> str:
        return f"{self.dollars} dollars"
