"""Threads and the event loop have room of their own, and only jobs that fit are claimed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
from django.db.models import Value

from django_pgjobs import Task, requeue
from django_pgjobs.choosing import Rooms
from django_pgjobs.models import Job, Worker
from django_pgjobs.queries import claims
from django_pgjobs.queries.claims import HEAD, Floor, Group, Lane, Segment
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.claiming.outlook import Outlook
from django_pgjobs.worker.claiming.plan import Claim
from tests import tasks
from tests.factories import count_jobs, get_job, make_job, make_jobs, make_worker
from tests.helpers import wait_until
from tests.worker import tasks as worker_tasks
from tests.worker.keyed import KEYED, keyed_claim, make_keyed
from tests.worker.planning import Knowing, keyed, plain
from tests.worker.support import (
    DEFAULT,
    Bench,
    Gate,
    ThreadedWorker,
    claim,
    ids,
    row_of_job,
)

Start = Callable[..., ThreadedWorker]

ASYNC = "tests.tasks.add_async"
LOOP = Lane("default", "default", is_async=True)
LOOP_KEYED = Group("default", "default", 0, is_async=True)
on_server = pytest.mark.django_db(transaction=True)


def make_async_jobs(count: int, **columns: Any) -> list[int]:
    """Insert jobs as an enqueue of an async task does."""
    return make_jobs(count, ASYNC, args=[1, 2], is_async=True, **columns)


# What is claimed


@on_server
@pytest.mark.parametrize("rooms", [(2, 5), (5, 2), (0, 3), (3, 0), (20, 20)])
def test_of_each_kind_as_many_are_claimed_as_there_is_room_for(
    own: OwnConnection, rooms: tuple[int, int]
) -> None:
    of_loop, of_threads = make_async_jobs(6), make_jobs(6)
    rows = claim(own, make_worker(), 40, lanes=[DEFAULT, LOOP], rooms=rooms)
    assert sorted(ids(rows)) == sorted(of_threads[: rooms[0]] + of_loop[: rooms[1]])


@on_server
def test_the_room_of_a_kind_is_for_all_of_its_lanes(own: OwnConnection) -> None:
    mail = [Lane("default", "mail", is_async) for is_async in (False, True)]
    jobs = [make_async_jobs(3), make_async_jobs(3, queue_name="mail", priority=1)]
    make_jobs(3, queue_name="mail")
    rows = claim(own, make_worker(), 40, lanes=[DEFAULT, LOOP, *mail], rooms=(1, 4))
    assert [row.id for row in rows if row.is_async] == [*jobs[1], jobs[0][0]]
    assert len(rows) == 5


@on_server
def test_a_limit_for_both_kinds_takes_the_best_of_both(own: OwnConnection) -> None:
    jobs = [make_job(is_async=number % 2 > 0, priority=-(number // 3)) for number in range(9)]
    worker = make_worker()
    for few in (jobs[:2], jobs[2:5], jobs[5:]):
        assert ids(claim(own, worker, len(few), lanes=[DEFAULT, LOOP])) == few


@on_server
def test_a_lane_gives_jobs_of_its_kind_only(own: OwnConnection) -> None:
    job = make_job()
    worker = make_worker()
    assert claim(own, worker, lanes=[LOOP]) == []
    assert ids(claim(own, worker, lanes=[DEFAULT])) == [job]


@on_server
@pytest.mark.parametrize("rooms", [(2, 5), (5, 2), (0, 3), (3, 0), (20, 20)])
def test_jobs_with_keys_are_claimed_by_kind_too(
    own: OwnConnection, worker: int, rooms: tuple[int, int]
) -> None:
    make_keyed(6, "a", 9)
    make_keyed(6, "b", 9, is_async=True)
    make_jobs(6)
    make_async_jobs(6)
    rows = keyed_claim(own, worker, 40, rooms=rooms)
    found = Counter(row.is_async for row in rows)
    assert (found[False], found[True]) == tuple(min(room, 12) for room in rooms)


@on_server
def test_the_jobs_of_one_kind_hide_no_jobs_of_the_other(own: OwnConnection, worker: int) -> None:
    """The list ends where there are enough of each."""
    for number in range(20):
        make_keyed(2, f"a{number:02}", 9)
    hidden = make_keyed(1, "b", 9, is_async=True)
    rows = keyed_claim(own, worker, 4, rooms=(2, 2))
    assert [row.id for row in rows if row.is_async] == hidden
    assert len(rows) == 3


@on_server
def test_no_more_lanes_are_read_than_there_is_room_for(own: OwnConnection, worker: int) -> None:
    for number in range(9):
        make_keyed(1, f"a{number}", 9)
        make_keyed(1, f"b{number}", 9, is_async=True)
    with mock.patch.object(claims, "heads_of", wraps=claims.heads_of) as read:
        keyed_claim(own, worker, 9, rooms=(2, 3))
    listed = claims.heads_of(*read.call_args.args)
    assert Counter(head.is_async for head in listed) == {False: 2, True: 3}


@on_server
def test_an_ordered_key_keeps_its_order_over_both_kinds(own: OwnConnection, worker: int) -> None:
    first = make_job(is_async=True, concurrency_key="shop:1")
    make_job(concurrency_key="shop:1")
    assert keyed_claim(own, worker, 5, rooms=(5, 0)) == []
    assert ids(keyed_claim(own, worker, 5, rooms=(5, 5))) == [first]


# What is learnt of a claim


def test_places_of_a_kind_without_room_are_left_out_and_stay_known() -> None:
    knowing = Knowing(*plain(DEFAULT, LOOP), *keyed(KEYED, LOOP_KEYED))
    plan = knowing.claim(rooms=(0, 9))
    assert (plan.floors, plan.segments) == ({LOOP: HEAD}, [Segment(LOOP_KEYED)])
    assert knowing.places.claim_at(0.0, Rooms(0, 9)) == float("inf")
    plan = knowing.claim(rooms=(9, 9))
    assert (plan.floors, plan.segments) == ({DEFAULT: HEAD}, [Segment(KEYED)])
    assert knowing.places.is_empty


def test_a_kind_whose_room_was_filled_may_have_more() -> None:
    knowing = Knowing(*plain(DEFAULT, LOOP))
    knowing.claim(row_of_job(1), row_of_job(2, is_async=True), rooms=(1, 9))
    plan = knowing.plan(rooms=(1, 9))
    assert plan
    assert plan.floors == {DEFAULT: Floor(0, 1)}, "the loop has had all there were"


def test_a_claim_that_is_full_in_all_may_have_left_jobs_of_both_kinds() -> None:
    knowing = Knowing(*plain(DEFAULT, LOOP))
    plan = knowing.plan(rooms=(5, 5), wanted=2)
    assert plan
    knowing.places.note_claimed(Claim(plan, [row_of_job(1), row_of_job(2)], held=True))
    plan = knowing.plan(rooms=(5, 5))
    assert plan
    assert plan.floors == {DEFAULT: Floor(0, 2), LOOP: HEAD}


def test_groups_of_one_kind_are_forgotten_without_those_of_the_other() -> None:
    knowing = Knowing(*keyed(KEYED, LOOP_KEYED))
    knowing.claim(row_of_job(1, lane="a"), rooms=(1, 9))
    plan = knowing.plan(rooms=(1, 9))
    assert plan
    assert {segment.group for segment in plan.segments} == {KEYED}


def test_a_key_that_became_free_is_kept_in_mind_while_its_kind_has_no_room() -> None:
    knowing = Knowing(*keyed(KEYED, LOOP_KEYED))
    knowing.claim(rooms=(0, 5), seconds=9.0)
    knowing.find(*keyed(KEYED, LOOP_KEYED))
    knowing.places.note_ended([row_of_job(1, lane="a")])
    knowing.claim(rooms=(0, 5), seconds=9.0)
    plan = knowing.plan(rooms=(5, 5))
    assert plan
    assert plan.segments == [Segment.single(KEYED, "a")]


def test_a_refused_claim_goes_on_with_what_is_left_of_the_room() -> None:
    plan = Knowing(*plain(DEFAULT, LOOP)).plan(rooms=(3, 9))
    assert plan
    rest = plan.after([row_of_job(1), row_of_job(2), row_of_job(3, is_async=True)], 5)
    assert (rest.rooms, rest.wanted) == (Rooms(1, 8), 5)
    most = [row_of_job(number, is_async=number < 9) for number in range(11)]
    assert plan.after(most, 5).wanted == 1


# What rows say


@on_server
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"concurrency_key": "k"},
        {"unique_key": "u:{a}"},
        {"unique_key": "u:{a}", "unique_until": "claimed"},
        {"unique_key": "u:{a}", "on_conflict": "replace"},
    ],
    ids=["plain", "keyed", "unique", "locked", "merged"],
)
def test_every_way_of_enqueueing_says_the_kind(options: dict[str, Any]) -> None:
    make_worker()
    for task in (tasks.add, tasks.add_async):
        declared = replace(task, **options)
        declared.enqueue(a=1, b=2)
        declared.enqueue_many([{"a": 2, "b": 2}])
        declared.enqueue_from(Worker.objects.all(), a=Value("3"), b=Value("4"))
    found = Job.objects.values_list("task_path", "is_async")
    assert Counter(found) == {("tests.tasks.add", False): 3, (ASYNC, True): 3}


@on_server
@pytest.mark.parametrize("task", [tasks.add, tasks.add_async])
def test_a_job_that_waits_for_another_says_its_kind(task: Task) -> None:
    waiting = task.using(after=[make_job()]).enqueue(1, 2)
    assert get_job(waiting.id).is_async == (task is tasks.add_async)


@on_server
@pytest.mark.parametrize("task", [tasks.add, tasks.add_async])
def test_a_job_that_tells_of_a_failure_says_its_kind(bench: Bench, task: Task) -> None:
    """The server inserts it."""
    replace(tasks.fail, on_failure=task, max_attempts=1).enqueue()
    bench.run()
    [job] = Job.objects.filter(task_path=task.module_path)
    assert job.is_async == (task is tasks.add_async)


@on_server
def test_a_job_that_is_requeued_keeps_its_kind() -> None:
    job = make_job(ASYNC, args=[1, 2], is_async=True, status="failed")
    assert requeue(job)
    assert get_job(job).is_async


@on_server
@pytest.mark.parametrize("hint", [True, False])
@pytest.mark.parametrize("task_path", ["tests.tasks.add", ASYNC])
def test_what_runs_where_is_decided_by_the_task(drain: Start, task_path: str, hint: bool) -> None:
    """Somebody wrote the row, or the task was another kind of function when it was enqueued."""
    jobs = make_jobs(20, task_path, args=[1, 2], is_async=hint)
    drain(concurrency=1, async_concurrency=2)
    assert {get_job(job).status for job in jobs} == {"successful"}


@pytest.mark.slow
@on_server
def test_a_job_whose_row_is_wrong_goes_back_to_where_it_belongs(
    start_thread: Start, gate: Gate
) -> None:
    """It was claimed for a thread and waits for the loop: that is for nobody to repeat."""
    worker_tasks.wait_at_gate_async.enqueue()
    start_thread(concurrency=4, async_concurrency=1)
    gate.wait_entered()
    wrong = make_job(ASYNC, args=[1, 2])
    wait_until(lambda: get_job(wrong).is_async)
    assert get_job(wrong).status == "ready"
    given_back = get_job(wrong).claim
    done = tasks.add.enqueue(1, 2)
    wait_until(lambda: get_job(done.id).status == "successful")
    assert get_job(wrong).claim == given_back, "not claimed again"
    gate.open()
    wait_until(lambda: get_job(wrong).status == "successful")


# Whole workers


@pytest.mark.slow
@on_server
def test_while_all_async_places_are_taken_threads_go_on_and_async_jobs_stay_where_they_are(
    start_thread: Start, gate: Gate
) -> None:
    for _ in range(2):
        worker_tasks.wait_at_gate_async.enqueue()
    waiting = [tasks.add_async.enqueue(1, 2) for _ in range(3)]
    start_thread(concurrency=1, async_concurrency=2)
    gate.wait_entered(2)
    for _ in range(3):
        done = tasks.add.enqueue(1, 2)
        wait_until(lambda job_id=done.id: get_job(job_id).status == "successful")
    assert [get_job(job.id).claim for job in waiting] == [0] * 3
    gate.open()
    wait_until(lambda: {get_job(job.id).status for job in waiting} == {"successful"})
    assert [get_job(job.id).attempts for job in waiting] == [1] * 3


@pytest.mark.slow
@on_server
def test_while_all_threads_are_taken_async_jobs_go_on_and_others_stay_where_they_are(
    start_thread: Start, gate: Gate
) -> None:
    worker_tasks.wait_at_gate.enqueue()
    waiting = [tasks.add.enqueue(1, 2) for _ in range(3)]
    worker = start_thread(concurrency=1)
    gate.wait_entered()
    outlook = worker.runner.pump.outlook
    assert outlook.wants_jobs
    assert not outlook.waits_for_news
    for _ in range(3):
        done = tasks.add_async.enqueue(1, 2)
        wait_until(lambda job_id=done.id: get_job(job_id).status == "successful")
    assert [get_job(job.id).claim for job in waiting] == [0] * 3
    gate.open()
    wait_until(lambda: {get_job(job.id).status for job in waiting} == {"successful"})


@pytest.mark.parametrize("has_room", [True, False])
def test_a_worker_with_room_for_one_kind_only_is_not_to_be_notified(has_room: bool) -> None:
    """It may know of no place all the same: its jobs were of the other kind than their rows."""
    outlook: Any = mock.Mock(has_room=has_room, wants_jobs=True, is_idle=True)
    assert Outlook.waits_for_news.fget(outlook) is has_room  # type: ignore[attr-defined]


@on_server
def test_a_queue_with_slots_of_its_own_counts_jobs_of_both_kinds(
    start_thread: Start, gate: Gate
) -> None:
    jobs = [worker_tasks.wait_at_gate_async.using(queue_name="mail").enqueue() for _ in range(4)]
    jobs += [worker_tasks.wait_at_gate.using(queue_name="mail").enqueue() for _ in range(4)]
    start_thread(concurrency=4, async_concurrency=4, queue_slots={"mail": 3})
    gate.wait_entered(3)
    assert count_jobs(status="running") == 3
    gate.open()
    wait_until(lambda: {get_job(job.id).status for job in jobs} == {"successful"})


@on_server
def test_a_limit_of_jobs_counts_both_kinds(start_thread: Start) -> None:
    make_jobs(10)
    make_async_jobs(10)
    worker = start_thread(concurrency=2, max_jobs=7)
    worker.join()
    assert count_jobs(status="successful") == 7
    assert count_jobs(status="ready") == 13


@on_server
def test_a_limit_of_jobs_keeps_no_kind_waiting_that_is_alone(start_thread: Start) -> None:
    make_async_jobs(3)
    worker = start_thread(concurrency=2, max_jobs=1)
    worker.join()
    assert count_jobs(status="successful") == 1


@on_server
def test_a_drain_ends_when_jobs_of_both_kinds_are_done(drain: Start, gate: Gate) -> None:
    gate.open()
    jobs = [worker_tasks.wait_at_gate.enqueue(), worker_tasks.wait_at_gate_async.enqueue()]
    jobs += [each.enqueue(1, 2) for _ in range(20) for each in (tasks.add, tasks.add_async)]
    drain(concurrency=1, async_concurrency=2)
    assert {get_job(job.id).status for job in jobs} == {"successful"}
