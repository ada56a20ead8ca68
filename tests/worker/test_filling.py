"""Rows that somebody writes without what their tasks declare: they get it before they start."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import F
from psycopg import sql

from django_pgjobs import Task, requeue
from django_pgjobs.models import RateLimit
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.testing import run_jobs
from django_pgjobs.worker.claiming.filling import filling_of
from django_pgjobs.worker.running.calling import make_attempt
from django_pgjobs.worker.running.outcome import released
from tests.factories import count_jobs, get_job, make_job
from tests.helpers import wait_until
from tests.models import Effect
from tests.worker import declared
from tests.worker.support import (
    Lane,
    ThreadedWorker,
    claim,
    make_options,
    write,
)

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., ThreadedWorker]
# What does not tell how a job came into the table.
OTHERS = {"id", "enqueued_at", "max_attempts", "max_losses", "timeout", "args", "kwargs", "claim"}


@pytest.fixture(autouse=True)
def _forget() -> None:
    for each in (declared.running, declared.most, declared.order):
        each.clear()


def insert(task: Task, count: int = 1, **columns: Any) -> list[int]:
    """Insert jobs of a task as a stranger does, who knows its path and arguments."""
    return [make_job(task.module_path, **columns) for _ in range(count)]


def come_upon(own: OwnConnection, worker: int, max_jobs: int = 10) -> list[Any]:
    """Claim jobs; return their attempts with the outcomes that give them what they lack."""
    rows = claim(own, worker, max_jobs)
    attempts = [make_attempt(row, make_options()) for row in rows]
    return [(attempt, filling_of(attempt)) for attempt in attempts]


def plain(job_id: int | str) -> dict[str, Any]:
    """Return the columns of a job that say when it starts, and what happened to it."""
    columns: dict[str, Any] = vars(get_job(job_id))
    return {name: value for name, value in columns.items() if name not in OTHERS}


CALLS: list[tuple[Task, dict[str, Any]]] = [
    (declared.one_at_a_time, {"shop_id": 7}),
    (declared.two_at_a_time, {}),
    (declared.limited, {"shop_id": 7}),
    (declared.placed, {}),
    (declared.unique, {"month": "May"}),
    (declared.unique_until_claimed, {"month": "May"}),
    (declared.merged, {"product_id": 1, "fields": ["a"]}),
    (declared.keyed_by_function, {"shop_id": 7}),
]


@pytest.mark.parametrize(("task", "kwargs"), CALLS, ids=[task.name for task, _ in CALLS])
def test_a_row_comes_to_be_what_enqueue_writes(
    own: OwnConnection, worker: int, task: Task, kwargs: dict[str, Any]
) -> None:
    """S1.7."""
    with transaction.atomic():
        wanted = plain(task.enqueue(**kwargs).id)
        transaction.set_rollback(True)
    [job_id] = insert(task, kwargs=kwargs)
    batch = come_upon(own, worker)
    assert write(own, *batch) >= {job_id}
    assert plain(job_id) == wanted
    [(attempt, _)] = batch
    assert get_job(job_id).claim == (0 if wanted["unique_until_claimed"] else attempt.claim + 1)


def test_what_a_row_says_itself_goes_first(own: OwnConnection, worker: int) -> None:
    given = {"concurrency_key": "mine", "queue_name": "default", "priority": -3}
    [job_id] = insert(declared.one_at_a_time, kwargs={"shop_id": 7}, **given)
    [placed] = insert(declared.placed, priority=1, queue_name="urgent")
    run_jobs()
    job = get_job(job_id)
    assert (job.concurrency_key, job.priority, job.is_declared) == ("mine", -3, False)
    job = get_job(placed)
    assert (job.queue_name, job.priority, job.is_declared) == ("urgent", 1, False)


@pytest.mark.slow
def test_who_says_that_a_row_is_declared_has_it_run_as_it_is() -> None:
    [job_id] = insert(declared.placed, is_declared=True)
    assert run_jobs() == 1
    assert (get_job(job_id).queue_name, get_job(job_id).priority) == ("default", 0)


def test_a_concurrency_key_holds_for_plain_inserts(drain: Start) -> None:
    """S3.4; in the order of their ids, with one worker."""
    ids = [make_job(declared.one_at_a_time.module_path, args=[7, n]) for n in range(12)]
    drain(concurrency=8)
    assert {get_job(job_id).status for job_id in ids} == {"successful"}
    assert declared.most == {"shop:7": 1}
    assert declared.order == list(range(12))
    assert {(get_job(job_id).attempts, *get_job(job_id).worker_ids) for job_id in ids} == {
        (1, "test:1")
    }


@pytest.mark.slow
def test_a_limit_without_a_key_holds_for_plain_inserts_over_several_workers(
    start_thread: Start,
) -> None:
    insert(declared.two_at_a_time, 30)
    for number in range(3):
        start_thread(name=f"test:{number}", concurrency=4, poll_interval=0.05)
    wait_until(lambda: count_jobs(status="successful") == 30)
    assert declared.most["two"] <= 2


def test_a_rate_limit_holds_for_plain_inserts(start_thread: Start) -> None:
    for name in ("declared-api", "declared-all"):
        RateLimit.objects.create(name=name, count=10, period=3600, burst=6)
    ids = insert(declared.limited, 10, kwargs={"shop_id": 7})
    start_thread(concurrency=8, poll_interval=0.05)
    free = insert(declared.free, priority=-1)
    wait_until(lambda: all(get_job(job_id).is_declared for job_id in ids))
    wait_until(lambda: count_jobs(status="successful") == 4 and get_job(free[0]).finished_at)
    assert count_jobs(status="ready") == 7


def test_jobs_move_to_the_queue_that_their_task_declares(start_thread: Start) -> None:
    """Where a worker of that queue, which is idle, hears of them."""
    mail = start_thread(name="mail", queues=frozenset({"mail"}))
    wait_until(lambda: mail.listens)
    start_thread(queues=frozenset({"default"}))
    [job_id] = insert(declared.placed)
    wait_until(lambda: get_job(job_id).status == "successful")
    job = get_job(job_id)
    assert (job.queue_name, job.priority, job.worker_ids) == ("mail", 7, ["mail"])


def test_a_twin_of_a_live_job_ends_with_a_note(drain: Start) -> None:
    first = int(declared.unique.using(queue_name="later").enqueue(month="May").id)
    twin, other = (make_job(declared.unique.module_path, args=[m]) for m in ("May", "June"))
    drain(queues=frozenset({"default"}))
    job = get_job(twin)
    assert (job.status, job.note) == ("cancelled", f"cancelled: job {first} has its unique key")
    assert (job.attempts, job.worker_ids, job.worker_id) == (0, [], None)
    assert job.finished_at is not None
    assert get_job(other).status == "successful"


def test_of_twins_of_one_claim_the_oldest_stays(own: OwnConnection, worker: int) -> None:
    """Also beside one that somebody cancelled."""
    ids = [make_job(declared.unique.module_path, args=["May"]) for _ in range(4)]
    batch = come_upon(own, worker)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgjobs_job SET cancel_requested_at = now() WHERE id = %s", [ids[0]])
    write(own, *batch)
    assert [get_job(job_id).status for job_id in ids] == ["cancelled", "ready"] + ["cancelled"] * 2


def test_of_twins_that_come_together_the_oldest_runs(drain: Start) -> None:
    """In one claim: one that is claimed when the first has finished comes later."""
    ids = [make_job(declared.unique.module_path, args=["May"]) for _ in range(5)]
    drain(concurrency=5)
    assert [get_job(job_id).status for job_id in ids] == ["successful"] + ["cancelled"] * 4
    assert get_job(ids[4]).note == f"cancelled: job {ids[0]} has its unique key"


def test_a_twin_can_be_requeued_once_its_key_is_free(drain: Start) -> None:
    ids = [make_job(declared.unique.module_path, args=["May"]) for _ in range(2)]
    drain()
    assert requeue(ids[1])
    drain()
    assert get_job(ids[1]).status == "successful"


def test_what_would_have_been_merged_is_not_lost(drain: Start) -> None:
    declared.merged.using(queue_name="later").enqueue(product_id=1, fields=["title"])
    ids = insert(declared.merged, 2, kwargs={"product_id": 1, "fields": ["price"]})
    drain(queues=frozenset({"default", "mail"}))
    assert [(get_job(i).status, get_job(i).result) for i in ids] == [("successful", ["price"])] * 2


def test_a_key_that_is_free_at_the_claim_is_held_until_it_is_claimed_to_run(
    own: OwnConnection, worker: int
) -> None:
    [job_id] = insert(declared.merged, kwargs={"product_id": 1, "fields": ["price"]})
    write(own, *come_upon(own, worker))
    assert declared.merged.enqueue(product_id=1, fields=["title"]).id == str(job_id)
    assert run_jobs() == 1
    assert get_job(job_id).result == ["price", "title"]


@pytest.mark.parametrize(
    ("task", "kwargs", "error"),
    [
        (declared.keyed_by_function, {"shop_id": -1}, "builtins.LookupError"),
        (declared.one_at_a_time, {"shop_id": 1.5}, "builtins.TypeError"),
        (declared.one_at_a_time, {"product": 1}, "builtins.TypeError"),
    ],
)
def test_a_key_that_comes_to_nothing_fails_its_job_alone(
    drain: Start, task: Task, kwargs: dict[str, Any], error: str
) -> None:
    [bad] = insert(task, kwargs=kwargs)
    good = insert(declared.keyed_by_function, 3, kwargs={"shop_id": 1})
    drain()
    job = get_job(bad)
    assert (job.status, job.attempts) == ("failed", 1)
    assert [entry["exception_class"].split(".")[-1] for entry in job.errors] == [
        error.split(".")[-1]
    ]
    assert job.note.startswith("failed: what its task declares")
    assert {get_job(job_id).status for job_id in good} == {"successful"}


def test_jobs_of_a_task_that_declares_nothing_run_at_once(own: OwnConnection, worker: int) -> None:
    """Nothing is written before; nor for a task that the worker does not have, as ever."""
    insert(declared.free, 3, kwargs={"what": "does not fit"})
    make_job("nobody.has.it")
    assert [outcome for _, outcome in come_upon(own, worker)] == [None] * 4


def test_jobs_that_enqueue_wrote_are_not_asked_about(own: OwnConnection, worker: int) -> None:
    declared.placed.using(queue_name="default", concurrency_limit=None).enqueue()
    [row] = claim(own, worker)
    assert row.undeclared is None


def test_an_async_task_is_no_other(drain: Start) -> None:
    ids = insert(declared.on_the_loop, 3, kwargs={"shop_id": 7})
    drain()
    assert {(get_job(i).status, get_job(i).concurrency_key) for i in ids} == {
        ("successful", "shop:7")
    }


def test_a_job_for_later_gets_it_when_it_is_due(start_thread: Start) -> None:
    soon = sql.SQL("now() + interval '0.3 second'")
    [job_id] = insert(declared.placed, run_after=soon)
    start_thread(poll_interval=0.05)
    wait_until(lambda: get_job(job_id).status == "successful")
    assert (get_job(job_id).queue_name, get_job(job_id).due_at) == ("mail", None)


def test_a_cancelled_job_ends_instead(own: OwnConnection, worker: int) -> None:
    [job_id] = insert(declared.placed)
    batch = come_upon(own, worker)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgjobs_job SET cancel_requested_at = now()")
    write(own, *batch)
    assert get_job(job_id).status == "cancelled"


def test_what_is_sent_twice_is_written_once(own: OwnConnection, worker: int) -> None:
    """Also if another attempt runs by then."""
    [job_id] = insert(
        declared.merged, kwargs={"product_id": 1, "fields": ["price"]}, queue_name="q"
    )
    [row] = claim(own, worker, lanes=[Lane("default", "q")])
    attempt = make_attempt(row, make_options())
    entry = (attempt, filling_of(attempt))
    assert write(own, entry) >= {job_id}  # type: ignore[arg-type]
    [again] = claim(own, worker, lanes=[Lane("default", "q")])
    assert (again.claim == row.claim, again.undeclared) == (False, None)
    assert job_id not in write(own, entry)  # type: ignore[arg-type]
    assert get_job(job_id).status == "running"


def test_a_filling_that_comes_too_late_changes_nothing(own: OwnConnection, worker: int) -> None:
    """The job was given back, and another attempt has it."""
    [job_id] = insert(declared.placed)
    late = come_upon(own, worker)
    give_back(own, late)
    come_upon(own, worker)
    assert job_id not in write(own, *late)
    job = get_job(job_id)
    assert (job.status, job.queue_name, job.is_declared) == ("running", "default", False)


def test_a_claim_that_is_not_the_first_counts(own: OwnConnection, worker: int) -> None:
    """An attempt has begun before, when the task declared nothing."""
    [job_id] = insert(
        declared.merged, kwargs={"product_id": 1, "fields": ["price"]}, attempts=1, claim=2
    )
    [(attempt, outcome)] = come_upon(own, worker)
    write(own, (attempt, outcome))
    assert get_job(job_id).claim == attempt.claim + 1


def test_a_claim_that_was_given_back_is_none(own: OwnConnection, worker: int) -> None:
    [job_id] = insert(declared.merged, kwargs={"product_id": 1, "fields": ["price"]})
    give_back(own, come_upon(own, worker))
    write(own, *come_upon(own, worker))
    assert get_job(job_id).claim == 0


def give_back(own: OwnConnection, batch: list[Any]) -> None:
    """Let the jobs of a claim wait again, as a worker does that stops."""
    write(own, *((attempt, released("the test says so")) for attempt, _ in batch))


def test_run_jobs_gives_jobs_what_their_tasks_declare() -> None:
    declared.unique.using(run_after=timedelta(hours=1)).enqueue("May")
    ids = [make_job(declared.unique.module_path, args=[month]) for month in ("May", "June")]
    assert run_jobs(at_once=False) == 1
    assert [get_job(job_id).status for job_id in ids] == ["cancelled", "successful"]


@pytest.mark.django_db(transaction=False)
def test_run_jobs_gives_jobs_their_keys() -> None:
    """Inside a TestCase."""
    [job_id] = insert(declared.one_at_a_time, kwargs={"shop_id": 7})
    assert run_jobs() == 1
    job = get_job(job_id)
    assert (job.status, job.concurrency_key, job.attempts) == ("successful", "shop:7", 1)


def test_the_flag_stays_with_a_job_that_is_requeued() -> None:
    [job_id] = insert(declared.placed)
    run_jobs()
    requeue(job_id)
    assert get_job(job_id).is_declared


def test_every_way_to_enqueue_sets_the_flag() -> None:
    Effect.objects.create(key="May")
    declared.free.enqueue()
    declared.free.enqueue_many([{}])
    declared.free.enqueue_from(Effect.objects.all())
    declared.placed.using(concurrency_key="k").enqueue()
    declared.placed.using(concurrency_key="k").enqueue_many([{}])
    declared.placed.using(concurrency_key="k").enqueue_from(Effect.objects.all())
    for conflict, until in (("return", None), ("return", "claimed"), ("replace", None)):
        chosen = declared.unique.using(
            unique_key=f"{conflict}:{until}:{{month}}", on_conflict=conflict, unique_until=until
        )
        chosen.enqueue("May")
        chosen.enqueue_many([("June",)])
        chosen.enqueue_from(Effect.objects.all(), month=F("key"))
    assert count_jobs(is_declared=False) == 0
