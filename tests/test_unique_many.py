"""Unique keys of many jobs at once: one statement, twins within it included."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import F, Q

from django_pgjobs import DuplicateJob, JobError, Task
from django_pgjobs.models import Job
from tests.factories import count_jobs, get_job
from tests.models import Effect
from tests.planner import KNOWN, forget_jobs, rows_read
from tests.test_unique import (
    push,
    push_latest,
    push_once,
    push_waiting,
    start_job,
    statements,
)

pytestmark = pytest.mark.django_db


def test_many_are_one_statement_and_ids_follow_the_items() -> None:
    """Twins give the same id; ids rise with the place of the first."""
    old = [push.enqueue(7).id, push.enqueue(3).id]
    products = [9, 3, 8, 9, 1, 7, 8]
    ids: list[str] = []
    sent = statements(lambda: ids.extend(push.enqueue_many((p,) for p in products)))
    assert [word for word in sent if word not in ("SAVEPOINT", "RELEASE", "SELECT")] == ["WITH"]
    assert (ids[5], ids[1]) == (old[0], old[1])
    assert (ids[0], ids[2]) == (ids[3], ids[6])
    assert int(ids[0]) < int(ids[2]) < int(ids[4])
    assert [get_job(job_id).args for job_id in ids] == [[p] for p in products]


def test_of_many_with_one_key_the_first_or_the_last_counts() -> None:
    items = [(1, "a"), (2, "b"), (1, "c")]
    for unique, expected in ((push, [1, "a"]), (push_waiting, [1, "a"]), (push_latest, [1, "c"])):
        ids = unique.enqueue_many(items)
        assert ids[0] == ids[2] != ids[1]
        job = get_job(ids[0])
        assert (job.args, job.merged_count) == (expected, int(unique is push_latest))
        assert unique.enqueue_many(items) == ids
    assert get_job(ids[0]).merged_count == 3


def test_many_with_one_key_are_an_error_on_request() -> None:
    with pytest.raises(DuplicateJob, match=r"2 of the jobs to be enqueued have .*'push:1'") as met:
        push_once.enqueue_many([(1,), (2,), (1,)])
    assert met.value.job_id is None
    first = push_once.enqueue(1)
    with transaction.atomic():
        with pytest.raises(DuplicateJob, match=f"job {first.id} ") as met:
            push_once.enqueue_many([(3,), (1,), (4,)])
        assert met.value.job_id == int(first.id)
        assert count_jobs() == 1
    assert len(push_once.enqueue_many([(3,), (4,)])) == 2


def test_the_batches_of_one_call_meet_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_pgjobs.enqueueing.inserting.ROWS_PER_INSERT", 2)
    for unique in (push, push_waiting, push_latest):
        ids = unique.enqueue_many([(1, "a"), (2, "b"), (1, "c"), (3, "d"), (2, "e")])
        assert (ids[0], ids[1]) == (ids[2], ids[4])
        assert len({*ids}) == 3
    with pytest.raises(DuplicateJob):
        push_once.enqueue_many([(1,), (2,), (1,)])
    assert count_jobs(task_path=push_once.module_path) == 0


@pytest.fixture
def effects() -> list[Effect]:
    """Rows, of which some come to the same key."""
    return Effect.objects.bulk_create(
        Effect(key=key, job_id=number) for key, number in [("a", 1), ("b", 2), ("a", 3), ("c", 1)]
    )


def kwargs_of(unique: Task) -> dict[str, Any]:
    """Return unique key -> arguments of the task's jobs."""
    jobs = Job.objects.filter(task_path=unique.module_path).order_by("id")
    return {job.unique_key or "": job.kwargs for job in jobs}


