"""The rules of the house that a machine can keep: layers, sizes, words, what is shipped."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests import helpers

ROOT = helpers.ROOT
PACKAGE = ROOT / "django_pgjobs"

# A module imports its own layer or lower ones. Names are those directly under django_pgjobs.
LAYERS = {
    0: (
        "choosing compat conf cron exceptions keys moments options payload redaction retries"
        " signals signatures status version"
    ),
    1: "controls failure_groups fields migrations operations sql subjects",
    2: "queries",
    3: (
        "__init__ client columns context control dependencies enqueueing grants merging"
        " rate_limits registry results schedules selecting tasks workflows"
    ),
    4: "bulk explain models permissions worker",
    5: "admin apps backend checks management metrics templatetags testing urls views",
}
LAYER_OF = {name: layer for layer, names in LAYERS.items() for name in names.split()}

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
DEPENDENCIES = {"django_pgjobs", "django", "asgiref", "psycopg", "rangefilter", "django_tasks"}
FORBIDDEN_IMPORTS = {"marshal", "pickle", "shelve", "dill", "yaml"}
FORBIDDEN_CALLS = {"eval", "exec", "print", "breakpoint", "__import__"}
# Where a module may be loaded by name, and whose name that is.
LOADS_BY_NAME = {
    "compat.py": "the name of django.tasks or its backport, a constant",
    "registry.py": "the setting TASK_MODULES, the tasks.py of installed apps, and our own",
}


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


def part(path: Path) -> str:
    """Return the name under django_pgjobs to which the file belongs: module or folder."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


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
    """Return the part of the package that *name* leads to, None for other packages."""
    words = name.split(".")
    if words[0] != "django_pgjobs":
        return None
    is_part = len(words) > 1 and any(
        (PACKAGE / f"{words[1]}{end}").exists() for end in (".py", "/__init__.py")
    )
    return words[1] if is_part else "__init__"


def calls(path: Path) -> Iterator[ast.Call]:
    """Yield every call in the module."""
    return (node for node in ast.walk(tree(path)) if isinstance(node, ast.Call))


def test_every_module_has_a_layer() -> None:
    unknown = {part(path) for path in modules()} - set(LAYER_OF)
    assert not unknown, f"give {sorted(unknown)} a layer in LAYERS"


@pytest.mark.parametrize("path", modules(), ids=relative)
def test_a_module_imports_its_own_layer_or_lower(path: Path) -> None:
    own = LAYER_OF[part(path)]
    for line, name in imported(path):
        target = imported_part(name)
        if target is not None:
            assert LAYER_OF[target] <= own, (
                f"{relative(path)}:{line}: layer {own} imports {name} of layer {LAYER_OF[target]}"
            )


@pytest.mark.parametrize("path", modules(PACKAGE / "queries"), ids=relative)
def test_queries_do_not_import_models(path: Path) -> None:
    assert "models" not in {imported_part(name) for _, name in imported(path)}


@pytest.mark.parametrize("path", modules(), ids=relative)
def test_only_queries_execute_sql(path: Path) -> None:
    if part(path) == "queries":
        return
    found = [
        f"line {node.lineno}: .{call_name(node)}()"
        for node in calls(path)
        if isinstance(node.func, ast.Attribute) and node.func.attr in EXECUTING
    ]
    assert not found, f"{relative(path)}: {found}; move it to django_pgjobs/queries"


@pytest.mark.parametrize(
    "path",
    [*modules(), *modules(ROOT / "example_project"), *modules(ROOT / "tests")],
    ids=relative,
)
def test_modules_are_short(path: Path) -> None:
    if path.parent.name == "migrations":
        return
    lines = len(path.read_text().splitlines())
    assert lines <= LONGEST_MODULE, f"{relative(path)} has {lines} lines: split it"


@pytest.mark.parametrize("path", [*modules(), *modules(ROOT / "example_project")], ids=relative)
def test_functions_are_short(path: Path) -> None:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= LONGEST_FUNCTION, (
                f"{relative(path)}:{node.lineno}: {node.name} has {lines} lines: split it"
            )


@pytest.mark.parametrize("path", modules(), ids=relative)
def test_all_is_sorted(path: Path) -> None:
    for node in tree(path).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(getattr(target, "id", "") == "__all__" for target in targets):
            names = ast.literal_eval(node.value)
            assert names == sorted(set(names)), f"{relative(path)}: sort __all__"


@pytest.mark.parametrize("path", modules(), ids=relative)
def test_nothing_is_revived_or_printed(path: Path) -> None:
    for line, name in imported(path):
        assert name.split(".")[0] not in FORBIDDEN_IMPORTS, f"{relative(path)}:{line}: {name}"
        # A stored name is looked up among the declared tasks, never imported.
        assert not name.endswith("import_string"), f"{relative(path)}:{line}: {name}"
    for node in calls(path):
        where = f"{relative(path)}:{node.lineno}"
        assert not (isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS), where
        assert call_name(node) != "import_string", where
        if call_name(node) == "import_module":
            assert relative(path).removeprefix("django_pgjobs/") in LOADS_BY_NAME, where


@pytest.mark.parametrize(
    "path",
    [path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".sql", ".html")],
    ids=relative,
)
def test_nothing_is_left_to_do(path: Path) -> None:
    found = re.search(r"\b(TODO|FIXME|XXX|HACK)\b", path.read_text())
    assert not found, f"{relative(path)}: {found}"


@pytest.mark.parametrize("path", modules(), ids=relative)
def test_every_module_says_what_is_here(path: Path) -> None:
    is_a_folder_of_django = path.name == "__init__.py" and not path.read_text().strip()
    is_a_migration = path.parent.name == "migrations"
    assert is_a_folder_of_django or is_a_migration or ast.get_docstring(tree(path))


@pytest.mark.parametrize("path", modules(), ids=relative)
def test_public_functions_say_what_they_do(path: Path) -> None:
    for node in tree(path).body:
        is_public = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if is_public and is_explained_here(node) and path.parent.name != "migrations":
            assert ast.get_docstring(node), f"{relative(path)}:{node.lineno}: {node.name}"


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


@pytest.mark.parametrize("path", modules(), ids=relative)
def test_a_module_imports_nothing_but_our_dependencies(path: Path) -> None:
    for line, name in imported(path):
        top = name.split(".")[0]
        is_known = top in sys.stdlib_module_names or top in DEPENDENCIES
        assert is_known, f"{relative(path)}:{line}: {name} is no dependency of ours"


def test_the_wheel_contains_only_our_files(tmp_path: Path) -> None:
    if importlib.util.find_spec("hatchling") is None:
        helpers.skip("hatchling is not installed (pip install hatchling)")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        shipped = {name for name in archive.namelist() if ".dist-info/" not in name}
        [license_file] = [name for name in archive.namelist() if name.endswith("/LICENSE")]
        assert b"MIT License" in archive.read(license_file)
    ours = {
        relative(path)
        for path in PACKAGE.rglob("*")
        if path.is_file() and not re.search(r"/(__pycache__|\..*)/", str(path))
    }
    assert shipped == ours
    assert "django_pgjobs/py.typed" in shipped
    suffixes = {Path(name).suffix for name in shipped}
    assert suffixes <= {".py", ".sql", ".typed", ".html", ".css", ".js", ".svg", ".po", ".mo"}
