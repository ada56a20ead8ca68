"""The rules of the house that a machine can keep: layers, sizes, words, what is shipped."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

from tests import helpers

ROOT = helpers.ROOT
PACKAGE = ROOT / "django_pgjobs"

# The list of docs/design.md says on which floor a room is.
FLOOR = re.compile(r"^- (\d+): (.+)$", re.MULTILINE)
ROOM = re.compile(r"`([\w.]+)`")

LONGEST_MODULE = 400
LONGEST_FUNCTION = 40

EXECUTING = {
    "callproc",
    "copy",
    "execute",
    "executemany",
    "executescript",
    "extra",
    "raw",
    "stream",
}
DEPENDENCIES = {
    "django_pgjobs",
    "django",
    "asgiref",
    "psycopg",
    "rangefilter",
    "django_tasks",
    "cronsim",
    # Only where a setting says so.
    "opentelemetry",
    "sentry_sdk",
}
FORBIDDEN_IMPORTS = {"marshal", "pickle", "shelve", "dill", "yaml"}
FORBIDDEN_CALLS = {"eval", "exec", "print", "breakpoint", "__import__"}
# Where a module may be loaded by name, and whose name that is.
LOADS_BY_NAME = {
    "django_pgjobs/compat.py": "the name of django.tasks or its backport, a constant",
    "django_pgjobs/declaring/registry.py": (
        "TASK_MODULES, the tasks.py of installed apps, and our own"
    ),
}
# Names of classes that Django gives.
GIVEN_NAMES = {"Command", "Migration"}


def modules(folder: Path = PACKAGE) -> list[Path]:
    """Return all Python files below *folder*."""
    return sorted(folder.rglob("*.py"))


def relative(path: Path) -> str:
    """Return the path as the developer types it."""
    return str(path.relative_to(ROOT))


@cache
def tree(path: Path) -> ast.Module:
    """Return the parsed module."""
    return ast.parse(path.read_text(), filename=relative(path))


def room_of(words: Sequence[str]) -> str:
    """Return the room of a dotted name below the package: `worker` has rooms of its own."""
    depth = 2 if words[0] == "worker" else 1
    return ".".join(words[:depth])


def part(path: Path) -> str:
    """Return the room to which the file belongs."""
    return room_of(path.relative_to(PACKAGE).with_suffix("").parts)


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, dotted name) of every import in the module, deferred ones included."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{relative(path)}:{node.lineno}: import absolutely"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and call_name(node) == "import_module":
            first = node.args[0] if node.args else None
            if isinstance(first, ast.Constant):
                yield node.lineno, str(first.value)


def call_name(node: ast.Call) -> str:
    """Return the last name of what is called: `b` for `a.b(...)`."""
    function = node.func
    return getattr(function, "attr", None) or getattr(function, "id", "")


def imported_part(name: str) -> str | None:
    """Return the room that *name* leads to, None for other packages."""
    words = name.split(".")
    if words[0] != "django_pgjobs":
        return None
    is_room = len(words) > 1 and any(
        (PACKAGE / f"{words[1]}{end}").exists() for end in (".py", "/__init__.py")
    )
    return room_of(words[1:]) if is_room else "__init__"


def calls(path: Path) -> Iterator[ast.Call]:
    """Yield every call in the module."""
    return (node for node in ast.walk(tree(path)) if isinstance(node, ast.Call))


def floors() -> dict[str, int]:
    """Return the floor of each room, as docs/design.md says."""
    rooms = (ROOT / "docs" / "design.md").read_text().split("\n## Rooms\n")[1].split("\n## ")[0]
    return {room: int(floor) for floor, line in FLOOR.findall(rooms) for room in ROOM.findall(line)}


def test_the_rooms_are_those_of_the_design_page() -> None:
    assert {part(path) for path in modules()} - {"worker.__init__"} == set(floors())


def refuse(offenders: Iterable[str], remedy: str) -> None:
    """Fail with all that was found, one a line, and what to do about it."""
    found = list(offenders)
    assert not found, f"{remedy}:\n" + "\n".join(found)


def test_a_room_imports_lower_floors_only() -> None:
    floor_of = floors()
    refuse(
        (
            f"{relative(path)}:{line}: {part(path)} of floor {floor_of[part(path)]}"
            f" imports {name} of floor {floor_of[target]}"
            for path in modules()
            for line, name in imported(path)
            if (target := imported_part(name))
            and target != part(path)
            and floor_of[target] >= floor_of[part(path)]
        ),
        "import downwards only",
    )


def test_queries_do_not_import_models() -> None:
    refuse(
        (
            f"{relative(path)}:{line}"
            for path in modules(PACKAGE / "queries")
            for line, name in imported(path)
            if imported_part(name) == "models"
        ),
        "queries may not know the models",
    )


def test_only_queries_execute_sql() -> None:
    """S2.8."""
    refuse(
        (
            f"{relative(path)}:{node.lineno}: .{node.func.attr}()"
            for path in modules()
            for node in calls(path)
            if part(path) != "queries"
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in EXECUTING
        ),
        "move it to django_pgjobs/queries",
    )


def test_modules_are_short() -> None:
    lengths = {
        relative(path): len(path.read_text().splitlines())
        for folder in (PACKAGE, ROOT / "example_project", ROOT / "tests")
        for path in modules(folder)
        if path.parent.name != "migrations"
    }
    refuse(
        (f"{name}: {lines} lines" for name, lines in lengths.items() if lines > LONGEST_MODULE),
        f"no module has more than {LONGEST_MODULE} lines, split it",
    )


def test_functions_are_short() -> None:
    refuse(
        (
            f"{relative(path)}:{node.lineno}: {node.name} has {lines} lines"
            for path in [*modules(), *modules(ROOT / "example_project")]
            for node in ast.walk(tree(path))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > LONGEST_FUNCTION
        ),
        f"no function has more than {LONGEST_FUNCTION} lines, split it",
    )


def test_the_name_of_a_class_means_one_thing() -> None:
    found: dict[str, list[str]] = {}
    for path in modules():
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and node.name not in GIVEN_NAMES:
                found.setdefault(node.name, []).append(f"{relative(path)}:{node.lineno}")
    refuse(
        (f"{name}: {', '.join(places)}" for name, places in found.items() if len(places) > 1),
        "two modules have a class of this name, say of each what it is",
    )


def exported(path: Path) -> Iterator[list[str]]:
    """Yield the value of `__all__`, if the module has one."""
    for node in tree(path).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(getattr(target, "id", "") == "__all__" for target in targets):
            yield ast.literal_eval(node.value)


def test_all_is_sorted() -> None:
    refuse(
        (
            relative(path)
            for path in modules()
            for names in exported(path)
            if names != sorted(set(names))
        ),
        "sort __all__",
    )


def revivals(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, name) of what imports, evaluates or prints where nothing may.

    A stored name is looked up among the declared tasks, never imported.
    """
    for line, name in imported(path):
        if name.split(".")[0] in FORBIDDEN_IMPORTS or name.endswith("import_string"):
            yield line, name
    for node in calls(path):
        name = call_name(node)
        is_forbidden = isinstance(node.func, ast.Name) and name in FORBIDDEN_CALLS
        is_unknown = name == "import_module" and relative(path) not in LOADS_BY_NAME
        if is_forbidden or is_unknown or name == "import_string":
            yield node.lineno, name


