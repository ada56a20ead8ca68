"""The shop in the admin."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from django_pgjobs.admin import JobsOfRowMixin
from example_project.shop.models import (
    Customer,
    DailyReport,
    Order,
    OrderLine,
    PaymentEvent,
    Product,
    WelcomeMail,
)
from example_project.shop.payments import settle_order


class WelcomeMailInline(admin.TabularInline):
    """The welcome mails a customer got: one."""

    model = WelcomeMail
    extra = 0
    can_delete = False
    readonly_fields = ["recipient", "job_id", "sent_at"]

    def has_add_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Mails are sent by jobs."""
        return False


@admin.register(Customer)
class CustomerAdmin(admin.ModelAdmin):
    """Customers."""

    list_display = ["user_id", "name", "email", "created_at"]
    list_select_related = ["user"]
    search_fields = ["user__email"]
    show_full_result_count = False
    raw_id_fields = ["user"]
    readonly_fields = ["welcome_job_id", "created_at"]
    inlines = [WelcomeMailInline]

    @admin.display(description="name")
    def name(self, customer: Customer) -> str:
        """The user's name."""
        return customer.user.first_name

    @admin.display(description="e-mail")
    def email(self, customer: Customer) -> str:
        """The user's address."""
        return customer.user.email


@admin.register(Product)
class ProductAdmin(admin.ModelAdmin):
    """Products."""

    list_display = ["sku", "name", "unit_amount"]
    search_fields = ["sku", "name"]


class OrderLineInline(admin.TabularInline):
    """What was ordered."""

    model = OrderLine
    extra = 0


class PaymentEventInline(admin.TabularInline):
    """What the payment provider said."""

    model = PaymentEvent
    extra = 0
    can_delete = False
    fields = ("event_id", "type", "amount", "currency", "card", "occurred_at", "job_id")
    readonly_fields = fields

    def has_add_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Events come from the provider."""
        return False


@admin.register(Order)
class OrderAdmin(JobsOfRowMixin, admin.ModelAdmin):
    """Orders, each with the jobs that are about it."""

    list_display = [
        "reference",
        "status",
        "total_amount",
        "captured_amount",
        "refunded_amount",
        "placed_at",
    ]
    list_filter = ["status"]
    search_fields = ["reference"]
    show_full_result_count = False
    raw_id_fields = ["customer"]
    readonly_fields = ["captured_amount", "refunded_amount", "revision", "placed_at"]
    inlines = [OrderLineInline, PaymentEventInline]
    actions = ["settle_again"]

    @admin.action(description="Work out the payment again", permissions=["change"])
    def settle_again(self, request: HttpRequest, orders: QuerySet[Order]) -> None:
        """Let a job settle each of the orders; their pages show it."""
        for order in orders:
            settle_order.using(subject=order).enqueue(order_id=order.pk)
        self.message_user(request, "The payments are being worked out.")


@admin.register(PaymentEvent)
class PaymentEventAdmin(admin.ModelAdmin):
    """Payment events, to look at."""

    list_display = ["event_id", "type", "order", "amount", "currency", "occurred_at"]
    list_filter = ["type"]
    list_select_related = ["order"]
    search_fields = ["event_id", "payment_id"]
    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Events come from the provider."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """What the provider said stays said."""
        return False


@admin.register(DailyReport)
class DailyReportAdmin(admin.ModelAdmin):
    """What each day came to."""

    list_display = ["day", "orders", "amount", "written_at"]
