"""Which of the project's databases has the jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, router, transaction

View = TypeVar("View", bound=Callable[..., Any])


def job_database() -> str:
    """Return the alias of the database that the table of jobs lives in.

    Raise ImproperlyConfigured in a project that lacks our app.
    """
    try:
        jobs = apps.get_model("pgjobs", "Job")
    except LookupError:
        raise ImproperlyConfigured(
            "the app that has the table of jobs is not installed. Add 'django_pgjobs' to "
            "INSTALLED_APPS and run manage.py migrate."
        ) from None
    return router.db_for_write(jobs)


def without_transaction(view: View) -> View:
    """Let no transaction be open in a view, whichever database has ATOMIC_REQUESTS."""
    for alias in connections:
        transaction.non_atomic_requests(using=alias)(view)
    return view
