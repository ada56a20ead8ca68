"""The store of outcomes that the server refuses: when they are tried again, and how many."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

import psycopg
import pytest

from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.claiming import refused
from django_pgjobs.worker.claiming.refused import LARGEST_PAGE, PAGE, PAUSES, RefusedOutcomes
from django_pgjobs.worker.running.outcome import Entry, Kind, Outcome
from django_pgjobs.worker.state import WorkerState
from tests.worker.support import make_attempt_of, make_options


class Keeping:
    """RefusedOutcomes outcomes of jobs that a worker has held, all of them due."""

    def __init__(self, jobs: int) -> None:
        self.state = WorkerState(make_options(), "test:1")
        self.refused = RefusedOutcomes(self.state)
        for job_id in range(1, jobs + 1):
            self.keep(job_id)

    def keep(self, job_id: int, **columns: object) -> Attempt:
        attempt = self.state.held[job_id] = make_attempt_of(job_id, **columns)
        self.refused.keep(attempt, Outcome(Kind.DONE))
        return attempt

    def let_time_pass(self) -> None:
        for attempt, outcome in self.refused.all():
            outcome.due, outcome.pause = 0.0, 0.0
            self.refused.keep(attempt, outcome)
            outcome.due = 0.0


def drop(kept: RefusedOutcomes, page: list[Entry]) -> None:
    for attempt, _ in page:
        kept.drop(attempt)


@pytest.fixture
def keeping() -> Callable[[int], Keeping]:
    """RefusedOutcomes outcomes of so many jobs."""

    def make(jobs: int) -> Keeping:
        made = Keeping(jobs)
        made.let_time_pass()
        return made

    return make


def test_the_pauses_grow() -> None:
    made, outcome = Keeping(0), Outcome(Kind.DONE)
    attempt = make_attempt_of(1)
    pauses = []
    for _ in range(8):
        made.refused.keep(attempt, outcome)
        assert made.refused.due() == []
        assert made.refused.due_at == outcome.due
        pauses.append(outcome.pause)
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == PAUSES


def test_a_plain_failure_is_tried_again_if_the_server_says_something_else_or_now_and_then() -> None:
    """The row may let it pass by then, and not the outcome."""
    made, outcome = Keeping(0), Outcome(Kind.DONE, refusal="no")
    entry = make_attempt_of(1), outcome
    assert not made.refused.is_as_before(entry, psycopg.DataError("no"))
    made.refused.keep(*entry)
    assert made.refused.is_as_before(entry, psycopg.DataError("no"))
    assert not made.refused.is_as_before(entry, psycopg.DataError("never"))
    outcome.pause = PAUSES[1]
    assert not made.refused.is_as_before(entry, psycopg.DataError("no"))


def test_what_is_refused_again_gives_the_others_most_of_the_time(
    keeping: Callable[[int], Keeping],
) -> None:
    """Each costs statements: a far server would be asked for nothing else."""
    made = keeping(20)
    page = made.refused.due()
    assert [attempt.id for attempt, _ in page] == list(range(1, PAGE + 1))
    for attempt, outcome in page:
        made.refused.keep(attempt, outcome)
    now = time.monotonic()
    made.refused.note_tried(page, 100.0)
    assert made.refused.due() == []
    assert made.refused.due_at > now + 800


def test_once_the_server_takes_them_all_are_written_soon(
    keeping: Callable[[int], Keeping],
) -> None:
    made = keeping(3_000)
    sizes = []
    while page := made.refused.due():
        sizes.append(len(page))
        drop(made.refused, page)
        made.refused.note_tried(page, 100.0)
    assert sizes == sorted(sizes[:-1]) + sizes[-1:]
    assert (sum(sizes), max(sizes)) == (3_000, LARGEST_PAGE)
    assert (made.state.unwritable, made.refused.due_at, len(made.refused)) == (set(), math.inf, 0)


@pytest.mark.parametrize("limit", ["MOST_KEPT", "MOST_CHARACTERS"])
def test_where_too_many_are_kept_no_more_jobs_of_their_tasks_are_claimed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, limit: str
) -> None:
    """None is dropped, and the memory of the worker is not filled."""
    made = Keeping(0)
    size = len(make_attempt_of(1).row.args + make_attempt_of(1).row.kwargs)
    monkeypatch.setattr(refused, limit, 3 if limit == "MOST_KEPT" else 3 * size)
    first = made.keep(1, task_path="a.b")
    made.keep(2)
    assert made.state.refused_paths == set()
    made.keep(3)
    made.keep(4)
    assert made.state.refused_paths == {"a.b", "tests.tasks.add"}
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert sorted(text.partition(" the ")[0] for text in said) == [
        "task=a.b",
        "task=tests.tasks.add",
    ]
    made.refused.drop(first)
    assert made.state.refused_paths == {"tests.tasks.add"}
    drop(made.refused, made.refused.all()[:1])
    assert made.state.refused_paths == set()


def test_what_is_kept_does_not_keep_what_a_task_had_in_its_variables() -> None:
    """Hundreds of failures may wait, each with the frames of its traceback."""

    class Large:
        alive = 0

        def __init__(self) -> None:
            Large.alive += 1

        def __del__(self) -> None:
            Large.alive -= 1

    def fail() -> None:
        large = Large()
        raise ValueError(id(large))

    made, outcome = Keeping(0), Outcome(Kind.FAIL)
    try:
        try:
            fail()
        except ValueError as error:
            raise RuntimeError from error
    except RuntimeError as error:
        outcome.exception = error
    assert Large.alive == 1
    made.refused.keep(make_attempt_of(1), outcome)
    assert Large.alive == 0
