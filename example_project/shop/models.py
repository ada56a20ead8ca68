"""What the shop knows: customers and their mail, products, orders and payment events.

Amounts are whole numbers of the currency's minor unit (cents).
"""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db import models
from django.urls import reverse


class Customer(models.Model):
    """A person who signed up: the shop's side of a user."""

    user = models.OneToOneField(
        User,
        on_delete=models.CASCADE,
        primary_key=True,
        related_name="customer",
    )
    # A plain number: finished jobs are deleted some day, the customer stays.
    welcome_job_id = models.BigIntegerField(null=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.user.first_name} <{self.user.email}>"

    def get_absolute_url(self) -> str:
        """The customer's page."""
        return reverse("shop:customer", args=[self.pk])


class WelcomeMail(models.Model):
    """A record of one welcome mail sent.

    Nothing here is unique on purpose: if a job's effect happened twice, there would be
    two rows, and the demo would show it.
    """

    customer = models.ForeignKey(Customer, models.CASCADE, related_name="welcome_mails")
    recipient = models.EmailField()
    job_id = models.BigIntegerField(null=True, editable=False)
    sent_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"to {self.recipient}"


class Product(models.Model):
    """Something to buy."""

    sku = models.CharField("SKU", max_length=32, unique=True)
    name = models.CharField(max_length=100)
    unit_amount = models.PositiveIntegerField(help_text="price of one, in cents")

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Order(models.Model):
    """A customer's order and what its payment has come to."""

    class Status(models.TextChoices):
        """Where the order's payment stands."""

        PLACED = "placed", "placed, not paid"
        PAYMENT_FAILED = "payment_failed", "payment failed"
        PAID = "paid", "paid"
        PARTLY_REFUNDED = "partly_refunded", "partly refunded"
        REFUNDED = "refunded", "refunded"
        DISPUTED = "disputed", "disputed"

    reference = models.CharField(max_length=40, unique=True)
    customer = models.ForeignKey(Customer, models.CASCADE, related_name="orders")
    currency = models.CharField(max_length=3, default="EUR")
    total_amount = models.PositiveIntegerField()
    status = models.CharField(max_length=20, choices=Status.choices, default=Status.PLACED)
    captured_amount = models.PositiveIntegerField(default=0)
    refunded_amount = models.PositiveIntegerField(default=0)
    # Goes up by one with each payment event that changed the order.
    revision = models.PositiveIntegerField(default=0)
    placed_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.reference

    def get_absolute_url(self) -> str:
        """The order's page."""
        return reverse("shop:order", args=[self.reference])


class OrderLine(models.Model):
    """One product in an order, at the price it had."""

    order = models.ForeignKey(Order, models.CASCADE, related_name="lines")
    product = models.ForeignKey(Product, models.PROTECT, related_name="+")
    quantity = models.PositiveSmallIntegerField(default=1)
    unit_amount = models.PositiveIntegerField()

    def __str__(self) -> str:
        return f"{self.quantity} × {self.product}"

    @property
    def amount(self) -> int:
        """The line's price."""
        return self.quantity * self.unit_amount


class PaymentEvent(models.Model):
    """Something the payment provider told us, once, however often it was delivered."""

    event_id = models.CharField(max_length=64, unique=True)
    type = models.CharField(max_length=40)
    order = models.ForeignKey(Order, models.CASCADE, related_name="payment_events")
    payment_id = models.CharField(max_length=64)
    amount = models.PositiveIntegerField()
    currency = models.CharField(max_length=3)
    card = models.CharField(max_length=40, blank=True, help_text="brand and last digits")
    occurred_at = models.DateTimeField()
    applied_at = models.DateTimeField(auto_now_add=True)
    job_id = models.BigIntegerField(null=True, editable=False)

    class Meta:
        ordering = ["occurred_at", "pk"]

    def __str__(self) -> str:
        return f"{self.type} {self.event_id}"


class DailyReport(models.Model):
    """What one day came to."""

    day = models.DateField(unique=True)
    orders = models.PositiveIntegerField()
    amount = models.PositiveBigIntegerField(help_text="in cents")
    written_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"{self.day}: {self.orders} orders"
