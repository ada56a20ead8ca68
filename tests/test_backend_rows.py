"""What get_result() makes of rows that other hands have written, or other code."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.db import connection
from psycopg import sql

from django_pgjobs import Task, UnknownTask, task
from django_pgjobs.results import exception_path, find_exception, stand_in
from django_pgjobs.testing import run_jobs
from tests import tasks
from tests.factories import make_job
from tests.models import Effect
from tests.test_backend_results import TaskResultMismatch, Unlucky

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "path", ["gone.tasks.removed", "undotted", "..", "a.b.<lambda>", "os.path.join", "ä'\"%s\n{"]
)
def test_the_result_of_an_unknown_task_has_a_stand_in(path: str) -> None:
    result_id = str(make_job(path, kwargs={"a": 1}))
    result = tasks.add.get_backend().get_result(result_id)
    assert result.kwargs == {"a": 1}
    assert isinstance(result.task, Task)
    assert result.task.name == path.rpartition(".")[2]
    with pytest.raises(UnknownTask, match="is declared in this process"):
        result.task.call(1, a=2)
    with pytest.raises(TaskResultMismatch):
        tasks.add.get_result(result_id)


def test_a_stand_in_is_no_task_to_enqueue() -> None:
    with pytest.raises(Exception, match=r"expected gone\.f to be a task"):
        stand_in("gone.f").enqueue()


def nested(levels: int) -> sql.SQL:
    """Return SQL of JSON lists in each other, as raw SQL can store them."""
    return sql.SQL(f"(repeat('[', {levels}) || repeat(']', {levels}))::json")


LONG_NUMBER = sql.SQL("('[1' || repeat('0', 5000) || ']')::json")


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"args": LONG_NUMBER}, ([], {}, None)),
        ({"args": nested(900)}, ([], {}, None)),
        ({"args": nested(5_000)}, ([], {}, None)),
        ({"args": {"a": 1}}, ([], {}, None)),
        ({"kwargs": ["a"]}, ([], {}, None)),
        ({"args": [1], "metadata": ["no dict"]}, ([1], {}, None)),
        ({"args": [1], "metadata": nested(900)}, ([1], {}, None)),
        ({"args": [1], "result": LONG_NUMBER}, ([1], {}, None)),
        ({"args": [1], "result": nested(900)}, ([1], {}, None)),
    ],
    ids=str,
)
def test_values_that_cannot_be_decoded_show_as_empty(
    columns: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    """A row that raw SQL made must not break who looks at it."""
    job_id = make_job("tests.tasks.echo", status="successful", **columns)
    result = tasks.echo.get_result(str(job_id))
    assert (result.args, result.kwargs, result.return_value) == expected


@pytest.mark.parametrize("errors", [{}, [], {"a": 1}, "text", 5, [1, "x", None, ["y"], {}]])
def test_errors_of_any_shape_can_be_read(errors: Any) -> None:
    """What is no list is from before the bound of the column."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER DOMAIN pgjobs_errors DROP CONSTRAINT pgjobs_errors_are_a_list")
    result = tasks.add.get_result(str(make_job(status="failed", errors=errors)))
    assert len(result.errors) == (len(errors) if isinstance(errors, list) else 0)
    for error in result.errors:
        assert isinstance(error.traceback, str)


