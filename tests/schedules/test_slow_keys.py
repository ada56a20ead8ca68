"""Keys and receivers that take long: what is due comes to an end, and holds up no other."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import DEFAULT_DB_ALIAS, connections, transaction

from django_pgjobs import task
from django_pgjobs.models import Occurrence
from django_pgjobs.schedules import firing
from django_pgjobs.schedules.firing import fire_due
from django_pgjobs.worker.process.scheduler import Scheduler
from django_pgjobs.worker.state import WorkerState
from tests.schedules.support import HOUR, fire, jobs_of, let_be_due, make_schedule, outcomes
from tests.worker.support import make_options

pytestmark = pytest.mark.django_db


class Clock:
    """A clock that only keys move."""

    seconds = 0.0
    # When a statement was last sent.
    heard = 0.0
    longest_pause = 0.0

    def move(self, seconds: float) -> None:
        self.seconds += seconds
        self.longest_pause = max(self.longest_pause, self.seconds - self.heard)


clock = Clock()


def think(seconds: float) -> str:
    clock.move(seconds)
    return "k"


@task(concurrency_key=think)
def thoughtful(seconds: float) -> None:
    """Do nothing; its key takes so long."""


def fail_later() -> str:
    transaction.on_commit(raise_later)
    return "k"


def raise_later() -> None:
    raise RuntimeError("too late")


@task(concurrency_key=fail_later)
def with_hook() -> None:
    """Do nothing; what its key asks for after the commit raises."""


@pytest.fixture(autouse=True)
def fake_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    clock.seconds = clock.heard = clock.longest_pause = 0.0
    monkeypatch.setattr(firing, "monotonic", lambda: clock.seconds)

    def hear(execute: Any, *given: Any) -> Any:
        clock.heard = clock.seconds
        return execute(*given)

    with connections[DEFAULT_DB_ALIAS].execute_wrapper(hear):
        yield


def make_slow(seconds: float, name: str = "slow", **columns: Any) -> Any:
    columns.setdefault("every", 1.0)
    return make_schedule(
        name, thoughtful.module_path, kwargs={"seconds": seconds}, missed="all", **columns
    )


@pytest.mark.slow
@pytest.mark.parametrize("jitter", [0.0, 1.0])
def test_a_backlog_is_enqueued_in_turns(jitter: float) -> None:
    row = make_slow(0.25, jitter=jitter)
    begin = let_be_due(row, timedelta(seconds=30))
    turn = fire(row)
    assert turn.is_full
    assert turn.wait is not None
    assert turn.wait < 0
    jobs = [job.scheduled_for for job in jobs_of("slow")]
    assert 4 <= len(jobs) <= 5
    assert jobs == [begin + timedelta(seconds=number) for number in range(len(jobs))]
    assert (row.next_at, row.last_at) == (begin + timedelta(seconds=len(jobs)), jobs[-1])
    assert len(outcomes("slow")) == row.runs == len(jobs)
    for _ in range(10):
        turn = fire_due(now=begin + timedelta(seconds=29))
    assert not turn.is_full
    assert outcomes("slow") == ["enqueued"] * 30


def test_a_session_is_not_left_still_for_many_keys() -> None:
    row = make_slow(0.0)
    let_be_due(row, timedelta(seconds=50))
    row.kwargs = {"seconds": 3.0}
    row.save(update_fields=["kwargs"])
    fire(row)
    assert outcomes("slow") == ["enqueued"]
    assert clock.longest_pause == 3.0


def test_one_that_is_far_behind_does_not_hold_up_another() -> None:
    slow, good = make_slow(0.25), make_schedule("good", every=1.0)
    let_be_due(slow, timedelta(seconds=90))
    let_be_due(good)
    fire_due()
    assert outcomes("good") == ["enqueued"]


def test_after_a_full_turn_not_always_the_same_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [make_slow(2.0, name, every=3600.0) for name in ("a", "b")]
    for row, ago in zip(rows, (5 * HOUR, timedelta()), strict=True):
        let_be_due(row, ago)
    monkeypatch.setattr(firing.random, "shuffle", list.reverse)
    turn = fire_due()
    assert (outcomes("a"), outcomes("b")) == (["enqueued"], [])
    fire_due(since=turn.read_at)
    assert outcomes("b") == ["enqueued"]


def test_one_that_ends_after_some_runs_ends_after_them() -> None:
    row = make_slow(2.0, max_runs=2)
    begin = let_be_due(row, timedelta(seconds=20))
    fire(row)
    assert row.next_at == begin + timedelta(seconds=1)
    fire(row)
    assert (row.next_at, row.runs) == (None, 2)


@pytest.mark.django_db(transaction=True)
def test_a_hook_that_raises_after_the_commit_takes_nothing_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    row = make_schedule(every=3600.0, task_path=with_hook.module_path)
    let_be_due(row)
    scheduler = Scheduler(WorkerState(make_options(), "test:1"), on_crash=print)
    with caplog.at_level("INFO"):
        scheduler._take_turn()
    assert Occurrence.objects.get().job_id == jobs_of()[0].pk
    assert scheduler.put_off.names_at(0.0) == []
    assert "schedule=each hour enqueued" in caplog.text
    assert "RuntimeError: too late" in caplog.text
