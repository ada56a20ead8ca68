"""django-ox, a database backend of django.tasks with leases and retries."""

from __future__ import annotations

from tests.benchmarks.system import DJANGO, System, module_command


class DjangoOx(System):
    """django-ox with four threads (as in its deployment guide) and a poll every 0.1 s.

    Its documentation advises persistent or pooled connections. The interval is 1 s by
    default and matters for latency.
    """

    name = "django-ox"
    title = "django-ox"
    requirements = (*DJANGO, "django-ox")
    minimum_python = (3, 12)
    shown_packages = ("django-ox", "Django", "psycopg")
    client = "django_ox_client.py"
    settings_module = "django_ox_project"
    tables = ("django_ox_oxtask", "bench_entry")
    mark = "SELECT count(*) FROM django_ox_oxtask WHERE status = 'SUCCESSFUL'"
    done = "SELECT count(*) - %s FROM django_ox_oxtask WHERE status = 'SUCCESSFUL'"
    enqueuing = "enqueue_many"
    working = "ox_worker --concurrency 4 --interval 0.1 -v 0"

    def worker_command(self, *, logs: bool) -> list[str]:
        arguments = ["--concurrency", "4", "--interval", "0.1", "-v", "1" if logs else "0"]
        return module_command("django", "ox_worker", *arguments)
