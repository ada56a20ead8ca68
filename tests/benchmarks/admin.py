"""Measure every page of the admin over millions of jobs.

python -m tests.benchmarks.admin [--only TEXT] [--repeat 5] [--fresh]

The first run makes a database of its own, which the next ones use. It exits with 1 if the
median of a page is over the time, or the page over the queries or the bytes that it may have.
Time is that of the whole request, sessions and templates included; processor time of this
process and of the server is beside it, where the kernel tells it: what is left if others use
the machine as well. Nothing is kept between requests but what pages keep for minutes. As in
tests/admin/test_plans.py, what begins and ends transactions is no query.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import django
import psycopg
from psycopg import sql

from tests.benchmarks.report import format_value, make_table

DATABASE = "pgjobs_admin_bench"
FINISHED = 2_000_000
WAITING = 1_000_000
# Pairs of a queue and a task: 50 tasks in each of 10 queues.
CELLS = 500
MAX_MILLISECONDS = 150.0
MAX_QUERIES = 12
MAX_BYTES = 150_000
CONTROL = ("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE SAVEPOINT")


class Measured(NamedTuple):
    """What a page took; milliseconds are medians, *processor* None if nobody tells."""

    name: str
    status: int
    milliseconds: float
    processor: float | None
    queries: int
    bytes: int

    @property
    def kind(self) -> str:
        """The part of the admin that it belongs to."""
        return self.name.partition(":")[0]

    @property
    def is_over(self) -> bool:
        """Is it over the budget, or no page at all?"""
        return (
            self.status != 200
            or self.milliseconds > MAX_MILLISECONDS
            or self.queries > MAX_QUERIES
            or self.bytes > MAX_BYTES
        )


def set_up(*, is_fresh: bool) -> None:
    """Make the database and fill it, unless an earlier run did."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    from django.conf import settings
    from django.core.management import call_command
    from django.db import connection

    settings.ALLOWED_HOSTS = ["testserver"]
    params = connection.get_connection_params()
    known = ("host", "port", "user", "password")
    plain = {key: params[key] for key in known if params.get(key)}
    name = sql.Identifier(DATABASE)
    with psycopg.connect(**plain, dbname="postgres", autocommit=True) as server:
        if is_fresh:
            server.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name))
        found = server.execute("SELECT FROM pg_database WHERE datname = %s", [DATABASE])
        is_new = found.fetchone() is None
        if is_new:
            server.execute(sql.SQL("CREATE DATABASE {}").format(name))
    connection.settings_dict["NAME"] = DATABASE
    call_command("migrate", verbosity=0)
    if is_new:
        from tests.admin.many_jobs import fill, vacuum

        print(f"{FINISHED:,} finished and {WAITING:,} waiting jobs are made ...", file=sys.stderr)
        fill(finished=FINISHED, waiting=WAITING, cells=CELLS)
        vacuum()
    keep_for_minutes()


def keep_for_minutes() -> None:
    """Ask once for what the Overview keeps for minutes: the cache of the test settings is none."""
    from django_pgjobs.admin.overview import page

    found: list[Any] = []

    def keep(read: Callable[[], Any]) -> Any:
        if not found:
            found.append(read())
        return found[0]

    page.keep_usual = keep


def processor_seconds(pids: Iterable[int]) -> float | None:
    """Return the processor time of some processes so far, None if it is not known."""
    try:
        return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9 for pid in pids)
    except (OSError, ValueError):
        return None


def measure(only: str, repeat: int) -> list[Measured]:
    """Measure the pages whose name has *only* in it, each *repeat* times after two others."""
    from django.contrib.auth.models import User
    from django.db import connection
    from django.test import Client
    from django.test.utils import CaptureQueriesContext

    from tests.admin.large_pages import list_pages

    client = Client()
    client.force_login(User.objects.get(username="admin"))
    pids = (os.getpid(), connection.connection.info.backend_pid)
    measured = []
    for page in list_pages(client):
        if only not in page.name:
            continue
        # What pages keep for minutes is read by the first.
        client.get(page.address)
        with CaptureQueriesContext(connection) as queries:
            response = client.get(page.address)
        count = sum(not query["sql"].startswith(CONTROL) for query in queries)
        times, processor = [], []
        for _ in range(repeat):
            used, begin = processor_seconds(pids), time.perf_counter()
            client.get(page.address)
            times.append(time.perf_counter() - begin)
            if used is not None:
                processor.append((processor_seconds(pids) or used) - used)
        measured.append(
            Measured(
                page.name,
                response.status_code,
                statistics.median(times) * 1000,
                statistics.median(processor) * 1000 if processor else None,
                count,
                len(response.content),
            )
        )
    return measured


def make_summary(measured: Sequence[Measured]) -> str:
    """Return the table of the kinds: the middle and the most of their pages."""
    header = ["pages of", "pages", "ms, middle", "ms, most", "processor ms, most", "queries"]
    lines = []
    for kind in dict.fromkeys(page.kind for page in measured):
        pages = [page for page in measured if page.kind == kind]
        times = [page.milliseconds for page in pages]
        lines.append(
            [
                kind,
                str(len(pages)),
                format_value(round(statistics.median(times))),
                format_value(round(max(times))),
                format_value(round(max(page.processor or 0 for page in pages))),
                str(max(page.queries for page in pages)),
                f"{max(page.bytes for page in pages):,}",
            ]
        )
    return make_table([*header, "bytes"], lines)


def make_report(measured: Sequence[Measured]) -> str:
    """Return the table of the pages, the slowest of each kind first."""
    header = ["page", "ms", "processor ms", "queries", "bytes", ""]
    kinds = {page.kind: number for number, page in enumerate(measured)}
    ordered = sorted(measured, key=lambda page: (kinds[page.kind], -page.milliseconds))
    lines = [
        [
            page.name,
            format_value(page.milliseconds),
            format_value(page.processor),
            str(page.queries),
            f"{page.bytes:,}",
            f"OVER ({page.status})" if page.is_over else "",
        ]
        for page in ordered
    ]
    return make_table(header, lines)


def main() -> int:
    """Measure and print; return 1 if a page is over the budget."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.admin", description=str(__doc__).splitlines()[0]
    )
    parser.add_argument("--only", default="", help="pages with this text in their name")
    parser.add_argument("--repeat", type=int, default=5, help="measurements of each (default 5)")
    parser.add_argument("--fresh", action="store_true", help="make the database anew")
    options = parser.parse_args()
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    set_up(is_fresh=options.fresh)
    measured = measure(options.only, options.repeat)
    print(make_report(measured), make_summary(measured), sep="\n\n")
    over = [page.name for page in measured if page.is_over]
    print(f"\n{len(measured)} pages, {len(over)} over the budget; load average {load}.")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
