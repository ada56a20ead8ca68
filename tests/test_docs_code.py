"""The code on the pages of the docs is run: Python and SQL, block after block.

What a page takes for granted is in `tests/docs_world.py`. A block that cannot be run here has
`<!-- not executed: why -->` above it. A value in a comment, as in `call()  # False`, is compared.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
import tokenize
import unittest
from collections.abc import Iterator
from copy import deepcopy
from datetime import datetime, timedelta
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import django
import pytest
from django.conf import settings as project_settings
from django.contrib import admin
from django.core.checks import run_checks
from django.db import connection
from django.db.models import Model
from django.test import override_settings

from django_pgjobs import compat, signals
from django_pgjobs.control.rate_limits import create_declared_limits
from django_pgjobs.declaring import registry, schedules
from django_pgjobs.http import calling
from django_pgjobs.http.posting import Answer
from django_pgjobs.models import Job
from django_pgjobs.testing import run_jobs, simulated_time
from tests.helpers import ROOT
from tests.test_docs import CODE_BLOCK, PAGES

pytestmark = pytest.mark.django_db

WORLD = ROOT / "tests" / "docs_world.py"
EXCUSE = re.compile(r"<!-- not executed: \S.*? -->\n(<!-- .*? -->\n)?\Z")
MODULE = re.compile(r"# (\w+(?:/\w+)*)\.py\n")
SETTINGS = ("PGJOBS", "TASKS", "DATABASES")
# Names of modules that code on a page says it is in.
MODULES = ("shop.permissions", "shop.signup", "shop.payments")


CALLBACKS = {"CALLBACK_HOSTS": ["hooks.example.com"], "CALLBACK_SECRET": "x" * 32}


class Block(NamedTuple):
    """Code on a page, and the line that it begins at."""

    language: str
    code: str
    line: int


def blocks_of(page: Path) -> Iterator[Block]:
    """Yield the code of a page that is to be run."""
    text = page.read_text()
    for found in CODE_BLOCK.finditer(text):
        before = text[: found.start()]
        if found[1] in ("python", "sql") and not EXCUSE.search(before):
            yield Block(found[1], found[2], before.count("\n") + 1)


WITH_CODE = [page for page in PAGES if any(blocks_of(page))]


@pytest.fixture(autouse=True)
def _what_pages_change(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    """Let the next test find the process as it was: tasks, sites, receivers, modules."""
    if django.VERSION >= (6, 1):
        settings.MAILERS = {"default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}
    # No page calls another machine.
    settings.PGJOBS = {**settings.PGJOBS, **CALLBACKS}
    monkeypatch.setattr(calling, "post", lambda *given: Answer(204, None))
    monkeypatch.setattr(registry, "_found", {})
    monkeypatch.setattr(schedules, "_declared", {})
    assert admin.site.is_registered(Job)
    site = admin.site._wrapped  # type: ignore[attr-defined]
    registered = {model: ours for model, ours in site._registry.items() if is_ours(model)}
    monkeypatch.setattr(site, "_registry", registered)
    monkeypatch.setattr(signals.admin_action_performed, "receivers", [])
    if compat.TASKS_PACKAGE != "django.tasks":
        monkeypatch.setitem(sys.modules, "django.tasks", sys.modules[compat.TASKS_PACKAGE])


def is_ours(model: type[Model]) -> bool:
    """Is it a model of the package?"""
    return model._meta.app_label == "pgjobs"


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The shop that all pages are about, as the module `shop.tasks`."""
    spec = importlib.util.spec_from_file_location("shop.tasks", WORLD)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "shop", ModuleType("shop"))
    monkeypatch.setitem(sys.modules, "shop.tasks", module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
def test_the_code_on_a_page_runs(
    page: Path, world: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its jobs run, too, its settings pass the checks, its tests pass."""
    module = run_page(page, world, monkeypatch)
    for alias in module.DATABASES.keys() - project_settings.DATABASES.keys():
        monkeypatch.setitem(project_settings.DATABASES, alias, module.DATABASES[alias])
    with override_settings(PGJOBS=module.PGJOBS, TASKS=module.TASKS, ROOT_URLCONF="shop.tasks"):
        assert run_checks() == []
        create_declared_limits(sender=None, using="default")
        run_jobs()
        assert [job.errors for job in Job.objects.filter(status="failed")] == []
        run_test_cases(module)


# On its page, in Kathmandu: what is due in the first three days of 2027, a Friday.
TIMES = {
    "shop.docs_schedules.clean_up": ["01 02:30"],
    "shop.docs_schedules.nightly_report": ["01 03:00", "02 03:00", "03 03:00"],
    "monthly report": ["01 09:00"],
    # It starts with the year in Greenwich, when the day has begun in Kathmandu.
    "once": ["02 00:00"],
}


def test_crontab_and_beat_of_the_page_are_due_at_their_times(
    world: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the page says to write instead of lines of a crontab, and of entries of Celery beat."""
    run_page(ROOT / "docs" / "schedules.md", world, monkeypatch)
    zone = ZoneInfo(project_settings.TIME_ZONE)
    with simulated_time(datetime(2026, 12, 31, 23, 59, tzinfo=zone), schedules=TIMES) as clock:
        clock.advance(timedelta(days=3))
    found: dict[str, list[str]] = {name: [] for name in TIMES}
    for job in Job.objects.exclude(schedule=None).order_by("id"):
        assert (job.status, job.errors) == ("successful", [])
        found[job.schedule].append(f"{job.scheduled_for.astimezone(zone):%d %H:%M}")
    assert found == TIMES
    with simulated_time(schedules=["sync"]) as clock:
        assert clock.advance(timedelta(minutes=5)) == 10


def run_page(page: Path, world: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Run all code of a page in a module of its own, and return that."""
    module = ModuleType(f"shop.docs_{page.stem.replace('-', '_')}")
    for name in (module.__name__, *MODULES):
        monkeypatch.setitem(sys.modules, name, module)
    module.__dict__.update(
        {name: deepcopy(getattr(project_settings, name)) for name in SETTINGS},
        **{name: value for name, value in vars(world).items() if not name.startswith("__")},
        **world.prepare(page.stem),
    )
    for block in blocks_of(page):
        run_block(page, block, module, monkeypatch)
    return module


def run_block(
    page: Path, block: Block, module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run the code of a block; one that begins with `# shop/tasks.py` is that module."""
    if block.language == "sql":
        with connection.cursor() as cursor:
            # The test is a transaction, in which this word is not allowed.
            cursor.execute(block.code.replace(" CONCURRENTLY", ""))
        return
    if named := MODULE.match(block.code):
        name = named[1].replace("/", ".")
        module = ModuleType(name)
        module.__dict__.update(vars(sys.modules["shop.tasks"]), __name__=name)
        monkeypatch.setitem(sys.modules, name, module)
    source = "\n" * block.line + block.code
    told = values_in_comments(source)
    for statement in ast.parse(source).body:
        flags: dict[str, Any] = {"filename": str(page), "dont_inherit": True}
        if isinstance(statement, ast.Expr) and statement.end_lineno in told:
            value = eval(
                compile(ast.Expression(statement.value), mode="eval", **flags), vars(module)
            )
            assert value == told[statement.end_lineno], f"{page.name}:{statement.lineno}"
        else:
            whole = ast.Module([statement], type_ignores=[])
            exec(compile(whole, mode="exec", **flags), vars(module))


def values_in_comments(source: str) -> dict[int, object]:
    """Return line -> the value that its comment says."""
    told = {}
    for token in tokenize.generate_tokens(StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            try:
                told[token.start[0]] = ast.literal_eval(token.string.lstrip("# "))
            except (SyntaxError, ValueError):
                continue
    return told


def run_test_cases(module: ModuleType) -> None:
    """Run the tests that the page shows."""
    for case in list(vars(module).values()):
        if getattr(case, "__module__", "") == module.__name__ and hasattr(case, "assertEqual"):
            tests = unittest.defaultTestLoader.loadTestsFromTestCase(case)
            output = StringIO()
            result = unittest.TextTestRunner(output).run(tests)
            assert result.testsRun and result.wasSuccessful(), output.getvalue()
