"""The payroll in the admin."""

from __future__ import annotations

from django.contrib import admin

from example_project.payroll.models import Cheque, Employee, Payroll, Summary


@admin.register(Employee)
class EmployeeAdmin(admin.ModelAdmin):
    """Who is paid."""

    list_display = ["name", "hours", "wage"]
    search_fields = ["name"]


@admin.register(Payroll, Summary)
class PayrollAdmin(admin.ModelAdmin):
    """Payrolls, and what was told of them."""


@admin.register(Cheque)
class ChequeAdmin(admin.ModelAdmin):
    """What was paid."""

    list_display = ["employee", "amount", "payroll", "written_at"]
    list_select_related = ["employee", "payroll"]
    raw_id_fields = ["employee"]
    show_full_result_count = False
