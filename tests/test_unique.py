"""Unique keys: an enqueue that meets a live job inserts nothing, and says what it met."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_pgjobs import DuplicateJob, JobError, Task, cancel, task
from django_pgjobs.compat import AnyResult, TaskResultStatus, task_enqueued
from tests import tasks
from tests.factories import count_jobs, get_job, make_job

pytestmark = pytest.mark.django_db


@task(unique_key="push:{product_id}", priority=3, tags=["t"])
def push(product_id: int, fields: Any = None) -> None:
    """Unique until it has finished; the second enqueue gives back the first."""


@task(unique_key="push:{product_id}", unique_until="claimed")
def push_waiting(product_id: int, fields: Any = None) -> None:
    """Unique as long as it waits."""


@task(unique_key="push:{product_id}", on_conflict="raise")
def push_once(product_id: int, fields: Any = None) -> None:
    """A second one is an error."""


@task(unique_key="push:{product_id}", on_conflict="replace", priority=3)
def push_latest(product_id: int, fields: Any = None) -> None:
    """The newest arguments count."""


@task(unique_key="{args}")
def push_exact(product_id: int, *more: Any, fields: Any = None, **others: Any) -> None:
    """UNIQUE (task, args)."""


def product_or_none(product_id: int, fields: Any) -> str | None:
    """Return the key of a product, None for product 0."""
    return f"product {product_id}" if product_id else None


@task(unique_key=product_or_none)
def push_some(product_id: int, fields: Any = None) -> None:
    """The key is computed."""


UNIQUE = (push, push_waiting, push_once, push_latest)
by_name = pytest.mark.parametrize("unique", UNIQUE, ids=lambda task: task.func.__name__)


def statements(call: Callable[[], object]) -> list[str]:
    """Return the first word of each statement that the call sends."""
    with CaptureQueriesContext(connection) as queries:
        call()
    return [query["sql"].split()[0] for query in queries]


def end_job(job_id: str | int, status: str = "successful") -> None:
    """Let a job have ended."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgjobs_job SET status = %s, finished_at = now(), claim = claim + 1"
            " WHERE id = %s",
            [status, int(job_id)],
        )


def start_job(job_id: str | int) -> None:
    """Let a job run, as a claim does."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgjobs_job SET status = 'running', claim = claim + 1, attempts = attempts + 1,"
            " worker_id = 1, worker_ids = '{w}', started_at = now(), last_attempted_at = now()"
            " WHERE id = %s",
            [int(job_id)],
        )


def give_back(job_id: str | int) -> None:
    """Let a running job wait for its next attempt."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgjobs_job SET status = 'ready', claim = claim + 1, worker_id = NULL"
            " WHERE id = %s",
            [int(job_id)],
        )


@by_name
def test_the_first_enqueue_is_one_statement_and_stores_the_key(unique: Task) -> None:
    sent: list[AnyResult] = []
    assert statements(lambda: sent.append(unique.enqueue(product_id=1, fields=["a"]))) == ["WITH"]
    job = get_job(sent[0].id)
    assert (job.unique_key, job.task_path) == ("push:1", unique.module_path)
    assert job.unique_until_claimed == (unique in (push_waiting, push_latest))
    assert (job.kwargs, job.status, job.merged_count) == (
        {"product_id": 1, "fields": ["a"]},
        "ready",
        0,
    )
    assert unique.get_result(sent[0].id) == sent[0]


