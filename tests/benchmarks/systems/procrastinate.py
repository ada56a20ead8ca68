"""Procrastinate through its Django integration."""

from __future__ import annotations

from tests.benchmarks.system import DJANGO, System, module_command


class Procrastinate(System):
    """Procrastinate as Django projects run it: `manage.py procrastinate worker`.

    Jobs are deferred on Django's connection (transactional); the worker has its own
    psycopg pool and LISTENs; tasks are plain functions, which it runs in threads.
    """

    name = "procrastinate"
    title = "Procrastinate (Django)"
    requirements = (*DJANGO, "procrastinate[django]")
    shown_packages = ("procrastinate", "Django", "psycopg")
    client = "procrastinate_client.py"
    settings_module = "procrastinate_project"
    tables = (
        "procrastinate_jobs",
        "procrastinate_events",
        "procrastinate_periodic_defers",
        "bench_entry",
    )
    mark = "SELECT max(id) FROM procrastinate_jobs"
    done = "SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded' AND id > %s"
    enqueuing = "batch_defer"
    working = "procrastinate worker --concurrency 4"

    def worker_command(self, *, logs: bool) -> list[str]:
        return module_command("django", "procrastinate", "worker", "--concurrency", "4")
