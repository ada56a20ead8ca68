"""The page System: sizes, the oldest transaction, settings, and what to paste into a report."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import Permission, User
from django.core.checks import Warning as CheckWarning
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext, override_settings
from django.urls import reverse

from django_pgjobs.admin.system import facts
from django_pgjobs.admin.system.facts import gather
from django_pgjobs.queries.system import TransactionRow
from tests.factories import make_jobs
from tests.helpers import backend_pid

pytestmark = pytest.mark.django_db

ADDRESS = "admin:pgjobs_job_system"


def read(client: Client) -> str:
    """Return the text of the page."""
    response = client.get(reverse(ADDRESS))
    assert response.status_code == 200
    return response.content.decode()


def diagnostics(text: str) -> str:
    """Return what the button copies, as it is in the page."""
    found = re.search(r'<textarea id="pgjobs-diagnostics"[^>]*>(.*?)</textarea>', text, re.DOTALL)
    assert found
    return found[1]


def test_the_page_measures_our_tables(admin_client: Client) -> None:
    make_jobs(10)
    text = read(admin_client)
    for name in ("pgjobs_job_live", "pgjobs_job_finished", "pgjobs_worker", "pgjobs_job_by_end"):
        assert name in text
    tables = {table.name for table in gather().tables}
    assert "auth_user" not in tables


def test_the_page_stays_within_its_budget(admin_client: Client) -> None:
    with CaptureQueriesContext(connection) as queries:
        text = read(admin_client)
    assert len(queries) <= 12
    assert len(text.encode()) < 150_000


@pytest.mark.django_db(transaction=True)
def test_a_transaction_that_is_open_for_long_is_warned_about(
    admin_client: Client,
    open_connection: Callable[..., psycopg.Connection],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = open_connection(autocommit=False)
    other.execute("SET application_name = 'nightly report'")
    other.execute("SELECT 'do not show this'")
    text = read(admin_client)
    assert "nightly report" in text
    assert "do not show this" not in text
    assert "A transaction has been open" not in text
    monkeypatch.setattr(facts, "OLD_TRANSACTION_SECONDS", -1.0)
    text = read(admin_client)
    assert "A transaction has been open" in text
    assert f"pg_terminate_backend({backend_pid(other)})" in text


def test_what_the_role_may_not_see_is_said_to_be_so(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = TransactionRow(4321, None, None, None, None, None, None)
    monkeypatch.setattr(facts.system, "list_transactions", lambda cursor: [hidden])
    text = read(admin_client)
    assert "4321" in text
    assert "not visible to this role" in text


@pytest.mark.django_db(transaction=True)
def test_a_role_without_rights_gets_what_can_be_read() -> None:
    """Every question is answered for a role that may only read our tables."""
    role = f"pgjobs_nobody_{os.getpid()}"
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE ROLE {role}")
        try:
            cursor.execute(
                f"GRANT USAGE ON SCHEMA public TO {role};"
                f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}; SET ROLE {role}"
            )
            assert gather().server.role == role
        finally:
            cursor.execute(f"RESET ROLE; DROP OWNED BY {role}; DROP ROLE {role}")


@override_settings(
    PGJOBS={"RATE_LIMITS": {"api_key": {"count": 1, "period": 1.0, "note": "hunter2"}}}
)
def test_diagnostics_hold_no_secret(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict, "PASSWORD", "hunter2")
    text = read(admin_client)
    assert "hunter2" not in text
    copied = diagnostics(text)
    for word in (
        "django-pgjobs ",
        "PostgreSQL ",
        "pgjobs_job_live",
        "LEASE_SECONDS",
        "0001_initial",
    ):
        assert word in copied
    assert 'data-pgjobs-copy="#pgjobs-diagnostics"' in text


@override_settings(PGJOBS={"METRICS_TOKEN": "hunter-two-hunter", "REDACT": ["other"]})
def test_the_token_of_the_metrics_is_shown_to_nobody(admin_client: Client) -> None:
    text = read(admin_client)
    assert "METRICS_TOKEN" in text
    assert "hunter" not in text


def value_of(text: str, name: str) -> str:
    """Return what the page shows as the value of a setting."""
    head = name.replace("_", "_<wbr>")
    return re.search(rf"{head}</th><td[^>]*><code>(.*?)</code>", text)[1]  # type: ignore[index]


@pytest.mark.parametrize(
    ("given", "secret", "is_allowed"),
    [
        ({}, "None", "False"),
        (
            {"CALLBACK_SECRET": "hunter-two-hunter" * 3, "CALLBACK_ALLOW_PRIVATE": True},
            "&#x27;••••••&#x27;",
            "True",
        ),
    ],
)
def test_what_is_not_set_and_what_is_a_flag_is_no_secret(
    admin_client: Client, settings: Any, given: dict[str, Any], secret: str, is_allowed: str
) -> None:
    settings.PGJOBS = given
    text = read(admin_client)
    assert value_of(text, "CALLBACK_SECRET") == secret
    assert value_of(text, "CALLBACK_ALLOW_PRIVATE") == is_allowed
    assert "hunter" not in text


@override_settings(PGJOBS={"LEASE_SECONDS": 17})
def test_the_settings_in_force_are_shown_and_whose_they_are(admin_client: Client) -> None:
    text = read(admin_client)
    assert re.search(
        r"LEASE_<wbr>SECONDS</th><td[^>]*><code>17</code></td><td[^>]*>the project", text
    )
    assert re.search(
        r"MAX_<wbr>ATTEMPTS</th><td[^>]*><code>25</code></td><td[^>]*><span[^>]*>default", text
    )


def test_a_missing_migration_and_a_check_are_told(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "_migrations", lambda alias: (["0001"], ["0002_future"]))
    found = [CheckWarning("something <odd>", hint="mend it", id="pgjobs.W001")]
    monkeypatch.setattr(facts, "run_own_checks", lambda: found)
    text = read(admin_client)
    assert "Migrations are missing: 0002_future" in text
    assert "something &lt;odd&gt;" in text


def test_clocks_that_differ_are_warned_about(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any("clocks" in text for text in gather().warnings)
    monkeypatch.setattr(facts, "SKEW_SECONDS", -1.0)
    assert any("clocks" in text for text in gather().warnings)


def test_jobs_beyond_their_retention_are_warned_about() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO pgjobs_job (task_path, status, finished_at)"
            " VALUES ('a.b', 'failed', now() - interval '40 days')"
        )
    assert any("should have been deleted" in text for text in gather().warnings)


def test_only_who_may_look_may_look(client: Client) -> None:
    user = User.objects.create_user("visitor", is_staff=True)
    client.force_login(user)
    assert client.get(reverse(ADDRESS)).status_code == 403
    user.user_permissions.add(Permission.objects.get(codename="view_job"))
    assert client.get(reverse(ADDRESS)).status_code == 200