def test_the_options_of_the_task_are_stored_as_without_a_key() -> None:
    options: dict[str, Any] = {
        "priority": 7,
        "queue_name": "mail",
        "max_attempts": 3,
        "timeout": 1.5,
        "correlation_id": "c",
        "tags": ["x", "ä"],
        "metadata": {"n": 1e16},
        "run_after": timedelta(hours=1),
        "concurrency_key": "shop:{product_id}",
        "concurrency_limit": 4,
        "ordering": "skip",
        "rate_limit": ["a", "b:{product_id}"],
        "rate_cost": 2,
    }
    plain = tasks.echo.using(
        **{
            k: v
            for k, v in options.items()
            if "key" not in k and k[:4] not in ("conc", "orde", "rate")
        }
    )
    expected = vars(get_job(plain.enqueue(1).id))
    for unique in UNIQUE:
        job = vars(get_job(unique.using(**options).enqueue(1).id))
        assert (job.pop("concurrency_key"), job.pop("concurrency_limit")) == ("shop:1", 4)
        assert (job.pop("skips_waiting"), job.pop("rate_cost")) == (True, 2)
        assert job.pop("rate_limit_keys") == "a\nb:1"
        assert job["due_at"] == job["run_after"] == job["enqueued_at"] + timedelta(hours=1)
        its_own = {"id", "enqueued_at", "run_after", "due_at", "task_path", "unique_key"}
        its_own |= {"unique_until_claimed", "lane"}
        assert {k: v for k, v in job.items() if k not in its_own} == {
            k: v for k, v in expected.items() if k in job and k not in its_own
        }


@pytest.mark.parametrize("unique", [push, push_waiting], ids=["finished", "claimed"])
def test_a_second_enqueue_gives_back_the_first_in_one_statement(unique: Task) -> None:
    """S5.6: nothing is inserted, nothing is changed."""
    first = unique.enqueue(1, fields=["a"])
    before = get_job(first.id)
    seen: list[AnyResult] = []
    again = unique.using(priority=9, run_after=timedelta(hours=1))
    assert statements(lambda: seen.append(again.enqueue(1, fields=["b"]))) == ["WITH"]
    assert seen[0].id == first.id
    assert (seen[0].args, seen[0].kwargs) == ([1], {"fields": ["a"]})
    assert seen[0] == unique.get_result(first.id)
    assert get_job(first.id) == before
    assert count_jobs() == 1


def test_what_is_given_back_may_be_running() -> None:
    """Unique until it has finished: it may have read what the caller has just changed."""
    first = push.enqueue(1)
    start_job(first.id)
    twin = push.enqueue(1)
    assert (twin.id, twin.status, twin.worker_ids) == (first.id, TaskResultStatus.RUNNING, ["w"])
    give_back(first.id)
    assert push.enqueue(1).id == first.id
    end_job(first.id)
    assert push.enqueue(1).id != first.id


@pytest.mark.parametrize("status", ["successful", "failed", "cancelled"])
@by_name
def test_a_finished_job_keeps_no_key(unique: Task, status: str) -> None:
    first = unique.enqueue(1)
    end_job(first.id, status)
    assert unique.enqueue(1).id != first.id


@by_name
def test_a_cancelled_job_keeps_no_key(unique: Task) -> None:
    first = unique.enqueue(1)
    assert cancel(first)
    assert unique.enqueue(1).id != first.id


@pytest.mark.parametrize("unique", [push_waiting, push_latest], ids=["return", "replace"])
def test_the_claim_frees_the_key_for_good(unique: Task) -> None:
    """What came after the claim was not seen by the attempt: so it gets a job of its own."""
    first = unique.enqueue(1)
    start_job(first.id)
    second = unique.enqueue(1)
    assert second.id != first.id
    give_back(first.id)
    assert unique.enqueue(1).id == second.id
    start_job(first.id)
    start_job(second.id)
    assert count_jobs(status="running", unique_key="push:1") == 2
    give_back(first.id)
    give_back(second.id)
    assert unique.enqueue(1).id not in (first.id, second.id)


def test_another_key_or_another_task_is_no_twin() -> None:
    made = {unique.enqueue(product).id for unique in UNIQUE for product in (1, 2)}
    assert len(made) == 8


def test_another_backend_alias_is_no_other_task() -> None:
    """The result says whose job it is."""
    first = make_job(push.module_path, backend="elsewhere", unique_key="push:1", args=[1])
    twin = push.enqueue(1)
    assert (twin.id, twin.backend) == (str(first), "elsewhere")


