"""The app: checks, declared rate limits, the reloader; ready() imports no code of the project."""

from __future__ import annotations

from django.apps import AppConfig
from django.db.models.signals import post_migrate
from django.utils.autoreload import autoreload_started
from django.utils.translation import gettext_lazy as _


class PgJobsConfig(AppConfig):
    """`django_pgjobs` in INSTALLED_APPS."""

    name = "django_pgjobs"
    label = "pgjobs"
    verbose_name = _("Background jobs")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from django_pgjobs import checks  # noqa: F401
        from django_pgjobs.control.rate_limits import create_declared_limits
        from django_pgjobs.declaring.registry import watch_broken_modules

        post_migrate.connect(
            create_declared_limits,
            sender=self,
            dispatch_uid="django_pgjobs.control.rate_limits",
        )
        autoreload_started.connect(
            watch_broken_modules, dispatch_uid="django_pgjobs.declaring.registry"
        )
