"""What `manage.py check` finds before a job is enqueued."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from django.core import checks as django_checks
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.test import override_settings

from django_pgjobs import checks
from django_pgjobs.backend import PgJobsBackend
from django_pgjobs.compat import task_backends

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


def ids(messages: list[django_checks.CheckMessage]) -> list[str | None]:
    """Return the ids of messages."""
    return [message.id for message in messages]


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


def test_the_command_check_fails_for_a_wrong_setting() -> None:
    with override_settings(PGJOBS={"LISTEN": 1}):
        with pytest.raises(SystemCheckError, match=r"pgjobs\.E002.*True or False, got 1"):
            call_command("check")


def test_checks_ask_nothing_of_the_database() -> None:
    """They run before the first migrate too; without `django_db` any query would fail."""
    call_command("check", verbosity=0)


def test_a_database_that_is_not_postgresql_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = SimpleNamespace(vendor="sqlite")
    monkeypatch.setattr(checks, "connections", {"default": connection})
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
