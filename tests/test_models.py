"""Reading jobs with the ORM, and the fields that PostgreSQL's types need."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, models
from django.db.models.functions import Cast
from psycopg import sql

from django_pgjobs import JobStatus
from django_pgjobs.models import Job, Worker
from django_pgjobs.models.fields import PlainJSONField, TextArrayField, Undecodable
from tests import tasks
from tests.factories import make_job, make_jobs, make_worker
from tests.test_payload import make_value

pytestmark = pytest.mark.django_db

NOW = sql.SQL("now()")


def test_a_job_says_what_it_is() -> None:
    job = Job.objects.get(pk=make_job("shop.tasks.push"))
    worker = Worker.objects.get(pk=make_worker("web-1:44"))
    assert (str(job), str(worker)) == (f"shop.tasks.push #{job.pk}", f"web-1:44 #{worker.pk}")
    assert job.get_status_display() == "Ready"


def test_the_statuses_are_those_of_the_table() -> None:
    """The first four are Django's by name."""
    values = ["ready", "running", "successful", "failed", "cancelled"]
    assert JobStatus.values == values
    assert [status.name for status in JobStatus] == [value.upper() for value in values]
    ids = [make_job(status=status) for status in values]
    assert Job.objects.filter(pk__in=ids).count() == 5


def test_unfinished_and_finished_are_the_two_partitions() -> None:
    for status in JobStatus.values:
        make_job(status=status)
    unfinished, finished = Job.objects.unfinished(), Job.objects.finished()
    assert {job.status for job in unfinished} == {"ready", "running"}
    assert {job.status for job in finished} == {"successful", "failed", "cancelled"}
    assert "pgjobs_job_finished" not in unfinished.explain()
    assert "pgjobs_job_live" not in finished.explain()


def test_a_job_of_the_orm_is_a_full_enqueue() -> None:
    job = Job.objects.create(task_path="tests.tasks.add", args=[1, 2])
    job.refresh_from_db()
    assert (job.status, job.args, job.kwargs, job.tags, job.errors) == ("ready", [1, 2], {}, [], [])
    assert job.enqueued_at is not None


def test_columns_read_as_python_values() -> None:
    when = datetime(2031, 1, 1, tzinfo=UTC)
    later = tasks.echo.using(tags=["a", "ä'\",{}"], metadata={"m": None}, run_after=when)
    job = Job.objects.get(pk=later.enqueue(1.0, x=None).id)
    assert (job.args, job.kwargs, job.metadata) == ([1.0], {"x": None}, {"m": None})
    assert (job.tags, job.worker_ids, job.run_after) == (["a", "ä'\",{}"], [], when)
    assert (job.result, job.progress) == (None, None)


def test_values_written_by_the_orm_come_back_unchanged() -> None:
    rng = random.Random(5)
    values = [make_value(rng) for _ in range(200)]
    jobs = [Job(task_path="t", args=[v], kwargs={"v": v}, result=v) for v in values]
    Job.objects.bulk_create(jobs)
    for value, job in zip(values, Job.objects.order_by("id"), strict=True):
        assert repr(job.args) == repr([value])
        assert repr(job.kwargs) == repr({"v": value})
        assert repr(job.result) == repr(value)


def test_none_is_null_and_an_update_writes_json() -> None:
    job_id = make_job(result={"r": 1})
    Job.objects.filter(pk=job_id).update(result=None, args=["x"], tags=[], progress={"done": 1})
    job = Job.objects.get(pk=job_id)
    assert (job.result, job.args, job.tags, job.progress) == (None, ["x"], [], {"done": 1})
    assert Job.objects.filter(result=None).count() == 1
    Job.objects.filter(pk=job_id).update(result=models.F("args"))
    assert Job.objects.get(pk=job_id).result == ["x"]


@pytest.mark.parametrize("levels", [101, 900, 5_000])
def test_what_python_cannot_decode_is_its_text(levels: int) -> None:
    text = "[" * levels + "]" * levels
    job_id = make_job(args=sql.SQL("{}::json").format(text))
    args = Job.objects.get(pk=job_id).args
    assert isinstance(args, Undecodable)
    assert args == text


def test_a_number_too_long_for_python_is_its_text() -> None:
    make_job(result=sql.SQL("('1' || repeat('0', 5000))::json"))
    assert isinstance(Job.objects.get().result, Undecodable)


def test_values_are_searched_through_a_cast() -> None:
    """The domain makes sure that every stored value can be cast."""
    make_jobs(2, args=[1, {"shop": 7}])
    make_job(args=[{"shop": 8}])
    found = Job.objects.annotate(found=Cast("args", models.JSONField())).filter(
        found__contains=[{"shop": 7}]
    )
    assert found.count() == 2


def test_only_some_columns_can_be_read() -> None:
    make_job(args=["x"], tags=["t"])
    assert list(Job.objects.values_list("args", "tags")) == [(["x"], ["t"])]
    assert Job.objects.defer("args").get().args == ["x"]
    assert Job.objects.only("id").get().tags == ["t"]


def stored_values() -> list[dict[str, Any]]:
    """Return all rows without their times, which Django dumps to the millisecond."""
    rows = [row for model in (Job, Worker) for row in model.objects.values()]
    return [{k: v for k, v in row.items() if not isinstance(v, datetime)} for row in rows]


def test_jobs_can_be_dumped_and_loaded(tmp_path: Path) -> None:
    make_job(args=[1, {"a": None}], tags=["a,b", "ä"], errors=[{"m": 1}], result="text")
    make_worker(queues=["a"], task_paths=["x.y"])
    before = stored_values()
    output = StringIO()
    call_command("dumpdata", "pgjobs", stdout=output)
    assert json.loads(output.getvalue())[0]["fields"]["args"] == [1, {"a": None}]
    Job.objects.all().delete()
    Worker.objects.all().delete()
    (tmp_path / "jobs.json").write_text(output.getvalue())
    call_command("loaddata", str(tmp_path / "jobs.json"), verbosity=0)
    assert stored_values() == before


def test_jobs_can_be_deleted() -> None:
    make_jobs(3)
    make_job(status="failed")
    assert Job.objects.finished().delete()[0] == 1
    Job.objects.first().delete()
    assert Job.objects.count() == 2


@pytest.mark.parametrize("model", [Job, Worker])
def test_a_model_asks_for_postgresql_and_offers_no_more_than_looking_and_deleting(
    model: Any,
) -> None:
    assert model._meta.required_db_vendor == "postgresql"
    assert model._meta.default_permissions == ("view", "delete")
    assert model._meta.app_config.verbose_name == "Background jobs"


@pytest.mark.parametrize("field", [PlainJSONField(null=True), TextArrayField(default=list)])
def test_a_field_survives_a_migration(field: models.Field[Any, Any]) -> None:
    _, path, args, options = field.deconstruct()
    assert path == f"django_pgjobs.models.fields.{type(field).__name__}"
    again = type(field)(*args, **options)
    assert again.db_type(connection) == field.db_type(connection)
    assert (again.null, again.default) == (field.null, field.default)
