"""System checks: what can be known to be wrong before a job is enqueued."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from django.apps import AppConfig, apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.core.checks.registry import registry
from django.core.exceptions import ImproperlyConfigured
from django.db import Error as DatabaseError
from django.db import connections, router, transaction

from django_pgjobs.compat import AnyTask, InvalidTask, task_backends
from django_pgjobs.conf import Conf, WrongSetting, find_problems, get_conf
from django_pgjobs.declaring.backends import find_backend_problems
from django_pgjobs.declaring.missing_limits import fact_of, named_limits, remedy_for, will_be_made
from django_pgjobs.declaring.own_tasks import EXAMPLE, is_ours
from django_pgjobs.declaring.registry import (
    IMPORT_ERRORS,
    BrokenModule,
    broken_apps,
    discover_tasks_once,
    find_task,
    list_broken_modules,
    list_task_paths,
    load_module,
    said_of,
)
from django_pgjobs.declaring.tasks import Task
from django_pgjobs.queries.database import routed_database, vendor_problem
from django_pgjobs.queries.rate_limits import MissingRate, list_missing_rates

MODELS_NAMED = 3
# What the function in ADMIN_PERMISSION is called with, one after the other.
HOOK_ARGUMENTS = ("user", "permission", "jobs")
HOOK = f"({', '.join(HOOK_ARGUMENTS)})"


def run_own_checks() -> list[CheckMessage]:
    """Run the checks of this package; those of the project may do anything.

    Modules of tasks are imported, no database is asked.
    """
    ours = [
        check for check in registry.get_checks() if check.__module__.startswith("django_pgjobs.")
    ]
    found = [message for check in ours for message in check(app_configs=None, databases=None)]
    return sorted(found, key=lambda message: message.id or "")


@register()
def check_settings(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Report every wrong key of PGJOBS, and of TASKS where a backend of ours reads them."""
    problems = [*find_problems(getattr(settings, "PGJOBS", {})), *_backend_problems()]
    return [
        Error(each.fact, hint=each.remedy, obj=each.about, id="pgjobs.E002") for each in problems
    ]


def _usable_conf() -> Conf | None:
    """Return the settings, None if one is wrong: `check_settings` reports that."""
    return None if find_problems(getattr(settings, "PGJOBS", {})) else get_conf()


def _backend_problems() -> Iterator[WrongSetting]:
    """Yield what is wrong in TASKS."""
    for alias, params in task_backends.settings.items():
        for known_options in _options_of_ours(params):
            yield from find_backend_problems(alias, params, known_options)


def _options_of_ours(params: Any) -> Iterator[frozenset[str]]:
    """Yield the keys of OPTIONS that a backend in TASKS takes, if it is one of ours."""
    try:
        module_name, _, name = params["BACKEND"].rpartition(".")
        found = getattr(load_module(module_name), name)
    except IMPORT_ERRORS:  # Django says what is wrong there
        return
    if is_ours(found):
        yield frozenset(found.known_options)


