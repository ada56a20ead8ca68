"""Enqueueing a job per row of a QuerySet: one INSERT ... SELECT, no row in Python."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import DataError, IntegrityError, connection, transaction
from django.db.models import Count, F, FloatField, Max, Q, TextField, Value
from django.db.models.functions import Cast, Concat, Upper
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_pgjobs import Task
from django_pgjobs.compat import TASKS_PACKAGE
from django_pgjobs.models import Job
from tests import tasks
from tests.aliases import extra_alias
from tests.factories import count_jobs
from tests.models import Effect
from tests.test_enqueue import declared, take_context

pytestmark = pytest.mark.django_db

echo: Task = tasks.echo


@pytest.fixture(autouse=True)
def effects() -> list[Effect]:
    """Three rows."""
    return Effect.objects.bulk_create(
        Effect(key=key, job_id=number, attempt=number % 2)
        for number, key in enumerate(["a", "b", "ä\n'\\%s"], 1)
    )


def stored() -> list[dict[str, Any]]:
    """Return the arguments of all jobs, oldest first."""
    return list(Job.objects.order_by("id").values_list("kwargs", flat=True))


def test_a_job_per_row_in_one_insert(effects: list[Effect]) -> None:
    with CaptureQueriesContext(connection) as queries:
        count = echo.enqueue_from(Effect.objects.order_by("pk"), id=F("pk"), key=F("key"))
    assert count == 3
    assert sum("pgjobs_job" in query["sql"] for query in queries) == 1
    assert sum("FROM" in query["sql"] for query in queries) == 1
    assert stored() == [{"id": effect.pk, "key": effect.key} for effect in effects]


def test_only_the_rows_of_the_queryset_in_its_order() -> None:
    queryset = Effect.objects.filter(~Q(key="a")).order_by("-key")
    assert echo.enqueue_from(queryset, key=F("key")) == 2
    assert stored() == [{"key": "ä\n'\\%s"}, {"key": "b"}]


def test_expressions_are_computed_by_the_database() -> None:
    echo.enqueue_from(
        Effect.objects.filter(key="b"),
        upper=Upper("key"),
        sum=F("job_id") + 40,
        text=Concat(F("key"), Value("-%s-"), F("key"), output_field=TextField()),
        half=Cast("job_id", FloatField()) / 4,
        nothing=Value(None),
    )
    assert stored() == [{"upper": "B", "sum": 42, "text": "b-%s-b", "half": 0.5, "nothing": None}]


@pytest.mark.parametrize(
    "constant",
    ["text", "%s {} '\"\\", "", 0, -7, 2**40, 1.5, True, None, [1, {"a": None}], {"k": ["ä"]}, []],
    ids=repr,
)
def test_constants_are_the_same_for_every_job(constant: Any) -> None:
    assert echo.enqueue_from(Effect.objects.all(), value=constant, key=F("key")) == 3
    values = [kwargs["value"] for kwargs in stored()]
    assert values == [constant] * 3
    assert {type(value) for value in values} == {type(constant)}


def test_constants_are_normalized_as_arguments_are() -> None:
    echo.enqueue_from(Effect.objects.filter(key="a"), t=(1, b"x"), b=b"y", d={1: None})
    assert stored() == [{"t": [1, "x"], "b": "y", "d": {"1": None}}]


def test_slices_joins_and_aggregates_are_querysets_too() -> None:
    assert echo.enqueue_from(Effect.objects.order_by("pk")[1:3], key=F("key")) == 2
    per_attempt = Effect.objects.values("attempt").annotate(n=Count("pk"), last=Max("job_id"))
    assert echo.enqueue_from(per_attempt.order_by("attempt"), n=F("n"), last=F("last")) == 2
    distinct = Effect.objects.order_by("attempt").distinct("attempt")
    assert echo.enqueue_from(distinct, attempt=F("attempt")) == 2
    assert stored()[2:4] == [{"n": 1, "last": 2}, {"n": 2, "last": 3}]


@pytest.mark.parametrize(
    "queryset",
    [
        Effect.objects.none(),
        Effect.objects.filter(pk__in=[]),
        Effect.objects.filter(key="nobody"),
        Effect.objects.all()[0:0],
    ],
    ids=["none", "in nothing", "no match", "empty slice"],
)
def test_no_rows_are_no_jobs(queryset: Any) -> None:
    assert echo.enqueue_from(queryset, key=F("key")) == 0
    assert count_jobs() == 0


def test_every_job_gets_the_options_of_the_task() -> None:
    later = declared.using(run_after=timedelta(hours=1))
    assert later.enqueue_from(Effect.objects.all(), a=F("pk")) == 3
    for job in Job.objects.all():
        assert (job.priority, job.queue_name, job.max_attempts, job.timeout) == (7, "mail", 3, 1.5)
        assert (job.correlation_id, job.tags, job.metadata) == ("c", ["x", "y"], {"team": "ä"})
        assert job.run_after == job.due_at == job.enqueued_at + timedelta(hours=1)


def test_a_task_may_need_no_arguments_but_the_context() -> None:
    assert take_context.enqueue_from(Effect.objects.all()) == 3
    assert stored() == [{}] * 3


@pytest.mark.django_db(transaction=True)
def test_the_jobs_roll_back_with_the_transaction_of_the_caller() -> None:
    """Transactional enqueue."""
    with transaction.atomic():
        echo.enqueue_from(Effect.objects.all(), key=F("key"))
        transaction.set_rollback(True)
    assert count_jobs() == 0


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"text": Concat(*[Value("x" * 150_000)] * 8)}, IntegrityError),
        ({"ratio": F("job_id") / (F("attempt") - F("attempt"))}, DataError),
    ],
    ids=["too long", "division by zero"],
)
def test_what_the_server_refuses_leaves_the_transaction_usable(
    arguments: dict[str, Any], error: type[Exception]
) -> None:
    with transaction.atomic():
        kept = echo.enqueue("kept")
        with pytest.raises(error):
            echo.enqueue_from(Effect.objects.all(), **arguments)
        echo.enqueue_from(Effect.objects.all(), key=F("key"))
    assert count_jobs() == 4
    assert echo.get_result(kept.id).args == ["kept"]


def test_rows_of_another_database_are_refused_with_the_remedy() -> None:
    with extra_alias("other"):
        with pytest.raises(
            ValueError, match=r"on 'default', the database of the jobs.*'other'.*enqueue_many"
        ):
            echo.enqueue_from(Effect.objects.using("other"), key=F("key"))


def test_another_backend_is_refused_with_the_remedy() -> None:
    dummy = {"BACKEND": f"{TASKS_PACKAGE}.backends.dummy.DummyBackend"}
    with override_settings(TASKS={"default": dummy}):
        with pytest.raises(
            TypeError, match=r"needs PgJobsBackend .*got DummyBackend.*enqueue_many"
        ):
            echo.enqueue_from(Effect.objects.all(), key=F("key"))


def test_the_async_twin_stores_the_same() -> None:
    assert async_to_sync(echo.aenqueue_from)(Effect.objects.all(), key=F("key")) == 3
    assert {kwargs["key"] for kwargs in stored()} == {"a", "b", "ä\n'\\%s"}
