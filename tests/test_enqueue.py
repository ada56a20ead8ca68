"""Enqueueing one job: what is stored, in whose transaction, and what is refused before."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import psycopg
import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import IntegrityError, connection, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_pgjobs import task
from django_pgjobs.models import Job
from django_pgjobs.queries.enqueue import EMPTY, JOB_VALUES, JobLine, StartColumns, TaskColumns
from tests import tasks
from tests.aliases import JobsTo, extra_alias
from tests.factories import count_jobs, get_job
from tests.models import Effect

WHEN = datetime(2031, 5, 6, 7, 8, 9, 123_456, tzinfo=UTC)


@task
def take(a: int, /, b: int = 2, *, c: int, d: int = 4) -> None:
    """Has parameters of every kind."""


@task(takes_context=True)
def take_context(context: Any, a: int = 0, **more: Any) -> None:
    """Takes the context, and anything by name."""


@task(
    priority=7,
    queue_name="mail",
    max_attempts=3,
    timeout=1.5,
    correlation_id="c",
    tags=["x", "y"],
    metadata={"team": "ä"},
)
def declared(a: int) -> None:
    """Declares every option that is stored with a job."""


def _renamed() -> None: ...


renamed = task(_renamed)

pytestmark = pytest.mark.django_db


def test_an_enqueue_is_one_insert() -> None:
    """S1.7, S3.1, S3.4: to run a job you insert a row; nothing else."""
    with CaptureQueriesContext(
        connection,
    ) as queries:
        result = tasks.add.enqueue(1, 2)
    [statement] = [query["sql"] for query in queries]
    assert statement.startswith("INSERT INTO pgjobs_job ")
    job = get_job(result.id)
    assert (job.status, job.task_path, job.args, job.kwargs) == (
        "ready",
        "tests.tasks.add",
        [1, 2],
        {},
    )


def test_what_an_insert_does_not_name_is_empty() -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO pgjobs_job (task_path) VALUES ('shop.tasks.bare') RETURNING id")
        [[job_id]] = cursor.fetchall()
    job = get_job(job_id)
    assert (job.run_after, job.expires_at) == (None, None)
    assert (job.concurrency_key, job.rate_limit_keys) == (None, None)
    for name in EMPTY.keys() - {"expires", "expires_in"}:
        is_json = name in ("args", "kwargs", "metadata")
        assert getattr(job, name) == (json.loads(EMPTY[name]) if is_json else EMPTY[name]), name


def test_each_parameter_of_an_insert_has_a_column() -> None:
    by_keys = {"unique_key"}  # of which statements of their own insert jobs
    names = {*TaskColumns.__annotations__, *StartColumns.__annotations__, *JobLine._fields}
    for name in names - by_keys:
        [column] = [column for column, value in JOB_VALUES.items() if f"%({name})s" in value]
        others = {"delay": "run_after", "expires": "expires_at", "expires_in": "expires_at"}
        assert column == others.get(name, name)


class AnyCase(str):
    """A text that equals those which differ in the case of their letters only."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and self.lower() == other.lower()

    def __ne__(self, other: object) -> bool:
        return not self == other


def test_a_text_that_says_to_equal_the_default_is_stored_as_it_is() -> None:
    to_queue = tasks.add.using(queue_name=AnyCase("DEFAULT"))
    [bulk_id] = to_queue.enqueue_many([(1, 2)])
    names = [get_job(job_id).queue_name for job_id in (to_queue.enqueue(1, 2).id, bulk_id)]
    assert names == ["DEFAULT", "DEFAULT"]


def test_the_declared_options_are_stored() -> None:
    job = get_job(declared.enqueue(a=1).id)
    assert (job.args, job.kwargs, job.backend) == ([], {"a": 1}, "default")
    assert (job.priority, job.queue_name, job.max_attempts, job.timeout) == (7, "mail", 3, 1.5)
    assert (job.correlation_id, job.tags, job.metadata) == ("c", ["x", "y"], {"team": "ä"})
    assert (job.run_after, job.due_at, job.claim, job.attempts) == (None, None, 0, 0)


