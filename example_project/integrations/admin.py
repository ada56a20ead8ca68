"""The integration service in the admin."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Model
from django.forms import Form
from django.http import HttpRequest

from example_project.integrations.limits import set_plan
from example_project.integrations.models import (
    Company,
    Delivery,
    ExchangeRate,
    Integration,
    Product,
    Trade,
)
from example_project.integrations.syncing import SENT, edit_product


@admin.register(Integration)
class IntegrationAdmin(admin.ModelAdmin):
    """Integrations; a changed plan changes the rate limit."""

    list_display = ["name", "plan", "created_at"]
    list_filter = ["plan"]
    search_fields = ["name"]

    def save_model(self, request: HttpRequest, obj: Integration, form: Form, change: bool) -> None:
        """Save, and let the rate limit follow the plan."""
        obj.save()
        set_plan(obj, Integration.Plan(obj.plan))


@admin.register(Product)
class ProductAdmin(admin.ModelAdmin):
    """Products; an edit is synced like any other."""

    list_display = ["title", "integration", "price", "revision"]
    list_select_related = ["integration"]
    search_fields = ["title"]
    show_full_result_count = False
    raw_id_fields = ["integration"]
    fields = ("integration", "title", "description", "price")

    def save_model(self, request: HttpRequest, obj: Product, form: Form, change: bool) -> None:
        """Save through the code that enqueues."""
        names = [name for name in SENT if not change or name in form.changed_data]
        if not change:
            obj.save()
        if names:
            edit_product(obj.pk, **{name: getattr(obj, name) for name in names})


class RecordAdmin(admin.ModelAdmin):
    """Records, to look at."""

    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Jobs write them."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """What happened stays."""
        return False


@admin.register(Delivery)
class DeliveryAdmin(RecordAdmin):
    """Deliveries, to look at."""

    list_display = ["product", "integration", "price", "revision", "delivered_at", "job_id"]
    list_select_related = ["product", "integration"]


@admin.register(Company)
class CompanyAdmin(RecordAdmin):
    """Companies, to look at."""

    list_display = ["name", "balance"]


@admin.register(Trade)
class TradeAdmin(RecordAdmin):
    """Trades, to look at."""

    list_display = ["company", "amount", "balance_after", "started_at", "settled_at"]
    list_select_related = ["company"]


@admin.register(ExchangeRate)
class ExchangeRateAdmin(RecordAdmin):
    """Rates, to look at."""

    list_display = ["as_of", "dollars"]
