"""System checks: what can be known to be wrong before a job is enqueued."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig, apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register
from django.db import connections, router

from django_pgjobs.conf import find_problems

MODELS_NAMED = 3


@register()
def check_settings(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Report every wrong key of PGJOBS."""
    return [
        Error(fact, hint=hint, id="pgjobs.E002")
        for fact, hint in find_problems(getattr(settings, "PGJOBS", {}))
    ]


@register()
def check_vendor(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Report a database of the jobs that is not PostgreSQL."""
    alias = router.db_for_write(apps.get_model("pgjobs", "Job"))
    vendor = connections[alias].vendor
    if vendor == "postgresql":
        return []
    return [
        Error(
            f"the jobs are in the database {alias!r}, which is {vendor} and not PostgreSQL.",
            hint="Set ENGINE to 'django.db.backends.postgresql', or route the app 'pgjobs' to a "
            "PostgreSQL database.",
            id="pgjobs.E003",
        )
    ]


@register()
def check_router(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Warn where jobs and the project's data are in different databases."""
    if len(settings.DATABASES) < 2:
        return []
    jobs = router.db_for_write(apps.get_model("pgjobs", "Job"))
    elsewhere = [
        model._meta.label
        for model in apps.get_models()
        if model._meta.managed
        and model._meta.app_label != "pgjobs"
        and not model.__module__.startswith("django.contrib.")
        and router.db_for_write(model) != jobs
    ]
    if not elsewhere:
        return []
    named = ", ".join(elsewhere[:MODELS_NAMED])
    more = f" and {len(elsewhere) - MODELS_NAMED} more" if len(elsewhere) > MODELS_NAMED else ""
    return [
        Warning(
            f"jobs go to the database {jobs!r}, but {named}{more} to another one: a job does "
            "not commit or roll back with them.",
            hint="Route the app 'pgjobs' to the database of the data its jobs are about, or "
            "enqueue in transaction.on_commit() and silence this check.",
            id="pgjobs.W001",
        )
    ]