def test_a_twin_is_an_error_on_request() -> None:
    """S2.22: the transaction stays usable, and nothing was inserted."""
    first = push_once.enqueue(1)
    with transaction.atomic():
        with pytest.raises(DuplicateJob, match=rf"job {first.id} of .*push_once.*'push:1'") as met:
            push_once.enqueue(1, fields=2)
        assert met.value.job_id == int(first.id)
        assert isinstance(met.value, JobError)
        push_once.enqueue(2)
    assert count_jobs() == 2


def test_replacing_changes_the_waiting_job() -> None:
    first = push_latest.enqueue(1, fields=["a"])
    later = push_latest.using(
        priority=-2,
        run_after=timedelta(hours=1),
        concurrency_key="c:{fields}",
        rate_limit="r:{fields}",
    )
    seen: list[AnyResult] = []
    assert statements(lambda: seen.append(later.enqueue(product_id=1, fields="b"))) == ["WITH"]
    job = get_job(first.id)
    assert (job.args, job.kwargs) == ([], {"product_id": 1, "fields": "b"})
    assert (job.priority, job.merged_count, job.concurrency_key) == (-2, 1, "c:b")
    assert (job.rate_limit_keys, job.lane) == ("r:b", "c:b\nr:b")
    assert job.due_at == job.run_after
    assert job.run_after - job.enqueued_at > timedelta(minutes=59)
    assert seen[0] == push_latest.get_result(first.id)
    assert (seen[0].id, seen[0].kwargs, seen[0].task.priority) == (first.id, job.kwargs, -2)


def test_replacing_without_run_after_makes_the_job_due_now() -> None:
    first = push_latest.using(run_after=timedelta(hours=1)).enqueue(1)
    push_latest.enqueue(1)
    job = get_job(first.id)
    assert (job.run_after, job.due_at, job.merged_count) == (None, None, 1)


def test_the_signal_is_sent_for_jobs_that_were_inserted_only() -> None:
    sent: list[str] = []

    def receive(task_result: AnyResult, **kwargs: Any) -> None:
        sent.append(task_result.id)

    task_enqueued.connect(receive)
    try:
        ids = [unique.enqueue(1).id for unique in (push, push, push_latest, push_latest)]
        many = push_latest.enqueue_many([(1,), (2,), (2,), (3,)])
    finally:
        task_enqueued.disconnect(receive)
    assert (ids[0], ids[2], many[0]) == (ids[1], ids[3], ids[2])
    assert sent == [ids[0], ids[2], many[1], many[3]]


def test_the_async_twin_does_the_same() -> None:
    enqueue = async_to_sync(push.aenqueue)
    assert enqueue(1).id == enqueue(1).id != enqueue(2).id
    assert async_to_sync(push.aenqueue_many)([(1,), (1,)])[0] == enqueue(1).id


@pytest.mark.parametrize(
    ("one", "other", "are_twins"),
    [
        ((1,), {"product_id": 1}, True),
        ((1, 2), (1, 2), True),
        ((1, 2), (1, 3), False),
        ({"product_id": 1, "x": 2, "y": 3}, {"y": 3, "x": 2, "product_id": 1}, True),
        ({"product_id": 1, "fields": None}, {"product_id": 1}, True),
        ({"product_id": "1"}, {"product_id": 1}, False),
        ({"product_id": {"a": 1, "b": (2,)}}, {"product_id": {"b": [2], "a": 1}}, True),
        ({"product_id": {1: 2}}, {"product_id": {"1": 2}}, True),
        ({"product_id": b"x"}, {"product_id": "x"}, True),
        ({"product_id": "x" * 1_000}, {"product_id": "x" * 1_000}, True),
        ({"product_id": "x" * 1_000}, {"product_id": "x" * 1_001}, False),
    ],
    ids=str,
)
def test_all_arguments_may_be_the_key(one: Any, other: Any, are_twins: bool) -> None:
    """S5.6, S2.22: `UNIQUE (task, args)` is spelled "{args}"."""
    first, second = push_exact.enqueue_many([one, other])
    assert (first == second) == are_twins


