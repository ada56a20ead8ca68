"""Finding the task that a job names, without ever importing what a row says.

A row's text is only looked up among modules that are already loaded; modules are loaded by
`discover_tasks`, from settings. So whoever can write to the table can call declared tasks,
and nothing else.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any, TypeGuard

from django.apps import apps
from django.utils.module_loading import autodiscover_modules

from django_pgjobs.compat import AnyTask
from django_pgjobs.compat import Task as DjangoTask
from django_pgjobs.conf import get_conf
from django_pgjobs.exceptions import UnknownTask

_found: dict[str, AnyTask] = {}

# The tasks of our own, for every worker. It is named here, not imported: it is made of models.
OWN_MODULE = "django_pgjobs.bulk.job"


def discover_tasks() -> None:
    """Import the module `tasks` of every installed app, PGJOBS["TASK_MODULES"], and our own."""
    autodiscover_modules("tasks")
    for name in (*get_conf().TASK_MODULES, OWN_MODULE):
        load_module(name)


def load_module(name: str) -> ModuleType:
    """Import a module that a setting or an option of a task names, never a row."""
    return importlib.import_module(name)


@cache
def discover_tasks_once() -> None:
    """Call `discover_tasks`, the first time only."""
    if apps.ready:
        discover_tasks()


def find_task(path: str) -> AnyTask:
    """Return the task declared as *path*; raise UnknownTask if no loaded module has it."""
    found = _found.get(path)
    if found is None:
        module_name, _, name = path.rpartition(".")
        candidate = find_in_module(module_name, [name])
        if not is_task(candidate) or candidate.module_path != path:
            raise UnknownTask(
                f"no task {path} is declared here. Deploy its code, or add its module to "
                "PGJOBS['TASK_MODULES'] if it is not in an app's tasks.py."
            )
        found = _found[path] = candidate
    return found


def find_in_module(module_name: str, names: Sequence[str]) -> Any:
    """Return what a loaded module has under *names*, one within the class before; else None.

    Only looked up: no code of the module runs, no descriptor and no `__getattr__`.
    """
    found: Any = sys.modules.get(module_name)
    try:
        # Not even that of a module that loads itself when somebody looks at it.
        namespaces = [object.__getattribute__(found, "__dict__")]
    except AttributeError:  # sys.modules may hold None and things without a namespace
        return None
    for name in names:
        holder = next((each for each in namespaces if name in each), None)
        if holder is None:
            return None
        found = holder[name]
        bases = type.mro(found) if is_class(found) else []
        namespaces = [type.__getattribute__(base, "__dict__") for base in bases]
    return found


def is_class(value: object) -> bool:
    """Is *value* a class? Asks its type only, as `is_task`."""
    return issubclass(type(value), type)


@cache
def find_function(path: str) -> Any:
    """Return the function of a dotted path that the project's code gives as an option.

    Raise ImportError or TypeError if there is none.
    """
    module_name, _, name = path.rpartition(".")
    found = getattr(load_module(module_name), name, None)
    if not callable(found):
        raise TypeError(f"expected {path!r} to be the path of a function, got {found!r}.")
    return found


def is_task(value: object) -> TypeGuard[AnyTask]:
    """Is *value* a task? Asks its type only: isinstance() would wake up lazy objects."""
    return issubclass(type(value), DjangoTask)


def list_task_paths() -> list[str]:
    """Return the paths of all tasks that `find_task` finds, sorted."""
    paths = set()
    for module_name, module in list(sys.modules.items()):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if is_task(value) and value.module_path == f"{module_name}.{name}":
                paths.add(value.module_path)
    return sorted(paths)