def test_a_stored_class_path_is_looked_up_and_never_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever can write to the table must not be able to run a module."""
    canary = tmp_path / "canary_of_errors.py"
    canary.write_text("class Boom(Exception): ...")
    monkeypatch.syspath_prepend(tmp_path)
    entries = [
        {"exception_class": path, "message": "m", "traceback": "t"}
        for path in ("canary_of_errors.Boom", "os.getcwd", "builtins.int", "", "builtins.KeyError")
    ]
    result = tasks.add.get_result(str(make_job(status="failed", errors=entries)))
    outside, *others, empty, known = result.errors
    assert outside.exception_class_path == "canary_of_errors.Boom"
    with pytest.raises(ImportError, match=r"'canary_of_errors.Boom' is not loaded. Import it"):
        _ = outside.exception_class
    assert "canary_of_errors" not in sys.modules
    for error in others:
        with pytest.raises(ValueError, match="does not reference a valid exception"):
            _ = error.exception_class
    with pytest.raises(ImportError):
        _ = empty.exception_class
    assert known.exception_class is KeyError


class Api:
    """A client, with its exceptions inside, as many libraries have them."""

    class RateLimited(Exception):
        """Come back later."""

    class Deep:
        """Has one of its own."""

        class Closed(OSError):
            """Gone."""

    limit = 5


class OtherApi(Api):
    """Inherits them."""


@task(max_attempts=1)
def end_with(name: str) -> None:
    """Raise an exception that is defined in a class."""
    if name == "model":
        Effect.objects.get(pk=-1)
    if name == "inherited":
        raise OtherApi.RateLimited("slow down")
    raise Api.Deep.Closed("nobody there")


@pytest.mark.parametrize(
    ("name", "path", "found"),
    [
        ("model", "tests.models.Effect.DoesNotExist", Effect.DoesNotExist),
        ("inherited", "tests.test_backend_rows.Api.RateLimited", Api.RateLimited),
        ("deep", "tests.test_backend_rows.Api.Deep.Closed", Api.Deep.Closed),
    ],
)
def test_a_class_within_classes_is_stored_with_its_dots_and_found_again(
    name: str, path: str, found: type[Exception]
) -> None:
    """Issue 13, point 5: it was stored as its nearest base in a module."""
    job = end_with.enqueue(name)
    run_jobs()
    [error] = end_with.get_result(job.id).errors
    assert error.exception_class_path == path
    assert error.exception_class is found


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("tests.test_backend_rows.Api", ValueError),
        ("tests.test_backend_rows.Api.limit", ValueError),
        ("tests.test_backend_rows.Api.limit.real", ValueError),
        ("tests.test_backend_rows.Api.Nothing", ValueError),
        ("tests.test_backend_rows.Nothing", ValueError),
        ("tests.test_backend_rows.nothing.Error", ImportError),
        ("tests.nothing.Api.RateLimited", ImportError),
        ("KeyError", ImportError),
        (".", ImportError),
        ("..KeyError", ImportError),
        ("a." * 500_000 + "KeyError", ImportError),
    ],
)
def test_a_path_that_leads_to_no_exception_says_so(path: str, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        find_exception(path)
    assert len(str(caught.value)) < 300


def test_an_inherited_class_is_found_under_the_name_of_its_heir() -> None:
    """A raw row may say so."""
    assert find_exception("tests.test_backend_rows.OtherApi.RateLimited") is Api.RateLimited


def test_looking_for_a_class_runs_no_code_of_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not its `__getattr__`, by which many packages import on demand, and no lazy object."""

    def refuse(name: str) -> None:
        raise AssertionError(f"somebody asked for {name}")

    class Lazy:
        @property
        def __class__(self) -> Any:
            raise AssertionError("somebody asked what it is")

    module = ModuleType("lazy_package")
    vars(module).update(__getattr__=refuse, thing=Lazy())
    monkeypatch.setitem(sys.modules, "lazy_package", module)
    spec = importlib.util.spec_from_file_location("late_module", Path(__file__).parent / "no.py")
    assert spec and spec.loader
    spec.loader = importlib.util.LazyLoader(spec.loader)
    late = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "late_module", late)
    spec.loader.exec_module(late)
    for path in ("lazy_package.Error", "lazy_package.thing", "lazy_package.thing.Error"):
        with pytest.raises((ValueError, ImportError)):
            find_exception(path)
    with pytest.raises(ValueError, match="valid exception"):
        find_exception("late_module.Error")


def test_only_classes_that_can_be_found_again_are_stored_by_name() -> None:
    class Local(LookupError):
        """Has `<locals>` in its name."""

    disguised = type("KeyError", (ValueError,), {"__module__": "builtins"})
    assert exception_path(KeyError) == "builtins.KeyError"
    assert exception_path(Unlucky) == "tests.test_backend_results.Unlucky"
    assert exception_path(Local) == "builtins.LookupError"
    assert exception_path(disguised) == "builtins.ValueError"
    assert exception_path(type("X", (BaseException,), {"__module__": "no.such"})) == (
        "builtins.BaseException"
    )
