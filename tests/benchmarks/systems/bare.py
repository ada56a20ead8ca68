"""The floors: the same work in psycopg alone."""

from __future__ import annotations

from tests.benchmarks.system import PEERS
from tests.benchmarks.systems.ours import Ours


class Bare(Ours):
    """psycopg on the table of django_pgjobs, in the environment of django_pgjobs.

    What each floor does is written in `peers/bare_client.py` and `peers/bare_worker.py`.
    """

    name = "bare"
    title = "bare psycopg"
    client = "bare_client.py"
    enqueuing = "INSERT ... SELECT, 5,000 rows per statement"
    working = "claim 500, call each, finish 500, in raw SQL on one connection"

    def environment_name(self) -> str:
        return Ours.name

    def worker_command(self, *, logs: bool) -> list[str]:
        return [str(PEERS / "bare_worker.py")]
