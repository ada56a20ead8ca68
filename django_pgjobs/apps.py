"""The app: system checks, and nothing that imports the project's code."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class PgJobsConfig(AppConfig):
    """`django_pgjobs` in INSTALLED_APPS."""

    name = "django_pgjobs"
    label = "pgjobs"
    verbose_name = _("Background jobs")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from django_pgjobs import checks  # noqa: F401
