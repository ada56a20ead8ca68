"""`manage.py jobs grants` prints the rights that roles need; the docs quote it."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from django_pgjobs.management.grants import WEB, WORKER
from tests.factories import make_job
from tests.helpers import ROOT

pytestmark = pytest.mark.django_db


def printed(*flags: str) -> str:
    """Return what `jobs grants` prints."""
    output = StringIO()
    call_command("jobs", "grants", *flags, stdout=output)
    return output.getvalue()


def test_the_docs_quote_what_the_command_prints() -> None:
    quoted = (ROOT / "docs" / "grants.sql").read_text()
    assert quoted == printed("--worker", "worker", "--web", "web")


def test_each_of_our_tables_is_thought_of() -> None:
    with connection.cursor() as cursor:
        names = connection.introspection.table_names(cursor)
    # Partitions are not among the names that Django lists.
    ours = {name for name in names if name.startswith("pgjobs_")}
    assert WEB.keys() | WORKER.keys() == ours | {
        "pgjobs_job_live",
        "pgjobs_job_finished",
        "django_migrations",
    }


def test_names_are_quoted() -> None:
    text = printed("--web", 'my "web"; DROP TABLE pgjobs_job')
    assert text.count(' TO "my ""web""; DROP TABLE pgjobs_job";\n') == text.count("\n")


@pytest.mark.parametrize("flags", [(), ("--web", "PUBLIC"), ("--worker", " ")], ids=" ".join)
def test_it_takes_roles_and_nothing_else(flags: tuple[str, ...]) -> None:
    with pytest.raises(CommandError):
        printed(*flags)


def test_without_our_tables_it_says_so() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL search_path = pg_catalog")
    with pytest.raises(CommandError, match="migrate"):
        printed("--web", "web")


def test_the_functions_of_triggers_are_not_granted() -> None:
    text = printed("--web", "web")
    assert "pgjobs_resolve_v1" in text
    assert "pgjobs_wake_v1" not in text


@pytest.mark.parametrize("action", ["list", "stuck", "pause --queue a", "workflows", "tokens list"])
def test_whoever_lacks_a_right_is_told_who_gives_it(action: str) -> None:
    """By a newcomer: each action printed a traceback."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE ROLE pgjobs_test_poor; SET LOCAL ROLE pgjobs_test_poor")
    with pytest.raises(CommandError, match=r"permission denied for .*jobs grants") as caught:
        call_command("jobs", *action.split())
    assert caught.value.returncode == 3


def test_the_doctor_needs_no_more_than_the_role_of_a_worker() -> None:
    make_job()
    grants, said = printed("--worker", "pgjobs patient"), StringIO()
    with connection.cursor() as cursor:
        cursor.execute(f'CREATE ROLE "pgjobs patient"; {grants} SET LOCAL ROLE "pgjobs patient"')
        call_command("jobs", "doctor", stdout=said)
        cursor.execute("RESET ROLE")
    assert "no worker is alive" in said.getvalue()
