"""The app configuration of the payroll."""

from __future__ import annotations

from django.apps import AppConfig


class PayrollConfig(AppConfig):
    """The payroll under the label `payroll`."""

    name = "example_project.payroll"
    label = "payroll"
    default_auto_field = "django.db.models.BigAutoField"
