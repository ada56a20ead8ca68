"""What `manage.py check` finds before a job is enqueued."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.conf import settings
from django.core import checks as django_checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.test import override_settings

from django_pgjobs import checks, task
from django_pgjobs.backend import PgJobsBackend
from django_pgjobs.compat import TASKS_PACKAGE, InvalidTask, task_backends
from django_pgjobs.declaring.own_tasks import EXAMPLE, find_alias
from django_pgjobs.queries import database
from tests import tasks as plain_tasks

BACKEND = "django_pgjobs.backend.PgJobsBackend"


class JobsElsewhere:
    """A router that puts the jobs into a database of their own."""

    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        return "jobs" if model._meta.app_label == "pgjobs" else None


class EverythingElsewhere:
    """A router that puts everything into one other database."""

    def db_for_write(self, model: Any, **hints: Any) -> str:
        return "jobs"


@pytest.fixture
def two_databases(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks see two databases, `default` and `jobs`."""
    monkeypatch.setattr(checks, "settings", SimpleNamespace(DATABASES={"default": {}, "jobs": {}}))


@pytest.fixture
def make_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Return a function that makes a module that can be imported."""
    monkeypatch.syspath_prepend(tmp_path)
    return lambda name, text: (tmp_path / f"{name}.py").write_text(text) and None


def ids(messages: list[django_checks.CheckMessage]) -> list[str | None]:
    """Return the ids of messages."""
    return [message.id for message in messages]


def test_a_key_in_lower_case_is_known_in_upper_case() -> None:
    with override_settings(PGJOBS={"max_attempts": 5}):
        [message] = checks.check_settings()
    assert message.hint == "Did you mean MAX_ATTEMPTS?"


def test_the_settings_of_the_tests_are_clean() -> None:
    assert [m for m in django_checks.run_checks() if str(m.id).startswith("pgjobs")] == []


def test_every_wrong_key_is_an_error_with_its_remedy() -> None:
    with override_settings(PGJOBS={"LEASE_SECOND": 5, "PROCESSES": "two"}):
        unknown, wrong = checks.check_settings()
    assert (unknown.id, unknown.level) == ("pgjobs.E002", django_checks.ERROR)
    assert (unknown.msg, unknown.hint) == (
        "unknown key 'LEASE_SECOND' in PGJOBS.",
        "Did you mean LEASE_SECONDS?",
    )
    assert "to be a whole number from 1 to 256, got 'two'" in wrong.msg


class OwnOptions(PgJobsBackend):
    """A project's own backend, with an option of its own."""

    known_options = PgJobsBackend.known_options | {"TENANT"}


WRONG_BACKENDS: dict[str, tuple[dict[str, Any], str, str]] = {
    "key": (
        {"QUEUE": []},
        "unknown key 'QUEUE' in TASKS['default'].",
        "Did you mean QUEUES? Known: BACKEND, OPTIONS, QUEUES.",
    ),
    "option": (
        {"OPTIONS": {"MAX_ATTEMPTS": 5}},
        "unknown key 'MAX_ATTEMPTS' in TASKS['default']['OPTIONS'].",
        "Did you mean FOREIGN_MAX_ATTEMPTS? Known: FOREIGN_MAX_ATTEMPTS.",
    ),
    "strange option": (
        {"OPTIONS": {7: 5}},
        "unknown key 7 in TASKS['default']['OPTIONS'].",
        "Known: FOREIGN_MAX_ATTEMPTS.",
    ),
    "value": (
        {"OPTIONS": {"FOREIGN_MAX_ATTEMPTS": 0}},
        (
            "expected TASKS['default']['OPTIONS']['FOREIGN_MAX_ATTEMPTS'] to be a whole number "
            "from 1 to 1000000, got 0."
        ),
        "See docs/settings.md.",
    ),
    "no dict": (
        {"OPTIONS": None},
        "expected TASKS['default']['OPTIONS'] to be a dict, got None.",
        "See docs/settings.md.",
    ),
    "one queue": (
        {"QUEUES": "mail"},
        "expected TASKS['default']['QUEUES'] to be a list of names of 1 to 128 bytes, got 'mail'.",
        "Write [] to allow any name.",
    ),
    "long queue": (
        {"QUEUES": ["ä" * 65]},
        (
            "expected TASKS['default']['QUEUES'] to be a list of names of 1 to 128 bytes, got "
            f"{['ä' * 65]!r}."
        ),
        "Write [] to allow any name.",
    ),
}


@pytest.mark.parametrize("name", WRONG_BACKENDS)
def test_what_our_backend_does_not_know_in_tasks_is_an_error(name: str) -> None:
    """Issue 13, point 6."""
    params, fact, hint = WRONG_BACKENDS[name]
    with override_settings(TASKS={"default": {"BACKEND": BACKEND, **params}}):
        [message] = checks.check_settings()
    assert (message.id, message.msg, message.hint) == ("pgjobs.E002", fact, hint)


