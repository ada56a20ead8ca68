"""What others made in a schema of the search path is not used by any statement.

A role with CREATE on a schema that a worker searches can make an operator for just the types
that a statement gives to a polymorphic one of PostgreSQL's, and have code run as the worker.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from django_pgjobs.queries.cursor import raw_statement
from django_pgjobs.queries.enqueue import CHOSEN
from django_pgjobs.sql import load, qualified
from tests import helpers
from tests.helpers import in_a_loop
from tests.shadows import SHADOWED, create_shadows
from tests.test_sql import FILES, placeholders

# Written in a form that PostgreSQL reads as one function of its own, whatever the search path.
SYNTAX = {"unnest"}
# What a statement depends on beside objects that are PostgreSQL's own.
SHADOWS_USED = """
SELECT pg_describe_object(refclassid, refobjid, 0)
FROM pg_depend
WHERE
    classid = 'pg_proc'::regclass AND objid = 'public.tried'::regproc
    AND (pg_identify_object(refclassid, refobjid, 0)).schema = 'shadow'
"""


@pytest.fixture(scope="module")
def shadowed(django_db_setup: None, django_db_blocker: Any) -> Iterator[psycopg.Connection]:
    """A connection in whose search path somebody made better matches; rolled back."""
    with django_db_blocker.unblock(), helpers.connect(autocommit=False) as client:
        with psycopg.ClientCursor(client) as cursor:
            create_shadows(cursor)
        client.execute("SET LOCAL search_path = public, shadow")
        yield client
        client.rollback()


def shadows_of(client: psycopg.Connection, text: bytes, types: str) -> list[str]:
    """Return what of the schema `shadow` the server takes for a statement."""
    with client.transaction(force_rollback=True):
        client.execute(
            b"CREATE FUNCTION public.tried(%b) RETURNS void LANGUAGE sql BEGIN ATOMIC %b; END"
            % (types.encode(), text)
        )
        client.execute("SET LOCAL search_path = pg_catalog, public")
        return [row[0] for row in client.execute(SHADOWS_USED).fetchall()]


@pytest.mark.slow
@pytest.mark.django_db
@in_a_loop("path", FILES)
def test_a_statement_uses_nobody_elses_operators(path: Path, shadowed: psycopg.Connection) -> None:
    """The server says what it took when it parsed the statement, reached or not."""
    text, names = raw_statement(path.stem)
    given = placeholders(path)
    assert shadows_of(shadowed, text, ", ".join(given[name] for name in names)) == []


@pytest.mark.django_db
def test_the_shadows_are_seen(shadowed: psycopg.Connection) -> None:
    """What the test above would not notice otherwise."""
    used = shadows_of(shadowed, b"SELECT $1 || 'x'::text FROM unnest($1)", "text[]")
    assert sorted(used) == ["function shadow.unnest(text[])", "operator shadow.||(text[],text)"]


@in_a_loop("path", FILES)
def test_every_operator_of_a_statement_has_a_shadow(path: Path) -> None:
    text = re.sub(r"%\(\w+\)s|E?'[^']*'|::|OPERATOR\([^)]*\)|count\(\*\)|=>", " ", load(path.stem))
    found = set(re.findall(r"[-+*/<>=~!@#%^&|?]+", text.replace("%%", "%"))) - {"=-"}
    known = {symbol for symbols, _, _ in SHADOWED for symbol in symbols}
    assert found <= known, f"{path.name}: add to tests.shadows"


@in_a_loop("path", FILES)
def test_a_statement_names_the_schema_of_everything(path: Path) -> None:
    text = qualified(load(path.stem), "the jobs")
    assert set(re.findall(r"(?<![\w.])([a-z]\w*)\(", text)) <= SYNTAX
    assert not re.search(r"(?<!\"the jobs\"\.)\bpgjobs_\w", text.replace("pgjobs_worker_id", ""))


def test_the_composed_parts_are_qualified_too() -> None:
    assert set(re.findall(r"(?<![\w.])([a-z]\w*)\(", qualified(CHOSEN, None))) <= SYNTAX


def test_any_name_of_a_schema_is_quoted() -> None:
    """As an identifier, in a literal, and for a text that has placeholders."""
    text = qualified("SELECT nextval('pgjobs_x') FROM pgjobs_job", "a\"b'c%d")
    assert text == (
        'SELECT pg_catalog.nextval(\'"a""b\'\'c%%d".pgjobs_x\') FROM "a""b\'c%%d".pgjobs_job'
    )
