"""The worker's own connections: what they keep between round trips."""

from __future__ import annotations

import resource
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.cursor import Cursor
from tests.factories import get_job, make_job
from tests.helpers import connect

pytestmark = pytest.mark.django_db(transaction=True)

LARGE_BYTES = 100_000_000


def memory() -> int:
    """Return how many bytes this process has in memory."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * resource.getpagesize()


def send_nothing(cursor: Cursor) -> None:
    """Send no statement, as a claim whose jobs cost no tokens."""


def send_one(cursor: Cursor) -> None:
    cursor.execute("SELECT 1")


def send_large_result(cursor: Cursor) -> None:
    cursor.execute("SELECT repeat('x', $1 / 1000) FROM generate_series(1, 1000)", [LARGE_BYTES])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_no_result_is_kept_until_the_next_round_trip(own: OwnConnection) -> None:
    """It holds the arguments of all jobs of a claim, and the worker may be idle for hours then."""
    own.round_trip([send_one, send_one])
    before = memory()
    own.round_trip([send_large_result, send_one])
    assert memory() - before < LARGE_BYTES / 2


def test_no_rows_of_a_former_statement_come_back(own: OwnConnection) -> None:
    assert own.round_trip([send_one, send_one]) == [[(1,)], [(1,)]]
    assert own.round_trip([send_nothing, send_one, send_nothing]) == [[], [(1,)], []]


@pytest.mark.parametrize("is_direct", [True, False], ids=["direct", "behind a pooler"])
@pytest.mark.parametrize("is_kept", [True, False], ids=["committed", "rolled back"])
def test_a_transaction_holds_its_locks_to_its_end(
    own: OwnConnection, is_direct: bool, is_kept: bool
) -> None:
    job_id = make_job()
    own.open()
    own.is_direct = is_direct

    def send_note(cursor: Cursor) -> None:
        job = f"{own.schema}.pgjobs_job"
        cursor.execute(f"UPDATE {job} SET note = 'seen' WHERE id = $1", [job_id])

    with suppress(KeyboardInterrupt), own.transaction():
        own.round_trip([send_note])
        with connect() as other:
            sent = other.execute(
                "SELECT FROM pgjobs_job WHERE id = %s FOR UPDATE SKIP LOCKED", [job_id]
            )
            assert sent.fetchall() == []
        if not is_kept:
            raise KeyboardInterrupt
    assert get_job(job_id).note == ("seen" if is_kept else "")