def test_what_other_backends_know_in_tasks_is_theirs() -> None:
    """A subclass says which options it adds; a backend that cannot be imported is Django's."""
    options = {"FOREIGN_MAX_ATTEMPTS": 5, "TENANT": "a"}
    aliases = {
        "default": {"BACKEND": f"{__name__}.OwnOptions", "QUEUES": ["a"], "OPTIONS": options},
        "other": {
            "BACKEND": f"{TASKS_PACKAGE}.backends.dummy.DummyBackend",
            "OPTIONS": {"anything": 1},
            "MORE": 1,
        },
        "missing": {"BACKEND": "no_such_package.Backend", "MORE": 1},
        "without": {"MORE": 1},
    }
    with override_settings(TASKS=aliases):
        assert checks.check_settings() == []


def narrow(user: Any, permission: str, jobs: Any) -> Any:
    """Narrow nothing, as a function for PGJOBS["ADMIN_PERMISSION"] may."""
    return True


def narrow_of_defaults(user: Any, permission: str = "", jobs: Any = None, *more: Any) -> Any:
    """Do the same, with arguments that may be left out."""
    return True


partial = functools.partial(narrow_of_defaults, permission="")
method = JobsElsewhere().db_for_write
no_function = "text"


def takes_two(user: Any, jobs: Any) -> bool:
    """Take an argument too few."""
    return True


def needs_a_keyword(user: Any, permission: str, jobs: Any, *, tenant: str) -> bool:
    """Need what nobody gives."""
    return True


async def narrow_later(user: Any, permission: str, jobs: Any) -> bool:
    """Return what is true whatever it comes to."""
    return False


class Narrowing:
    """A callable object whose call is a coroutine."""

    async def __call__(self, user: Any, permission: str, jobs: Any) -> bool:
        return False


later_object = Narrowing()

WRONG_HOOKS = {
    "no_such_package.hook": "cannot be imported: ModuleNotFoundError: No module named 'no_such",
    f"{__name__}.no_such_name": "is nothing that can be called, but ",
    f"{__name__}.no_function": "is nothing that can be called, but ",
    ".hook": "cannot be imported: ValueError",
    "..hook": "cannot be imported: ",
    f"{__name__}.takes_two": "cannot be called with (user, permission, jobs): too many pos",
    f"{__name__}.needs_a_keyword": "(user, permission, jobs): missing a required",
    f"{__name__}.partial": "cannot be called with (user, permission, jobs): too many pos",
    f"{__name__}.narrow_later": "is asynchronous",
    f"{__name__}.later_object": "is asynchronous",
}


@pytest.mark.parametrize("path", WRONG_HOOKS)
def test_a_function_for_the_admin_that_cannot_be_called_is_an_error(path: str) -> None:
    with override_settings(PGJOBS={"ADMIN_PERMISSION": path}):
        [message] = checks.check_dotted_paths()
    assert (message.id, message.level) == ("pgjobs.E004", django_checks.ERROR)
    assert message.msg.startswith(f"PGJOBS['ADMIN_PERMISSION'] names {path!r}, which ")
    assert WRONG_HOOKS[path] in message.msg
    assert message.hint and "jobs_of(user, permission, jobs)" in message.hint


@pytest.mark.parametrize("name", ["narrow", "narrow_of_defaults"])
def test_a_function_for_the_admin_that_can_be_called_is_none(name: str) -> None:
    with override_settings(PGJOBS={"ADMIN_PERMISSION": f"{__name__}.{name}"}):
        assert checks.check_dotted_paths() == []


def test_a_module_that_raises_at_import_is_an_error_with_its_reason(
    make_module: Callable[[str, str], None],
) -> None:
    make_module("raising_tasks", "1 / 0")
    make_module("unreadable_tasks", "def (")
    names = ["raising_tasks", "no_such_tasks", "unreadable_tasks", "tests.tasks"]
    with override_settings(PGJOBS={"TASK_MODULES": names}):
        found = checks.check_dotted_paths()
    assert ids(found) == ["pgjobs.E004"] * 3
    assert [message.msg for message in found[:2]] == [
        (
            "PGJOBS['TASK_MODULES'] names 'raising_tasks', which cannot be imported: "
            "ZeroDivisionError: division by zero"
        ),
        (
            "PGJOBS['TASK_MODULES'] names 'no_such_tasks', which cannot be imported: "
            "ModuleNotFoundError: No module named 'no_such_tasks'"
        ),
    ]
    assert "SyntaxError" in found[2].msg
    assert found[0].hint and "modules that can be imported" in found[0].hint


def test_wrong_settings_are_told_once() -> None:
    """What their values lead to is not looked at before they are right."""
    for value in ({"ADMIN_PERMISSION": 5, "TASK_MODULES": "a.b"}, ["text"]):
        with override_settings(PGJOBS=value):
            assert checks.check_dotted_paths() == []
            assert checks.check_settings() != []


def test_the_command_check_fails_for_a_wrong_setting() -> None:
    with override_settings(PGJOBS={"LISTEN": 1}):
        with pytest.raises(SystemCheckError, match=r"pgjobs\.E002.*True or False, got 1"):
            call_command("check")


def test_checks_ask_nothing_of_the_database() -> None:
    """They run before the first migrate too; without `django_db` any query would fail."""
    call_command("check", verbosity=0)


