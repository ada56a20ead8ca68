"""System checks: what can be known to be wrong before a job is enqueued."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from django.apps import AppConfig, apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import DatabaseError, connections, router, transaction

from django_pgjobs.conf import Conf, find_problems, get_conf
from django_pgjobs.declaring.missing_limits import fact_of, named_limits, remedy_for
from django_pgjobs.declaring.registry import discover_tasks_once, load_module
from django_pgjobs.queries.database import job_database
from django_pgjobs.queries.rate_limits import MissingRate, list_missing_rates

MODELS_NAMED = 3
# What the function in ADMIN_PERMISSION is called with, one after the other.
HOOK_ARGUMENTS = ("user", "permission", "jobs")
HOOK = f"({', '.join(HOOK_ARGUMENTS)})"


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
def check_dotted_paths(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Report what PGJOBS names by a dotted path and cannot be used."""
    if find_problems(getattr(settings, "PGJOBS", {})):
        return []  # check_settings reports those
    return [
        Error(f"PGJOBS[{setting!r}] names {path!r}, which {problem}", hint=hint, id="pgjobs.E004")
        for setting, path, problem, hint in _path_problems(get_conf())
    ]


def _path_problems(conf: Conf) -> Iterator[tuple[str, str, str, str]]:
    """Yield (setting, its path, what is wrong with it, what to write)."""
    for name in conf.TASK_MODULES:
        for problem in _import_problems(name):
            hint = "Write the names of modules that can be imported, such as 'shop.signup'."
            yield "TASK_MODULES", name, problem, hint
    if conf.ADMIN_PERMISSION is not None:
        for problem in _hook_problems(conf.ADMIN_PERMISSION):
            hint = f"Write the path of a function such as def jobs_of{HOOK}; see docs/admin.md."
            yield "ADMIN_PERMISSION", conf.ADMIN_PERMISSION, problem, hint


def _import_problems(module_name: str) -> Iterator[str]:
    try:
        load_module(module_name)
    except Exception as error:  # its code may raise anything
        yield f"cannot be imported: {type(error).__name__}: {error}"


def _hook_problems(path: str) -> Iterator[str]:
    module_name, _, name = path.rpartition(".")
    problems = list(_import_problems(module_name))
    if problems:
        yield from problems
        return
    hook = getattr(load_module(module_name), name, None)
    if not callable(hook):
        yield f"is nothing that can be called, but {hook!r:.80}."
    elif inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(type(hook).__call__):
        yield "is asynchronous: what it returns would be true for everybody."
    else:
        yield from _call_problems(hook)


def _call_problems(hook: Callable[..., Any]) -> Iterator[str]:
    try:
        signature = inspect.signature(hook)
    except ValueError:  # one of a C extension says nothing
        return
    try:
        signature.bind(*HOOK_ARGUMENTS)
    except TypeError as error:
        yield f"cannot be called with {HOOK}: {error}."


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


@register(Tags.database)
def check_rate_limits(
    app_configs: Sequence[AppConfig] | None = None,
    databases: Sequence[str] | None = None,
    **kwargs: Any,
) -> list[CheckMessage]:
    """Warn of rate limits that tasks or jobs name and that have no row."""
    alias = job_database()
    if alias not in (databases or ()) or connections[alias].vendor != "postgresql":
        return []
    return [
        Warning(fact_of(missing), hint=remedy_for(missing), id="pgjobs.W008")
        for missing in missing_rate_limits(alias)
    ]


def missing_rate_limits(alias: str) -> list[MissingRate]:
    """Return which limits are not there; none if the database or the tasks cannot be read."""
    try:
        discover_tasks_once()
    except Exception:  # other checks report a module that raises
        return []
    try:
        with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
            return list_missing_rates(cursor, names=named_limits())
    except DatabaseError:  # as before the first migrate
        return []
