"""The column `lane`: the server computes it of a job's keys, however they are written."""

from __future__ import annotations

import pytest
from django.db import connection, models
from django.db.models.functions import Concat
from psycopg import sql

from django_pgjobs import task
from django_pgjobs.models import Job
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.testing import run_jobs
from tests.factories import make_job, make_running_job
from tests.helpers import execute
from tests.worker.support import claim, ids

pytestmark = pytest.mark.django_db


@task(concurrency_key="shop:{shop}", rate_limit="api:{shop}")
def sync(shop: int) -> None:
    """Have two keys."""


@task(concurrency_key="shop:{shop}", unique_key="one", on_conflict="replace")
def replaced(shop: int) -> None:
    """Have keys that a later enqueue replaces."""


def lanes() -> list[str | None]:
    """Return the lanes of all jobs, in the order of their ids."""
    return [lane for (lane,) in execute("SELECT lane FROM pgjobs_job ORDER BY id")]


def calls() -> int:
    """Return how often this transaction has called the function that computes lanes."""
    query = "SELECT calls FROM pg_stat_xact_user_functions WHERE funcname = 'pgjobs_lane_v1'"
    return sum(row[0] for row in execute(query))


@pytest.mark.parametrize(
    ("keys", "lane"),
    [
        ({}, None),
        ({"concurrency_key": "a"}, "a\n"),
        ({"rate_limit_keys": "x\ny"}, "\nx\ny"),
        ({"concurrency_key": "a", "rate_limit_keys": "x"}, "a\nx"),
    ],
)
@pytest.mark.parametrize("written", [None, "", "wrong", "a\n"])
def test_a_lane_is_made_of_the_keys_whatever_was_written_there(
    keys: dict[str, str], lane: str | None, written: str | None
) -> None:
    make_job(**keys)
    make_job(**keys, lane=written)
    assert lanes() == [lane, lane]


def test_each_way_to_enqueue_gives_a_lane() -> None:
    sync.enqueue(1)
    sync.enqueue_many([(2,), (3,)])
    Job.objects.create(task_path="t", concurrency_key="a")
    with connection.cursor() as cursor:
        with cursor.copy("COPY pgjobs_job (task_path, rate_limit_keys) FROM STDIN") as copy:
            copy.write_row(["t", "api"])
    assert lanes() == [*(f"shop:{shop}\napi:{shop}" for shop in (1, 2, 3)), "a\n", "\napi"]


@pytest.mark.parametrize("table", ["pgjobs_job", "pgjobs_job_live"])
@pytest.mark.parametrize(
    ("change", "lane"),
    [
        ("concurrency_key = 'b'", "b\nx"),
        ("concurrency_key = NULL", "\nx"),
        ("rate_limit_keys = NULL", "a\n"),
        ("rate_limit_keys = NULL, concurrency_key = NULL", None),
        ("lane = NULL", "a\nx"),
        ("lane = 'b', concurrency_key = 'c'", "c\nx"),
    ],
)
def test_a_lane_follows_an_update_of_the_keys(table: str, change: str, lane: str | None) -> None:
    make_job(concurrency_key="a", rate_limit_keys="x")
    execute(f"UPDATE {table} SET {change}")
    assert lanes() == [lane]


def test_a_lane_follows_the_orm() -> None:
    make_job()
    make_job(concurrency_key="a")
    Job.objects.update(concurrency_key=Concat(models.Value("shop:"), models.F("task_path")))
    job = Job.objects.earliest("id")
    assert lanes() == [f"shop:{job.task_path}\n"] * 2
    job.concurrency_key = None
    job.save()
    assert lanes() == [None, f"shop:{job.task_path}\n"]


def test_a_lane_follows_a_later_enqueue_of_a_unique_key() -> None:
    replaced.enqueue(1)
    replaced.enqueue(2)
    assert lanes() == ["shop:2\n"]


def test_a_finished_job_with_other_keys_has_their_lane_when_it_waits_again() -> None:
    job_id = make_job(status="failed", finished_at=sql.SQL("now()"), lane="wrong")
    execute("UPDATE pgjobs_job SET concurrency_key = 'b'")
    assert Job.objects.get(pk=job_id).requeue()
    assert lanes() == ["b\n"]


def test_statements_that_set_no_key_compute_nothing() -> None:
    execute("SET LOCAL track_functions = 'pl'")
    replaced.enqueue(1)
    assert calls() == 1
    make_job()
    assert run_jobs() == 2
    assert calls() == 1


@pytest.mark.django_db(transaction=True)
def test_a_job_with_a_key_is_not_claimed_as_one_without(own: OwnConnection, worker: int) -> None:
    make_running_job(concurrency_key="a")
    make_job(concurrency_key="a", lane=None)
    plain = make_job(lane="a\n")
    assert ids(claim(own, worker)) == [plain]
