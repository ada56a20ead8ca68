"""The slots: all of them used, and none lost to whatever a task raises or returns."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests import tasks
from tests.factories import count_jobs, get_job, make_jobs
from tests.helpers import wait_until
from tests.worker import nasty
from tests.worker import tasks as gate_tasks
from tests.worker.support import Bench, Gate, ThreadedWorker

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

Drain = Callable[..., ThreadedWorker]


def run_between_others(drain: Drain, *jobs: Any) -> None:
    """Run jobs with one slot, each before another; the others must not notice."""
    after = tasks.add.using(priority=-1).enqueue(1, 2)
    after_async = tasks.add_async.using(priority=-1).enqueue(1, 2)
    drain(concurrency=1)
    assert get_job(after.id).status == get_job(after_async.id).status == "successful"
    assert {get_job(job.id).status for job in jobs} == {"failed"}


def test_every_exception_fails_its_job_and_nothing_else(drain: Drain) -> None:
    """S1.15: sync and async, with one slot."""
    jobs = {
        (task.name, name): task.enqueue(name)
        for task in (nasty.end_with, nasty.end_with_async)
        for name in nasty.ERRORS
    }
    run_between_others(drain, *jobs.values())
    for (_, name), job in jobs.items():
        [entry] = get_job(job.id).errors
        assert entry["exception_class"], name
        assert len(json.dumps(entry)) < 40_000, name


@pytest.mark.parametrize(
    ("name", "exception_class", "message"),
    [
        ("SystemExit", "builtins.SystemExit", "3"),
        ("StopIteration", "builtins.StopIteration", "1"),
        ("GeneratorExit", "builtins.GeneratorExit", ""),
        ("str() raises", "tests.worker.nasty.BadStr", "(its str() failed)"),
        ("repr() exits", "tests.worker.nasty.BadRepr", "(its str() failed)"),
        ("str() is a number", "tests.worker.nasty.NotText", "(its str() failed)"),
        ("class of no module", "tests.worker.nasty.Unreachable", "'x'"),
        ("NUL", "builtins.Exception", "a\u2400b"),
        ("lone surrogate", "builtins.Exception", "a\\ud800b"),
        ("empty", "builtins.Exception", ""),
    ],
)
def test_what_is_recorded_of_an_exception(
    bench: Bench, name: str, exception_class: str, message: str
) -> None:
    """Scrubbed of what PostgreSQL cannot store."""
    job = nasty.end_with.enqueue(name)
    bench.run()
    [entry] = get_job(job.id).errors
    assert (entry["exception_class"], entry["message"]) == (exception_class, message)


def test_a_huge_message_loses_its_middle(drain: Drain) -> None:
    job = nasty.end_with.enqueue("10 MB of message")
    drain()
    [entry] = get_job(job.id).errors
    assert "characters left out" in entry["message"]
    assert len(entry["message"]) < 2_000
    assert len(entry["traceback"]) < 10_000


def test_a_stack_overflow_of_a_task_fails_its_job(drain: Drain) -> None:
    job = nasty.recurse.enqueue()
    run_between_others(drain, job)
    assert get_job(job.id).errors[0]["exception_class"] == "builtins.RecursionError"


def test_every_result_that_cannot_be_stored_fails_its_job_and_nothing_else(drain: Drain) -> None:
    """And the error says what was wrong."""
    jobs = {
        (task.name, name): task.enqueue(name)
        for task in (nasty.give, nasty.give_async)
        for name in nasty.RESULTS
    }
    run_between_others(drain, *jobs.values())
    for (_, name), job in jobs.items():
        [entry] = get_job(job.id).errors
        assert "the return value" in entry["message"], (name, entry["message"])


@pytest.mark.parametrize(
    "value",
    [
        None,
        0,
        False,
        "",
        [],
        {},
        1e16,
        -0.0,
        "ä\n\u2028\\u0000",
        {"a": [1, {"b": None}]},
        "x" * 9999,
    ],
)
def test_every_other_result_comes_back_as_it_was(bench: Bench, value: Any) -> None:
    """Type `json` and not `jsonb`."""
    job = nasty.give_good.enqueue(value)
    bench.run()
    result = nasty.give_good.get_result(job.id)
    assert result.return_value == value
    assert repr(result.return_value) == repr(value)


def test_every_slot_runs_a_job_while_others_block(start_thread: Drain, gate: Gate) -> None:
    """S1.14: a slow job holds up none but itself."""
    jobs = [gate_tasks.wait_at_gate.enqueue() for _ in range(6)]
    start_thread(concurrency=5)
    gate.wait_entered(5)
    assert count_jobs(status="running") == 5
    gate.open()
    wait_until(lambda: {get_job(job.id).status for job in jobs} == {"successful"})


def test_slots_come_into_use_one_by_one_as_jobs_arrive(start_thread: Drain, gate: Gate) -> None:
    start_thread(concurrency=3)
    for number in range(1, 4):
        gate_tasks.wait_at_gate.enqueue()
        gate.wait_entered()
        wait_until(lambda number=number: count_jobs(status="running") == number)
    quick = tasks.add.enqueue(1, 2)
    gate.open()
    wait_until(lambda: get_job(quick.id).status == "successful")


def test_one_slot_runs_jobs_by_priority_and_age(drain: Drain, tmp_path: Any) -> None:
    """S3.6, S4.10."""
    path = tmp_path / "order"
    for priority in (0, 5, 0, -5, 5):
        tasks.touch.using(priority=priority).enqueue(str(path), str(priority))
    drain(concurrency=1)
    assert path.read_text().split() == ["5", "5", "0", "0", "-5"]


def test_no_job_runs_twice_and_none_is_left_out(drain: Drain, tmp_path: Any) -> None:
    """S3.5."""
    path = tmp_path / "ran"
    jobs = [
        tasks.touch_async.enqueue(str(path), str(n))
        if n % 3
        else tasks.touch.enqueue(str(path), str(n))
        for n in range(300)
    ]
    drain(concurrency=4)
    assert sorted(map(int, path.read_text().split())) == list(range(300))
    assert count_jobs(status="successful", attempts=1) == len(jobs)


def test_max_jobs_ends_the_worker_and_claims_no_more_than_that(start_thread: Drain) -> None:
    make_jobs(30)
    worker = start_thread(max_jobs=7, concurrency=4)
    assert worker.join() == 0
    assert (count_jobs(status="successful"), count_jobs(status="ready")) == (7, 23)
