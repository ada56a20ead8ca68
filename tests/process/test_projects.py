"""From an empty folder to a job that ran, with what others install, and nothing more."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.helpers import skip
from tests.process.projects import TASKS, Project, new_database
from tests.servers import PgBouncer

pytestmark = pytest.mark.process

# The Python of an environment with Wagtail; `.ci/run` makes one.
WAGTAIL_PYTHON = "PGJOBS_WAGTAIL_PYTHON"
RAN = ["shop.tasks.send_welcome successful welcome 7"]
ADMIN_PAGES = """
from django.contrib.auth.models import User
from django.test import Client
User.objects.create_superuser("ada", password="ada")
browser = Client(SERVER_NAME="localhost")
assert browser.login(username="ada", password="ada")
for page in ("", "job/", "job/failures/", "queuesettings/", "worker/", "ratelimit/"):
    print(page, browser.get(f"/admin/pgjobs/{page}").status_code)
"""
SHOP_MODELS = """
from django.db import models

class Mail(models.Model):
    user_id = models.IntegerField()
"""
ROUTER = """
class JobsToPostgres:
    def _database(self, model, **hints):
        return "jobs" if model._meta.app_label == "pgjobs" else None

    db_for_read = db_for_write = _database

    def allow_migrate(self, db, app_label, **hints):
        return (db == "jobs") == (app_label == "pgjobs")
"""
WRITING_TASK = """
from django_pgjobs import task
from shop.models import Mail

@task
def send_welcome(user_id):
    Mail.objects.create(user_id=user_id)
    return f"{Mail.objects.db}: {Mail.objects.count()}"
"""
WAGTAIL_APPS = [
    "django.contrib.postgres",
    "wagtail.search",
    "wagtail.images",
    "wagtail.documents",
    "wagtail.users",
    "wagtail.admin",
    "wagtail",
    "modelcluster",
    "taggit",
    "django_tasks",
]
WAGTAIL_EDIT = """
from wagtail.models import Page
home = Page.objects.get(depth=2)
home.add_child(instance=Page(title="Rowan and elder", slug="rowan"))
"""
WAGTAIL_SEARCH = """
from wagtail.models import Page
print([page.title for page in Page.objects.search("rowan")])
"""


@pytest.fixture
def database() -> Iterator[dict[str, Any]]:
    """Django's settings of an empty database."""
    with new_database() as settings:
        yield settings


def test_the_smallest_project_runs_a_job(tmp_path: Path, database: dict[str, Any]) -> None:
    """S1.6: one app and one setting; no admin, no users, no content types."""
    project = Project(tmp_path)
    project.write("mysite/urls.py", "urlpatterns = []\n")
    project.set(
        INSTALLED_APPS=["shop", "django_pgjobs"],
        MIDDLEWARE=[],
        DATABASES={"default": database},
        TASKS=TASKS,
    )
    project.begin()
    assert project.enqueue_and_drain() == RAN
    assert "successful" in project.manage("jobs", "explain", "1")


@pytest.mark.parametrize("action", [("list",), ("schedules", "list"), ("explain", "1")])
def test_a_project_that_is_not_migrated_is_told(
    tmp_path: Path, database: dict[str, Any], action: tuple[str, ...]
) -> None:
    project = Project(tmp_path)
    project.add_apps("shop", "django_pgjobs")
    project.set(DATABASES={"default": database}, TASKS=TASKS)
    with pytest.raises(AssertionError, match=r"Run manage\.py migrate first") as caught:
        project.manage("jobs", *action)
    assert "Traceback" not in str(caught.value)


def test_a_project_with_the_admin_shows_its_pages(tmp_path: Path, database: dict[str, Any]) -> None:
    project = Project(tmp_path)
    project.add_apps("shop", "django_pgjobs")
    project.set(DATABASES={"default": database}, TASKS=TASKS)
    project.begin()
    assert project.enqueue_and_drain() == RAN
    pages = project.run(ADMIN_PAGES)
    assert len(pages) == 6 and {line.split()[-1] for line in pages} == {"200"}, pages


def test_a_project_behind_pgbouncer_runs_a_job(tmp_path: Path, database: dict[str, Any]) -> None:
    """Everything goes through the pooler, migrations too: transactions are pooled."""
    project = Project(tmp_path)
    project.add_apps("shop", "django_pgjobs")
    with TemporaryDirectory(prefix="pgjobs-") as home:
        Path(home).chmod(0o755)
        bouncer = PgBouncer(Path(home), database)
        bouncer.start()
        try:
            pooled = {**database, "HOST": "127.0.0.1", "PORT": str(bouncer.port), "OPTIONS": {}}
            pooled["DISABLE_SERVER_SIDE_CURSORS"] = True
            project.set(DATABASES={"default": pooled}, TASKS=TASKS)
            project.begin()
            assert project.enqueue_and_drain() == RAN
        finally:
            bouncer.stop()


def test_a_project_with_its_data_in_a_second_database_runs_a_job(
    tmp_path: Path, database: dict[str, Any]
) -> None:
    """Its data stay in SQLite, as `startproject` has it; a router sends the jobs to PostgreSQL."""
    project = Project(tmp_path)
    project.write("shop/models.py", SHOP_MODELS)
    project.write("shop/tasks.py", WRITING_TASK)
    project.write("mysite/routers.py", ROUTER)
    project.add_apps("shop", "django_pgjobs")
    sqlite = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "db.sqlite3")}
    project.set(
        DATABASES={"default": sqlite, "jobs": database},
        DATABASE_ROUTERS=["mysite.routers.JobsToPostgres"],
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        TASKS=TASKS,
    )
    assert "(pgjobs.W001) jobs go to the database 'jobs'" in project.manage("check")
    project.set(SILENCED_SYSTEM_CHECKS=["pgjobs.W001"])
    project.manage("makemigrations", "shop")
    project.begin()
    project.manage("migrate", "--database", "jobs", "--verbosity", "0")
    assert project.enqueue_and_drain() == ["shop.tasks.send_welcome successful default: 1"]


@pytest.mark.time_limit(600)  # Wagtail has many migrations
def test_the_search_index_of_wagtail_is_written_by_our_jobs(
    tmp_path: Path, database: dict[str, Any]
) -> None:
    """A page that is added enqueues Wagtail's tasks, of the backport's decorator; we run them."""
    python = os.environ.get(WAGTAIL_PYTHON)
    if not python:
        skip(f"{WAGTAIL_PYTHON} names no Python with Wagtail")
    project = Project(tmp_path, python=str(python))
    project.write("mysite/urls.py", "urlpatterns = []\n")
    project.add_apps("shop", "django_pgjobs", *WAGTAIL_APPS)
    project.set(
        DATABASES={"default": database},
        TASKS=TASKS,
        WAGTAIL_SITE_NAME="Shop",
        WAGTAILADMIN_BASE_URL="http://localhost",
    )
    project.manage("migrate", "--verbosity", "0")
    project.run(WAGTAIL_EDIT)
    assert project.run(WAGTAIL_SEARCH) == ["[]"]
    jobs = project.enqueue_and_drain()
    assert RAN[0] in jobs and {line.split()[1] for line in jobs} == {"successful"}, jobs
    assert "modelsearch.tasks.insert_or_update_object_task successful None" in jobs
    assert project.run(WAGTAIL_SEARCH) == ["['Rowan and elder']"]
