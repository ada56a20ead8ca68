"""django-tasks-db, the reference database backend of django.tasks."""

from __future__ import annotations

from tests.benchmarks.system import DJANGO, System, module_command


class DjangoTasksDb(System):
    """django-tasks-db with persistent connections and a poll every 0.1 s.

    Its worker runs one job at a time and has no concurrency option. The interval (default
    1 s) matters only for latency. Bulk: it has no such API, so many enqueues in one
    transaction.
    """

    name = "django-tasks-db"
    title = "django-tasks-db"
    requirements = (
        *DJANGO,
        "django-tasks-db",
        "django-tasks-db[compat]; python_version < '3.12'",  # Django 5.2 has no tasks
    )
    shown_packages = ("django-tasks-db", "Django", "psycopg")
    client = "django_tasks_db_client.py"
    settings_module = "django_tasks_db_project"
    tables = ("django_tasks_database_dbtaskresult", "bench_entry")
    mark = "SELECT count(*) FROM django_tasks_database_dbtaskresult WHERE status = 'SUCCESSFUL'"
    done = (
        "SELECT count(*) - %s FROM django_tasks_database_dbtaskresult WHERE status = 'SUCCESSFUL'"
    )
    enqueuing = "no bulk API: enqueue() in a loop in one transaction"
    working = "db_worker --interval 0.1 --no-startup-delay -v 0"

    def worker_command(self, *, logs: bool) -> list[str]:
        arguments = ["--interval", "0.1", "--no-startup-delay", "-v", "1" if logs else "0"]
        return module_command("django", "db_worker", *arguments)