@pytest.mark.usefixtures("effects")
def test_jobs_of_a_queryset_are_unique_too() -> None:
    """In one statement; the number is that of the new jobs."""
    queryset = Effect.objects.order_by("pk")
    sent = statements(lambda: push.enqueue_from(queryset, product_id=F("job_id"), fields=F("key")))
    assert sent == ["SAVEPOINT", "WITH", "RELEASE"]
    assert kwargs_of(push) == {
        "push:1": {"product_id": 1, "fields": "a"},
        "push:2": {"product_id": 2, "fields": "b"},
        "push:3": {"product_id": 3, "fields": "a"},
    }
    assert push.enqueue_from(queryset, product_id=F("job_id"), fields=F("key")) == 0
    assert push.enqueue_from(queryset, product_id=F("job_id") + 2, fields=1) == 2
    assert push_waiting.enqueue_from(queryset, product_id=F("job_id")) == 3
    assert push_waiting.enqueue_from(queryset, product_id=F("job_id")) == 0


@pytest.mark.usefixtures("effects")
def test_jobs_of_a_queryset_replace_what_waits() -> None:
    old = push_latest.enqueue(2)
    queryset = Effect.objects.order_by("pk")
    assert push_latest.enqueue_from(queryset, product_id=F("job_id"), fields=F("key")) == 2
    assert {key: kwargs["fields"] for key, kwargs in kwargs_of(push_latest).items()} == {
        "push:1": "c",
        "push:2": "b",
        "push:3": "a",
    }
    jobs = {job.unique_key: job for job in Job.objects.all()}
    assert str(jobs["push:2"].pk) == old.id
    assert [jobs[f"push:{number}"].merged_count for number in (1, 2, 3)] == [1, 1, 0]


@pytest.mark.usefixtures("effects")
def test_twins_among_the_rows_of_a_queryset_are_an_error_on_request() -> None:
    with transaction.atomic():
        with pytest.raises(DuplicateJob, match=r"came to 4 jobs .* only 3 unique keys"):
            push_once.enqueue_from(Effect.objects.all(), product_id=F("job_id"))
        assert count_jobs() == 0
        first = push_once.enqueue(2)
        with pytest.raises(DuplicateJob, match=rf"job {first.id} has 'push:2'") as met:
            push_once.enqueue_from(Effect.objects.filter(key="b"), product_id=F("job_id"))
        assert met.value.job_id == int(first.id)
        assert push_once.enqueue_from(Effect.objects.filter(job_id=1, key="a"), product_id=1) == 1


@pytest.mark.usefixtures("effects")
def test_a_queryset_that_meets_two_scopes_is_refused() -> None:
    start_job(push.enqueue(1).id)
    with transaction.atomic():
        with pytest.raises(JobError, match=r"met 1 job of .*cannot merge into"):
            push.using(on_conflict="replace").enqueue_from(
                Effect.objects.all(), product_id=F("job_id")
            )
        assert count_jobs() == 1


@pytest.mark.slow
@pytest.mark.parametrize("unique", [push, push_waiting, push_latest], ids=lambda t: t.func.__name__)
def test_the_time_grows_with_the_number_of_rows_and_not_with_its_square(unique: Task) -> None:
    """Not even where the planner expects one row: 20,000 take a second, and would take minutes."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {Effect._meta.db_table} (key, made_at)"
            " SELECT number, now() FROM generate_series(1, 20000) AS number"
        )
        cursor.execute(f"ANALYZE {Effect._meta.db_table}")
    queryset = Effect.objects.filter(Q(pk=F("pk") + 0) & Q(pk=F("pk") * 1) & Q(pk=F("pk") - 0))
    assert unique.enqueue_from(queryset, product_id=F("pk")) == 20_000
    assert unique.enqueue_from(queryset, product_id=F("pk")) == 0


@pytest.mark.slow
@pytest.mark.parametrize("known", KNOWN)
def test_the_job_that_is_met_is_read_alone_however_few_the_planner_knows_of(known: str) -> None:
    # Their keys are long, so the planner may take their index for longer than the table.
    fill = (
        "INSERT INTO pgjobs_job (task_path, unique_key)"
        " SELECT 'shop.tasks.send', n || repeat('x', 100) FROM generate_series(1, 20000) AS n"
    )
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE pgjobs_job")
        cursor.execute(fill)
        forget_jobs(cursor, known)
        before = rows_read(cursor, "pgjobs_job_live")
        for unique in (push, push_waiting, push_latest):
            assert unique.enqueue(1).id == unique.enqueue(1).id
        assert rows_read(cursor, "pgjobs_job_live") - before < 20