def test_nothing_is_revived_or_printed() -> None:
    refuse(
        (f"{relative(path)}:{line}: {name}" for path in modules() for line, name in revivals(path)),
        "nothing is unpickled, evaluated, imported by a stored name, or printed",
    )


def test_nothing_is_left_to_do() -> None:
    refuse(
        (
            f"{relative(path)}: {found[0]}"
            for path in sorted(PACKAGE.rglob("*"))
            if path.suffix in (".py", ".sql", ".html")
            and (found := re.search(r"\b(TODO|FIXME|XXX|HACK)\b", path.read_text()))
        ),
        "do it now or file it",
    )


def test_every_module_says_what_is_here() -> None:
    refuse(
        (
            relative(path)
            for path in modules()
            if not ast.get_docstring(tree(path))
            and path.parent.name != "migrations"
            # Packages that only Django asks for are empty.
            and (path.name != "__init__.py" or path.read_text().strip())
        ),
        "give the module a docstring",
    )


def test_public_functions_say_what_they_do() -> None:
    refuse(
        (
            f"{relative(path)}:{node.lineno}: {node.name}"
            for path in modules()
            for node in tree(path).body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and path.parent.name != "migrations"
            and is_explained_here(node)
            and not ast.get_docstring(node)
        ),
        "give it a docstring",
    )


def is_explained_here(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    """Return whether the definition needs a docstring: public, and not an @overload.

    A management command says it in `help`.
    """
    decorators = {getattr(decorator, "id", "") for decorator in node.decorator_list}
    is_public = not node.name.startswith("_") and node.name != "Command"
    return is_public and "overload" not in decorators


def check_ids() -> list[str]:
    """Return the id of every system check message made in the package, one per place."""
    return [
        keyword.value.value
        for path in modules()
        for node in calls(path)
        for keyword in node.keywords
        if keyword.arg == "id"
        and isinstance(keyword.value, ast.Constant)
        and str(keyword.value.value).startswith("pgjobs.")
    ]


def test_check_ids_are_unique() -> None:
    ids = check_ids()
    assert ids, "no check found: does the package still write id= in its checks?"
    assert [name for name, times in Counter(ids).items() if times > 1] == []
    assert [name for name in ids if not re.fullmatch(r"pgjobs\.[EW]\d{3}", name)] == []


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run *code* in a fresh interpreter without any Django settings."""
    inherited = {k: v for k, v in os.environ.items() if k != "DJANGO_SETTINGS_MODULE"}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=inherited | {"PYTHONPATH": str(ROOT)} | environment,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_package_imports_without_settings_or_models() -> None:
    code = (
        "import sys, django_pgjobs\n"
        "for name in django_pgjobs.__all__: getattr(django_pgjobs, name)\n"
        "from django.conf import settings\n"
        "assert not settings.configured\n"
        "loaded = [n for n in sys.modules if n.startswith('django_pgjobs')]\n"
        "bad = {'django_pgjobs.models', 'django_pgjobs.admin', 'django_pgjobs.worker'}\n"
        "assert not bad & set(loaded), loaded\n"
    )
    outcome = run_python(code)
    assert outcome.returncode == 0, outcome.stderr


def test_asgi_py_may_import_with_api_before_it_names_the_settings() -> None:
    """As `django-admin startproject` writes it, with all imports at the top."""
    code = (
        "from django_pgjobs.http.asgi import with_api\n"
        "from django.conf import settings\n"
        "assert not settings.configured\n"
    )
    outcome = run_python(code)
    assert outcome.returncode == 0, outcome.stderr


def test_a_module_imports_nothing_but_our_dependencies() -> None:
    """S2.5, S5.5."""
    known = sys.stdlib_module_names | DEPENDENCIES
    refuse(
        (
            f"{relative(path)}:{line}: {name}"
            for path in modules()
            for line, name in imported(path)
            if name.split(".")[0] not in known
        ),
        "import nothing but the standard library and our dependencies",
    )
