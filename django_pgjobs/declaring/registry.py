"""Finding the task that a job names, without ever importing what a row says.

A row's text is only looked up among modules that are already loaded; modules are loaded by
`discover_tasks`, from settings. So whoever can write to the table can call declared tasks,
and nothing else.
"""

from __future__ import annotations

import importlib
import os
import sys
import sysconfig
import traceback
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeGuard

from django.apps import apps
from django.utils.module_loading import module_has_submodule

from django_pgjobs.compat import AnyTask
from django_pgjobs.compat import Task as DjangoTask
from django_pgjobs.conf import get_conf
from django_pgjobs.exceptions import UnknownTask

_found: dict[str, AnyTask] = {}

# Our own tasks, for every worker. They are named, not imported, because they need models.
OWN_MODULES = (
    "django_pgjobs.bulk.job",
    "django_pgjobs.http.calling",
    "django_pgjobs.http.removing",
)


def is_own(path: str) -> bool:
    """Is it the path of one of our own tasks? People are told of those of the project only."""
    return path.rpartition(".")[0] in OWN_MODULES


# What importing a module may raise; one that calls sys.exit() is broken, too.
IMPORT_ERRORS = (Exception, SystemExit)


def said_of(error: BaseException) -> str:
    """Return what a module raised, as a message shows it."""
    if isinstance(error, SystemExit):
        return f"it calls sys.exit({'' if error.code is None else repr(error.code)})"
    # The text of a syntax error ends with a place, without the folder of the file.
    text = error.msg if isinstance(error, SyntaxError) else error
    return f"{type(error).__name__}: {text}"


class BrokenModule(NamedTuple):
    """A module of tasks that cannot be imported, and what it raises."""

    name: str
    error: BaseException

    def __str__(self) -> str:
        said = f"{self.name} cannot be imported: {said_of(self.error)}"
        place = _place_of(self.error, self.name)
        return f"{said} ({place})" if place else said


# Folders of code that is not the project's: ours, Python's, and installed packages.
LIBRARIES = (
    os.path.dirname(os.path.dirname(__file__)),
    sysconfig.get_path("stdlib"),
    sysconfig.get_path("purelib"),
    sysconfig.get_path("platlib"),
)

# By name, of the last discovery.
_broken: dict[str, BrokenModule] = {}


def discover_tasks() -> list[BrokenModule]:
    """Import the module `tasks` of every installed app, PGJOBS["TASK_MODULES"], and our own.

    Return those that raise; the others are imported all the same.
    """
    for name in OWN_MODULES:
        load_module(name)
    broken = [*broken_apps(), *filter(None, map(_try_to_load, get_conf().TASK_MODULES))]
    _broken.clear()
    _broken.update((module.name, module) for module in broken)
    return broken


def broken_apps() -> list[BrokenModule]:
    """Import the module `tasks` of every installed app that has one; return those that raise."""
    tried = ((app, _try_to_load(f"{app.name}.tasks")) for app in apps.get_app_configs())
    return [
        broken
        for app, broken in tried
        if broken and app.module and module_has_submodule(app.module, "tasks")
    ]


def list_broken_modules() -> list[BrokenModule]:
    """Return the modules that raised at the last discovery."""
    return list(_broken.values())


def watch_broken_modules(sender: Any, **_: Any) -> None:
    """Let Django's reloader, the *sender*, notice that somebody repairs one of them.

    It knows the files of modules that could be imported, and would never start the server again.
    """
    for broken in discover_tasks_once():
        frames = traceback.extract_tb(broken.error.__traceback__)
        names = {frame.filename for frame in frames if not frame.filename.startswith("<")}
        if isinstance(broken.error, SyntaxError) and broken.error.filename:
            names.add(broken.error.filename)
        sender.extra_files.update(map(Path, names))


def _try_to_load(name: str) -> BrokenModule | None:
    try:
        load_module(name)
    except IMPORT_ERRORS as error:
        return BrokenModule(name, error)
    return None


def _place_of(error: BaseException, module_name: str) -> str | None:
    """Return the file and line of the project in which *error* was raised, None if none was run.

    Lines of a library are not to blame, unless the module itself belongs to it.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename not in (__file__, importlib.__file__)
        # Code that no file has: of importlib, of dataclasses.
        and not frame.filename.startswith("<")
    ]
    own = f"{module_name.replace('.', os.sep)}.py"
    blamed = [
        frame
        for frame in frames
        if frame.filename.endswith(own) or not frame.filename.startswith(LIBRARIES)
    ]
    return next(
        (f"{frame.filename}, line {frame.lineno}" for frame in (blamed or frames)[::-1]), None
    )


def load_module(name: str) -> ModuleType:
    """Import a module that a setting or an option of a task names, never a row."""
    return importlib.import_module(name)


def discover_tasks_once() -> list[BrokenModule]:
    """Call `discover_tasks`, the first time only; return what it returned then.

    Before all apps are ready it loads nothing and returns []; that does not count as the first
    time.
    """
    return _discovered() if apps.ready else []


@cache
def _discovered() -> list[BrokenModule]:
    return discover_tasks()


def is_discovered() -> bool:
    """Has `discover_tasks_once` loaded the modules of tasks in this process?"""
    return _discovered.cache_info().currsize > 0


def find_task(path: str) -> AnyTask:
    """Return the task declared as *path*; raise UnknownTask if no loaded module has it."""
    found = _found.get(path)
    if found is None:
        module_name, _, name = path.rpartition(".")
        candidate = find_in_module(module_name, [name])
        if not is_task(candidate) or candidate.module_path != path:
            if module_name in _broken:
                raise UnknownTask(f"no task {path} is declared here: {_broken[module_name]}")
            raise UnknownTask(
                f"no task {path} is declared here. Deploy its code, and name its app in "
                "INSTALLED_APPS, whose tasks.py is loaded, or its module in PGJOBS['TASK_MODULES']."
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
    except AttributeError:  # sys.modules may hold None, and objects without a namespace
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
    # By id: the hash of a class may be code of its own.
    kinds = {id(kind) for kind in _kinds_of(DjangoTask)}
    paths = set()
    for module_name, module in list(sys.modules.items()):
        namespace = getattr(module, "__dict__", {})
        # Of thousands of modules few have tasks.
        if kinds.isdisjoint(map(id, map(type, list(namespace.values())))):
            continue
        for name, value in list(namespace.items()):
            if is_task(value) and value.module_path == f"{module_name}.{name}":
                paths.add(value.module_path)
    return sorted(paths)


def _kinds_of(kind: type[object]) -> list[type[object]]:
    """Return *kind* and all classes below it."""
    return [kind, *(each for below in kind.__subclasses__() for each in _kinds_of(below))]