@register()
def check_dotted_paths(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Report what PGJOBS names by a dotted path and cannot be used."""
    conf = _usable_conf()
    if conf is None:
        return []
    return [
        Error(
            f"PGJOBS[{setting!r}] names {path!r}, which {problem}",
            hint=hint,
            obj=path,
            id="pgjobs.E004",
        )
        for setting, path, problem, hint in _path_problems(conf)
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


@register()
def check_tasks_of_apps(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Report every tasks.py that cannot be imported: no worker would run its jobs."""
    conf = _usable_conf()
    if conf is None:
        return []
    skips = conf.BROKEN_TASK_MODULES == "skip"
    return [_of_broken_module(module, skips) for module in broken_apps()]


def _of_broken_module(module: BrokenModule, skips: bool) -> CheckMessage:
    if skips:
        return Warning(
            f"{module}. Workers run without its tasks.",
            hint="Repair it; until then its jobs wait.",
            obj=module.name,
            id="pgjobs.W002",
        )
    if isinstance(module.error, DatabaseError):
        # An error would keep `migrate` from making what is missing.
        return Warning(
            f"{module}. Workers will not start.",
            hint="Use no database while the module is imported.",
            obj=module.name,
            id="pgjobs.W003",
        )
    return Error(
        f"{module}. Workers will not start.",
        hint="Repair it, or set PGJOBS['BROKEN_TASK_MODULES'] = 'skip' to run the other tasks.",
        obj=module.name,
        id="pgjobs.E005",
    )


@register()
def check_references_of_tasks(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Report options of tasks that name code which cannot be used: no enqueue would pass."""
    if _usable_conf() is None:
        return []
    discover_tasks_once()
    tasks = (find_task(path) for path in list_task_paths())
    return [
        Error(
            f"{problem} None of its jobs can be enqueued.",
            hint="Correct the option, or what it names.",
            obj=task.module_path,
            id="pgjobs.E006",
        )
        for task in tasks
        for problem in _reference_problems(task)
    ]


def _reference_problems(task: AnyTask) -> Iterator[str]:
    """Yield what the enqueue of a task would raise; not of a module that has its own message."""
    if not isinstance(task, Task) or not (task.merge or task.on_failure):
        return
    try:
        backend: Any = task.get_backend()
        if is_ours(backend):
            backend.check_references(task)
    except ImproperlyConfigured:  # of its backend, it says enough where it is used
        return
    except InvalidTask as error:
        paths = (path for path in (task.merge, task.on_failure) if isinstance(path, str))
        broken = {module.name for module in list_broken_modules()}
        if broken.isdisjoint(path.rpartition(".")[0] for path in paths):
            yield str(error).rstrip(".") + "."


@register()
def check_backends(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Warn where the app is installed and no alias of TASKS uses it."""
    try:
        backends = {alias: task_backends[alias] for alias in task_backends.settings}
    except ImproperlyConfigured:
        return []  # it says enough where it is used
    if any(map(is_ours, backends.values())):
        return []
    named = ", ".join(f"{alias!r} is {type(it).__name__}" for alias, it in backends.items())
    return [
        Warning(
            f"no alias of TASKS uses django_pgjobs ({named}): no worker sees what is enqueued, "
            "and Django's default runs it at once, in the process that enqueues it.",
            hint=f"Write {EXAMPLE}.",
            id="pgjobs.W004",
        )
    ]


def _import_problems(module_name: str) -> Iterator[str]:
    try:
        load_module(module_name)
    except IMPORT_ERRORS as error:
        yield f"cannot be imported: {said_of(error)}"


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
    problem = vendor_problem(routed_database())
    if problem is None:
        return []
    fact, hint = problem
    return [Error(fact, hint=hint, id="pgjobs.E003")]


@register()
def check_sentry(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Warn of check-ins that cannot be sent."""
    conf = _usable_conf()
    if conf is None or not conf.SENTRY_CHECK_INS:
        return []
    try:
        load_module("sentry_sdk.crons")
    except IMPORT_ERRORS as error:
        return [
            Warning(
                "PGJOBS['SENTRY_CHECK_INS'] is on, but sentry_sdk.crons cannot be imported: "
                f"{said_of(error)}. No schedule checks in.",
                hint="pip install sentry-sdk, or turn it off.",
                id="pgjobs.W007",
            )
        ]
    return []


@register()
def check_tracing(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Warn of traces that nobody makes."""
    conf = _usable_conf()
    if conf is None:
        return []
    found: list[CheckMessage] = []
    for setting, is_on, module, package in (
        ("OPENTELEMETRY", conf.OPENTELEMETRY, "opentelemetry.trace", "opentelemetry-api"),
        ("SENTRY_TRACING", conf.SENTRY_TRACING, "sentry_sdk", "sentry-sdk"),
    ):
        try:
            if is_on:
                load_module(module)
        except IMPORT_ERRORS as error:
            fact = f"PGJOBS[{setting!r}] is on, but {module} cannot be imported: {said_of(error)}."
            hint = f"pip install {package}, or turn it off."
            found.append(
                Warning(f"{fact} Nothing is traced.", hint=hint, obj=setting, id="pgjobs.W008")
            )
    return found


@register()
def check_router(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Warn where jobs and the project's data are in different databases."""
    if len(settings.DATABASES) < 2:
        return []
    jobs = routed_database()
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
    """Warn of rate limits that tasks or jobs name and that have no row, or are too small.

    Not of those that `migrate` will make: it runs this check first.
    """
    alias = routed_database()
    if alias not in (databases or ()) or vendor_problem(alias):
        return []
    return [
        warn_of_rate(missing) for missing in missing_rate_limits(alias) if not will_be_made(missing)
    ]


def warn_of_rate(missing: MissingRate) -> CheckMessage:
    """Return the message about a limit that never lets a job go."""
    fact, hint = fact_of(missing), remedy_for(missing)
    if missing.cost is not None:
        return Warning(fact, hint=hint, obj=missing.name, id="pgjobs.W006")
    return Warning(fact, hint=hint, obj=missing.name, id="pgjobs.W005")


def missing_rate_limits(alias: str) -> list[MissingRate]:
    """Return which limits never let a job go; none if the database or the tasks cannot be read, or
    not the settings, which may make them.
    """
    if _usable_conf() is None:
        return []
    try:
        discover_tasks_once()
    except ImproperlyConfigured:  # another check says of what
        return []
    try:
        with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
            return list_missing_rates(cursor, named_limits())
    except DatabaseError:  # as before the first migrate
        return []
