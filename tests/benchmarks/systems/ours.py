"""django_pgjobs itself, installed from this working copy."""

from __future__ import annotations

from tests.benchmarks.system import ROOT, System, module_command


class Ours(System):
    """django_pgjobs with four slots per process; log lines off but where they are measured.

    Everything else is the default: leases, LISTEN, retention and clean-up between jobs.
    """

    name = "ours"
    title = "django_pgjobs"
    requirements = ("--editable", f"{ROOT}[binary]")
    shown_packages = ("Django", "psycopg")
    client = "ours_client.py"
    settings_module = "ours_project"
    tables = ("pgjobs_job", "pgjobs_batch", "pgjobs_worker", "bench_entry")
    mark = "SELECT max(id) FROM pgjobs_job"
    done = "SELECT count(*) FROM pgjobs_job WHERE status = 'successful' AND id > %s"
    enqueuing = "enqueue_many"
    working = "runjobs --concurrency 4 -v 0 --no-reload"

    def fingerprint(self) -> str:
        return (ROOT / "pyproject.toml").read_text()

    def worker_command(self, *, logs: bool) -> list[str]:
        verbosity = 1 if logs else 0
        return module_command(
            "django", "runjobs", "--concurrency", 4, "-v", verbosity, "--no-reload"
        )