def test_options_of_using_are_stored() -> None:
    """S4.7, S4.8: a correlation id."""
    changed = declared.using(
        priority=-3,
        queue_name="q",
        run_after=WHEN,
        max_attempts=9,
        timeout=2,
        correlation_id="d",
        tags=["z"],
        metadata={"n": [1]},
    )
    job = get_job(changed.enqueue(1).id)
    assert (job.priority, job.queue_name, job.max_attempts, job.timeout) == (-3, "q", 9, 2)
    assert (job.correlation_id, job.tags, job.metadata) == ("d", ["z"], {"n": [1]})
    assert (job.run_after, job.due_at) == (WHEN, WHEN)


def test_without_max_attempts_the_setting_decides() -> None:
    assert get_job(tasks.add.enqueue(1, 2).id).max_attempts == 25
    with override_settings(PGJOBS={"MAX_ATTEMPTS": 4}):
        assert get_job(tasks.add.enqueue(1, 2).id).max_attempts == 4


@pytest.mark.parametrize("priority", [5.0, 5])
def test_a_whole_number_of_any_type_is_a_priority(priority: Any) -> None:
    assert get_job(tasks.add.using(priority=priority).enqueue(1, 2).id).priority == 5


def test_values_are_stored_as_they_were_sent() -> None:
    """Not as `jsonb` would: 1e16, -0.0, the order of keys and double keys stay."""
    value = {"z": 1e16, "a": -0.0, 1: "x", "1": "y"}
    result = tasks.echo.using(metadata=value).enqueue(value, v=value)
    text = '{"z":1e+16,"a":-0.0,"1":"x","1":"y"}'
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT args::text, kwargs::text, metadata::text FROM pgjobs_job WHERE id = %s",
            [int(result.id)],
        )
        assert cursor.fetchall() == [(f"[{text}]", f'{{"v":{text}}}', text)]


NAMES = ["'; DROP TABLE pgjobs_job; --", '"quoted"', "ä" * 64, "%s %(x)s {}", "q" * 128, "\n\t"]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_is_only_a_name(name: str) -> None:
    result = tasks.add.using(queue_name=name, correlation_id=name, tags=[name]).enqueue(name, "b")
    job = get_job(result.id)
    assert (job.queue_name, job.correlation_id, job.tags) == (name, name, [name])
    assert job.args == [name, "b"]


def test_a_timedelta_counts_from_the_clock_of_the_database() -> None:
    """S1.22: no clock of a client is involved."""
    result = tasks.add.using(run_after=timedelta(hours=1, microseconds=7)).enqueue(1, 2)
    job = get_job(result.id)
    assert job.run_after - job.enqueued_at == timedelta(hours=1, microseconds=7)
    assert job.due_at == job.run_after == result.task.run_after


def test_a_timedelta_of_zero_and_a_past_instant_are_due_at_once() -> None:
    for run_after in (timedelta(0), datetime(1999, 1, 1, tzinfo=UTC), WHEN.replace(year=1)):
        job = get_job(tasks.add.using(run_after=run_after).enqueue(1, 2).id)
        assert job.run_after is not None
        assert job.due_at is None


def test_an_instant_of_another_zone_is_the_same_instant() -> None:
    local = WHEN.astimezone(timezone(timedelta(hours=-9, minutes=-30)))
    result = tasks.add.using(run_after=local).enqueue(1, 2)
    assert get_job(result.id).run_after == WHEN == result.task.run_after


def test_without_time_zones_a_naive_time_is_local() -> None:
    with override_settings(USE_TZ=False):
        result = tasks.add.using(run_after=datetime(2031, 5, 6, 7)).enqueue(1, 2)  # noqa: DTZ001
        assert result.task.run_after == datetime(2031, 5, 6, 7)  # noqa: DTZ001
    # Asia/Kathmandu is 5:45 ahead.
    assert get_job(result.id).run_after == datetime(2031, 5, 6, 1, 15, tzinfo=UTC)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((1,), {"c": 3}), ((1, 2), {"c": 3, "d": 4}), ((1,), {"b": 2, "c": 3})],
)
def test_a_call_that_fits_is_stored_as_it_was_made(args: Any, kwargs: Any) -> None:
    """S3.3."""
    job = get_job(take.enqueue(*args, **kwargs).id)
    assert (job.args, job.kwargs) == (list(args), kwargs)


