"""The store of outcomes that the server refuses: when they are tried again, and how many."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

import pytest

from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.claiming import refused
from django_pgjobs.worker.claiming.refused import PAGE, PAUSES, RefusedOutcomes
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


def test_once_the_server_takes_them_all_are_written_at_once(
    keeping: Callable[[int], Keeping],
) -> None:
    made = keeping(50)
    written = []
    while page := made.refused.due():
        written += [attempt.id for attempt, _ in page]
        drop(made.refused, page)
        made.refused.note_tried(page, 100.0)
    assert written == list(range(1, 51))
    assert (made.state.unwritable, made.refused.due_at, len(made.refused)) == (set(), math.inf, 0)


def test_no_more_jobs_are_claimed_of_a_task_that_has_too_many(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """None is dropped, and the memory of the worker is not filled."""
    made = Keeping(0)
    monkeypatch.setattr(refused, "MOST_KEPT", 3)
    made.keep(1, task_path="a.b")
    made.keep(2)
    made.keep(3)
    assert made.state.refused_paths == set()
    last = made.keep(4)
    assert made.state.refused_paths == {"tests.tasks.add"}
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert [text.partition(" the ")[0] for text in said] == ["task=tests.tasks.add"]
    made.refused.drop(last)
    assert made.state.refused_paths == set()
