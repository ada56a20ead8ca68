"""Which of the project's databases has the jobs, and whose transactions are open there."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, router, transaction
from django.db.backends.utils import CursorWrapper
from django.db.models import Model, QuerySet

View = TypeVar("View", bound=Callable[..., Any])
Row = TypeVar("Row", bound=Model)


def job_database() -> str:
    """Return the alias of the database that the table of jobs lives in.

    Raise ImproperlyConfigured in a project that lacks our app, and if that is not PostgreSQL.
    """
    alias = routed_database()
    _refuse_other_vendor(alias)
    return alias


def job_cursor() -> CursorWrapper:
    """Return a cursor of Django's connection to that database, to be used in a `with`."""
    return connections[job_database()].cursor()


def rows_of(model: type[Row]) -> QuerySet[Row]:
    """Return the rows of a table of ours as they are there, whatever a router does with reads.

    A replica lags behind: what was just changed is not there yet.
    """
    return model._default_manager.using(job_database())


def routed_database() -> str:
    """Return what `job_database` does, whatever its vendor: what is no PostgreSQL has no jobs."""
    try:
        jobs = apps.get_model("pgjobs", "Job")
    except LookupError:
        raise ImproperlyConfigured(
            "the app that has the table of jobs is not installed. Add 'django_pgjobs' to "
            "INSTALLED_APPS and run manage.py migrate."
        ) from None
    return router.db_for_write(jobs)


def vendor_problem(alias: str) -> tuple[str, str] | None:
    """Return (fact, remedy) if the jobs are routed to a database that is not PostgreSQL."""
    vendor = connections[alias].vendor
    if vendor == "postgresql":
        return None
    fact = f"the jobs are in the database {alias!r}, which is {vendor} and not PostgreSQL."
    remedy = (
        "Set ENGINE to 'django.db.backends.postgresql', or route the app 'pgjobs' to a "
        "PostgreSQL database."
    )
    return fact, remedy


# What is not refused is remembered: an enqueue asks several times.
@cache
def _refuse_other_vendor(alias: str) -> None:
    if problem := vendor_problem(alias):
        raise ImproperlyConfigured(" ".join(problem))


def pool_size(alias: str) -> int | None:
    """Return how many connections Django pools for a database of PostgreSQL, None if it does not.

    The numbers that psycopg_pool takes where the project gives none.
    """
    given = connections[alias].settings_dict["OPTIONS"].get("pool")
    if not given:
        return None
    sizes = {} if given is True else given
    return int(sizes.get("max_size") or sizes.get("min_size", 4))


def is_of_test_case(block: object) -> bool:
    """Is an `atomic()` block that of a TestCase, whose rows no other connection sees?"""
    return getattr(block, "_from_testcase", False)


def without_transaction(view: View) -> View:
    """Let no transaction be open in a view, whichever database has ATOMIC_REQUESTS."""
    for alias in connections:
        transaction.non_atomic_requests(using=alias)(view)
    return view