@pytest.mark.django_db(transaction=True)
def test_a_job_exists_for_others_only_when_its_transaction_has_committed(
    open_connection: Callable[..., psycopg.Connection],
) -> None:
    """S5.3: until then no worker can see it, much less start it."""
    other = open_connection()
    count = "SELECT count(*) FROM pgjobs_job"
    with transaction.atomic():
        Effect.objects.create(key="x")
        result = tasks.add.enqueue(1, 2)
        assert tasks.add.get_result(result.id) == result
        assert connection.run_on_commit == []
        assert other.execute(count).fetchone() == (0,)
    assert other.execute(count).fetchone() == (1,)


@pytest.mark.django_db(transaction=True)
def test_a_job_rolls_back_with_the_data_it_is_about() -> None:
    """S5.4: nothing is written to two places."""
    with suppress(ZeroDivisionError), transaction.atomic():
        Effect.objects.create(key="x")
        tasks.add.enqueue(1, 2)
        raise ZeroDivisionError
    assert (Effect.objects.count(), count_jobs()) == (0, 0)


@pytest.mark.django_db(transaction=True)
def test_a_failing_statement_takes_the_job_with_it() -> None:
    with suppress(IntegrityError), transaction.atomic():
        tasks.add.enqueue(1, 2)
        Effect.objects.create(key=None)
    assert count_jobs() == 0


@pytest.mark.django_db(transaction=True)
def test_a_savepoint_keeps_and_drops_its_own_jobs() -> None:
    with transaction.atomic():
        kept = tasks.add.enqueue(1, 1)
        with suppress(ZeroDivisionError), transaction.atomic():
            tasks.add.enqueue(2, 2)
            raise ZeroDivisionError
        with transaction.atomic():
            also_kept = tasks.add.enqueue(3, 3)
    assert sorted(Job.objects.values_list("id", flat=True)) == [int(kept.id), int(also_kept.id)]


def test_an_async_enqueue_stores_the_same_in_the_same_transaction() -> None:
    with CaptureQueriesContext(connection) as queries:
        with transaction.atomic():
            result = async_to_sync(declared.aenqueue)(a=1)
            assert get_job(result.id).kwargs == {"a": 1}
            transaction.set_rollback(True)
    assert [q["sql"].split()[0] for q in queries] == [
        "SAVEPOINT",
        "INSERT",
        "SELECT",
        "ROLLBACK",
        "RELEASE",
    ]
    assert count_jobs() == 0


def test_an_async_view_enqueues_with_its_data() -> None:
    async def view() -> str:
        effect = await Effect.objects.acreate(key="async")
        result = await tasks.touch_async.aenqueue("path", text=effect.key)
        return (await sync_to_async(get_job)(result.id)).kwargs["text"]

    assert async_to_sync(view)() == "async"


@pytest.mark.django_db(transaction=True)
def test_the_router_decides_on_which_alias_and_so_in_whose_transaction() -> None:
    """Holds on the alias of the jobs; check pgjobs.W001 warns where it is another one."""
    with extra_alias("jobs"), override_settings(DATABASE_ROUTERS=[JobsTo("jobs")]):
        with transaction.atomic("default"):
            elsewhere = tasks.add.enqueue(1, 2)
            tasks.add.enqueue_many([(1, 2)])
            transaction.set_rollback(True, "default")
        with transaction.atomic("jobs"):
            tasks.add.enqueue(1, 2)
            transaction.set_rollback(True, "jobs")
        assert tasks.add.get_result(elsewhere.id) == elsewhere
        assert Job.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_connections_that_bind_on_the_server_store_the_same() -> None:
    options = {"server_side_binding": True}
    with extra_alias("jobs", OPTIONS=options), override_settings(DATABASE_ROUTERS=[JobsTo("jobs")]):
        result = declared.using(run_after=timedelta(seconds=5)).enqueue(1)
        assert declared.get_result(result.id) == result
        ids = declared.enqueue_many([(1,), {"a": 2}])
        assert [get_job(job_id).queue_name for job_id in ids] == ["mail", "mail"]
        Effect.objects.create(key="k")
        assert declared.enqueue_from(Effect.objects.using("jobs"), a="text") == 1


def test_a_task_under_another_name_than_its_function_is_refused() -> None:
    """No worker would find it: the path leads to the bare function."""
    for enqueue in (renamed.enqueue, lambda: renamed.enqueue_many([()])):
        with pytest.raises(Exception, match=r"expected tests\.test_enqueue\._renamed to be a task"):
            enqueue()
    assert count_jobs() == 0
