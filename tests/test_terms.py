"""The rules that statements share are told once, and Python's few twins of them say the same."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from psycopg import sql

from django_pgjobs.models import Pause, RateLimit, Worker
from django_pgjobs.queries.jobs import JobRow
from django_pgjobs.queries.worker_pages import WorkerRow
from django_pgjobs.sql.terms import TERMS, USE, written_out
from tests.factories import make_worker
from tests.helpers import ROOT, in_a_loop

PACKAGE = ROOT / "django_pgjobs"
FILES = sorted([*(PACKAGE / "sql").glob("*.sql"), *(PACKAGE / "queries").glob("*.py")])


def plain(text: str) -> str:
    """Return SQL without what differs from place to place: line breaks and indents."""
    return re.sub(r"\s+", " ", text)


@functools.cache
def plain_text(path: Path) -> str:
    """Return a file so; it is searched for each term."""
    return plain(path.read_text())


def rows_of(query: str) -> list[Any]:
    """Return the only column that a query with terms gives."""
    with connection.cursor() as cursor:
        cursor.execute(written_out(query).replace("%%", "%"))
        return [value for (value,) in cursor.fetchall()]


@in_a_loop("term", TERMS)
def test_what_has_a_term_is_nowhere_written_out(term: str) -> None:
    shape = re.escape(plain(written_out(TERMS[term]))).replace(r"\{it\}", r"\w+(?:\.\w+)?")
    found = [path.name for path in FILES if re.search(rf"{shape}(?! \+)", plain_text(path))]
    assert not found, f"write {{row.{term}}} in {found}"


def test_a_term_is_one_that_exists_and_every_one_is_used() -> None:
    statements = [path.read_text() for path in FILES if path.suffix == ".sql"]
    texts = [*statements, *(text.replace("{it}", "it") for text in TERMS.values())]
    used = {found["term"] for text in texts for found in USE.finditer(text)}
    assert used == set(TERMS)


def test_a_term_is_told_of_the_row_or_column_before_it() -> None:
    assert written_out("x AND {other.is_live}") == (
        "x AND other.ended_at IS NULL AND other.lease_expires_at > statement_timestamp()"
    )
    assert "COALESCE(rate_limit.burst" in written_out("({job.key.rate_limit})")
    with pytest.raises(KeyError, match="lives"):
        written_out("{worker.lives}")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("query", "row"),
    [
        ("SELECT {job.as_job_row} FROM pgjobs_job AS job", JobRow),
        ("SELECT {worker.as_worker_row} FROM pgjobs_worker AS worker", WorkerRow),
    ],
)
def test_the_columns_of_a_row_are_in_the_order_of_its_type(query: str, row: type[Any]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(written_out(query))
        names = [column.name for column in cursor.description]
    # What is computed has no name of its own.
    told = [name for name in names if name in row._fields]
    assert len(names) == len(row._fields)
    assert told == [name for name in row._fields if name in told]
    assert len(told) >= 10


@pytest.mark.django_db
def test_a_limit_without_a_burst_has_the_same_one_in_python_and_in_sql() -> None:
    given = [(count, None) for count in (1, 19, 20, 21, 39, 40, 999, 100_000)]
    RateLimit.objects.bulk_create(
        RateLimit(name=f"{count} {burst}", count=count, period=1.0, burst=burst)
        for count, burst in [*given, (100, 1), (100, 7), (100, 100)]
    )
    bursts = rows_of(
        "SELECT {rate_limit.burst_in_force} FROM pgjobs_rate_limit AS rate_limit ORDER BY name"
    )
    assert bursts == [limit.burst_in_force for limit in RateLimit.objects.order_by("name")]
    assert set(bursts) == {1, 19, 20, 21, 39, 40, 999, 100_000, 7, 100}


@pytest.mark.django_db
def test_a_pause_holds_for_the_pages_as_it_does_for_the_claim() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO pgjobs_pause (kind, name, resume_at)"
            " SELECT 'queue', resume_at, resume_at::timestamptz FROM unnest(%s::text[])"
            " AS given (resume_at)",
            [["2020-01-01", "-infinity", "infinity", "3000-01-01"]],
        )
    Pause.objects.create(kind="queue", name="no end")
    holding = rows_of("SELECT pause.name FROM pgjobs_pause AS pause WHERE {pause.holds}")
    assert set(holding) == {"infinity", "3000-01-01", "no end"}
    assert set(Pause.objects.filter(Pause.that_holds()).values_list("name", flat=True)) == set(
        holding
    )


@pytest.mark.django_db
def test_a_worker_is_live_for_the_pages_as_it_is_for_the_rescue() -> None:
    alive = make_worker("alive")
    make_worker("expired", lease_seconds=-1)
    make_worker("left", ended_at=sql.SQL("statement_timestamp()"))
    assert rows_of("SELECT worker.id FROM pgjobs_worker AS worker WHERE {worker.is_live}") == [
        alive
    ]
    assert list(Worker.objects.filter(Worker.that_is_live()).values_list("id", flat=True)) == [
        alive
    ]