def test_a_database_that_is_not_postgresql_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = SimpleNamespace(vendor="sqlite")
    monkeypatch.setattr(database, "connections", {"default": connection})
    [message] = checks.check_vendor()
    assert message.id == "pgjobs.E003"
    assert "'default', which is sqlite and not PostgreSQL" in message.msg
    assert message.hint and "django.db.backends.postgresql" in message.hint


@pytest.mark.usefixtures("two_databases")
def test_jobs_apart_from_the_data_are_a_warning() -> None:
    with override_settings(DATABASE_ROUTERS=[JobsElsewhere()]):
        [message] = checks.check_router()
    assert (message.id, message.level) == ("pgjobs.W001", django_checks.WARNING)
    assert "jobs go to the database 'jobs', but tests.Effect, shop.Customer" in message.msg
    assert " more to another one" in message.msg


@pytest.mark.usefixtures("two_databases")
def test_jobs_beside_the_data_are_no_warning_in_whatever_database() -> None:
    with override_settings(DATABASE_ROUTERS=[EverythingElsewhere()]):
        assert checks.check_router() == []
    assert checks.check_router() == []


def test_with_one_database_no_router_is_asked() -> None:
    with override_settings(DATABASE_ROUTERS=[JobsElsewhere()]):
        assert checks.check_router() == []


def test_a_backend_without_its_app_is_an_error() -> None:
    backend = PgJobsBackend(alias="jobs", params={})
    assert backend.check() == []
    with override_settings(INSTALLED_APPS=["django.contrib.contenttypes"]):
        [message] = backend.check()
    assert message.id == "pgjobs.E001"
    assert message.msg == "TASKS['jobs'] uses PgJobsBackend, but its app is not installed."
    assert message.hint and "INSTALLED_APPS" in message.hint


def test_every_alias_that_uses_the_backend_is_checked() -> None:
    aliases = {name: {"BACKEND": BACKEND} for name in ("default", "second")}
    with override_settings(TASKS=aliases, INSTALLED_APPS=[]):
        found = [message for backend in task_backends.all() for message in backend.check()]
    assert ids(found) == ["pgjobs.E001"] * 2


IMMEDIATE = f"{TASKS_PACKAGE}.backends.immediate.ImmediateBackend"


@pytest.mark.parametrize(
    "aliases", [{"default": {"BACKEND": IMMEDIATE}}, {"mail": {"BACKEND": IMMEDIATE}}]
)
def test_an_app_that_no_alias_uses_is_a_warning(aliases: dict[str, Any]) -> None:
    """Jobs would run in the process that enqueues them, in silence."""
    with override_settings(TASKS=aliases):
        [warning] = checks.check_backends()
    assert (warning.id, warning.level) == ("pgjobs.W004", django_checks.WARNING)
    [alias] = aliases
    assert f"no alias of TASKS uses django_pgjobs ({alias!r} is ImmediateBackend)" in warning.msg
    assert warning.hint == (
        'Write TASKS = {"default": {"BACKEND": "django_pgjobs.backend.PgJobsBackend", '
        '"QUEUES": []}}.'
    )


def test_a_queue_without_a_backend_of_ours_says_what_tasks_lacks() -> None:
    """A project that has not set TASKS fails at the import of its first task with a queue."""
    with (
        override_settings(TASKS={"default": {"BACKEND": IMMEDIATE}}),
        pytest.raises(InvalidTask) as caught,
    ):
        task(queue_name="mail")(plain_tasks.add.func)
    assert str(caught.value) == (
        "@task add expected queue_name to be one of ['default'], got 'mail': 'default' in TASKS is "
        'ImmediateBackend. Write TASKS = {"default": {"BACKEND": '
        '"django_pgjobs.backend.PgJobsBackend", "QUEUES": []}}.'
    )


def test_a_project_without_tasks_is_warned() -> None:
    with override_settings(TASKS={}):
        del settings.TASKS
        [warning] = checks.check_backends()
    assert warning.id == "pgjobs.W004"


@pytest.mark.parametrize(
    ("aliases", "named"), [({}, "nothing"), ({"mail": {"BACKEND": IMMEDIATE}}, "'mail'")]
)
def test_without_a_default_alias_our_own_tasks_say_what_to_write(
    aliases: dict[str, Any], named: str
) -> None:
    """They are declared when the admin is loaded, before any check."""
    with override_settings(TASKS=aliases), pytest.raises(ImproperlyConfigured) as caught:
        find_alias()
    assert str(caught.value) == f"TASKS names {named}. django_pgjobs needs {EXAMPLE}."


class OwnBackend(PgJobsBackend):
    """One of a project."""


@pytest.mark.parametrize("backend", [BACKEND, f"{__name__}.OwnBackend"])
def test_one_alias_that_uses_it_is_enough(backend: str) -> None:
    with override_settings(TASKS={"default": {"BACKEND": IMMEDIATE}, "jobs": {"BACKEND": backend}}):
        assert checks.check_backends() == []


def test_a_backend_that_is_not_there_is_left_to_django() -> None:
    with override_settings(TASKS={"default": {"BACKEND": "no.such.Backend"}}):
        assert checks.check_backends() == []