def test_a_function_may_compute_the_key_or_give_none() -> None:
    assert push_some.enqueue(1).id == push_some.enqueue(product_id=1).id
    assert push_some.enqueue(0).id != push_some.enqueue(0).id
    assert get_job(push_some.enqueue(1).id).unique_key == "product 1"
    ids = push_some.enqueue_many([(0,), (1,), (0,), (1,), (2,)])
    assert len({*ids}) == 4
    assert ids[1] == ids[3]
    assert [get_job(job_id).args for job_id in ids] == [[0], [1], [0], [1], [2]]


def test_a_key_may_be_given_with_the_enqueue() -> None:
    """Any task, any key."""
    once = tasks.add.using(unique_key="nightly", on_conflict="raise")
    once.enqueue(1, 2)
    with pytest.raises(DuplicateJob):
        once.enqueue(3, 4)
    tasks.add.enqueue(5, 6)


def test_plain_sql_takes_part() -> None:
    """An INSERT from anywhere occupies the key, and its twin is met whoever made it."""
    job_id = make_job(push.module_path, unique_key="push:1", kwargs={"product_id": 1})
    assert push.enqueue(1).id == str(job_id)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO pgjobs_job_live (task_path, unique_key) VALUES (%s, 'push:1')"
            " ON CONFLICT (unique_key, task_path)"
            " WHERE unique_key IS NOT NULL AND (claim = 0 OR NOT unique_until_claimed) DO NOTHING",
            [push.module_path],
        )
        assert cursor.rowcount == 0


def test_two_scopes_of_one_key_are_refused_with_the_job_that_has_it() -> None:
    """One that runs is never changed."""
    first = push.enqueue(1)
    changing = push.using(on_conflict="replace")
    assert changing.enqueue(1, fields="b").id == first.id
    start_job(first.id)
    before = get_job(first.id)
    for other in (changing, push.using(unique_until="claimed"), push.using(on_conflict="merge")):
        with transaction.atomic():
            with pytest.raises(JobError, match=rf"job {first.id}, which is running, was claimed"):
                other.enqueue(1)
            with pytest.raises(JobError, match="unique_until"):
                other.enqueue_many([(1,), (2,)])
        assert get_job(first.id) == before
    assert count_jobs() == 1


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "type": (
        lambda: push.enqueue(1.5),
        "argument 'product_id' of unique_key to be text or a whole",
    ),
    "none": (lambda: push.enqueue(None), "to be text or a whole number, got None"),
    "truth": (lambda: push.enqueue(True), "to be text or a whole number, got True"),
    "long": (lambda: push.enqueue("x" * 508), "unique_key of at most 512 bytes, got 513"),
    "line": (lambda: push.enqueue("a\nb"), "expected unique_key to be one line of text"),
    "function": (
        lambda: push.using(unique_key=lambda **kwargs: 5).enqueue(1),  # type: ignore[arg-type,return-value]
        "expected unique_key to return text or None, got 5",
    ),
    "item": (
        lambda: push.enqueue_many([(1,), (None,)]),
        r"item 1 of enqueue_many\(\): expected the",
    ),
    "call": (lambda: push.enqueue_many([(1,), ()]), "item 1 .* missing a required argument"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_key_that_cannot_be_is_refused_before_anything_is_sent(name: str) -> None:
    call, said = REFUSED[name]
    with CaptureQueriesContext(connection) as queries:
        with pytest.raises((TypeError, ValueError), match=said):
            call()
    assert not [query for query in queries if "pgjobs" in query["sql"]]


def test_without_a_key_the_statement_is_the_plain_one() -> None:
    with CaptureQueriesContext(connection) as queries:
        tasks.add.enqueue(1, 2)
        tasks.add.enqueue_many([(1, 2)])
    inserts = [query["sql"] for query in queries if "INSERT" in query["sql"]]
    assert len(inserts) == 2
    assert all(text.startswith("INSERT INTO pgjobs_job (") for text in inserts)
    assert not any("unique" in text or "concurrency" in text for text in inserts)
