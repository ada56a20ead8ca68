"""Projects that begin in an empty folder: `startproject`, settings, commands, a job."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.helpers import ROOT, TEST_SECONDS, connect, database_url, settings_of

TASKS = {"default": {"BACKEND": "django_pgjobs.backend.PgJobsBackend", "QUEUES": []}}
# The app of every project: one task, and a module that says what became of jobs.
SHOP_TASKS = """
from django_pgjobs import task

@task
def send_welcome(user_id):
    return f"welcome {user_id}"
"""
STATES = """
from django_pgjobs.models import Job
for job in Job.objects.order_by("id"):
    print(job.task_path, job.status, job.result)
"""


class Project:
    """A Django project in *folder*, with the app `shop` that has a task."""

    def __init__(self, folder: Path, *, python: str = sys.executable) -> None:
        self.folder = folder
        self._python = python
        self._run("-m", "django", "startproject", "mysite", ".")
        self.write("shop/__init__.py", "")
        self.write("shop/tasks.py", SHOP_TASKS)

    def write(self, name: str, text: str) -> None:
        """Write a file of the project."""
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def set(self, **settings: Any) -> None:
        """Write settings below those of `startproject`."""
        with (self.folder / "mysite" / "settings.py").open("a") as file:
            file.writelines(f"{name} = {value!r}\n" for name, value in settings.items())

    def add_apps(self, *names: str) -> None:
        """Install more apps than `startproject` does."""
        with (self.folder / "mysite" / "settings.py").open("a") as file:
            file.write(f"INSTALLED_APPS += {list(names)!r}\n")

    def manage(self, *arguments: str) -> str:
        """Run a command, and return what it said; it must end well."""
        return self._run("manage.py", *arguments)

    def run(self, code: str) -> list[str]:
        """Run Python in the project, and return the lines that it printed."""
        return self._run("-c", f"import django; django.setup()\n{code}").splitlines()

    def begin(self) -> None:
        """Check the project, and make its tables."""
        self.manage("check", "--fail-level", "WARNING")
        self.manage("migrate", "--verbosity", "0")

    def enqueue_and_drain(self) -> list[str]:
        """Enqueue a job, let a worker run all there are; return task, status and result of each."""
        self.run("from shop.tasks import send_welcome; send_welcome.enqueue(user_id=7)")
        self.manage("runjobs", "--drain")
        return self.run(STATES)

    def _run(self, *arguments: str) -> str:
        done = subprocess.run(
            [self._python, "-W", "error::RuntimeWarning", *arguments],
            cwd=self.folder,
            env={
                **{key: value for key, value in os.environ.items() if key != "DATABASE_URL"},
                "DJANGO_SETTINGS_MODULE": "mysite.settings",
                "PYTHONPATH": str(ROOT),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TEST_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{arguments} ended with {done.returncode}:\n{done.stdout}"
        return done.stdout


@contextlib.contextmanager
def new_database() -> Iterator[dict[str, Any]]:
    """Make an empty database; yield Django's settings for it, and drop it at the end."""
    name = f"test_project_{uuid.uuid4().hex[:12]}"
    keys = ("ENGINE", "NAME", "USER", "PASSWORD", "HOST", "PORT", "OPTIONS")
    wanted = {key: value for key, value in settings_of().items() if key in keys}
    with connect(database_url(NAME="postgres")) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        try:
            yield {**wanted, "NAME": name}
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
