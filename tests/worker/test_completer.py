"""The completer: no outcome is forgotten, and one that cannot be written harms no other."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.claiming.completer import MAX_BATCH, PAUSES, Completer
from django_pgjobs.worker.claiming.outcome_statements import writings
from django_pgjobs.worker.claiming.refused import plain_failure
from django_pgjobs.worker.claiming.writing import Writing
from django_pgjobs.worker.process.farewell import Farewell
from django_pgjobs.worker.running.outcome import AT_SHUTDOWN, Kind, Outcome, interrupted, released
from django_pgjobs.worker.running.tally import Tally
from django_pgjobs.worker.state import WorkerState
from tests.worker.support import make_attempt_of, make_options


class Completing:
    """A completer with what it said was stored."""

    def __init__(self) -> None:
        self.stored: list[int] = []
        self.doubtful: list[int] = []
        self.state = WorkerState(make_options(), "test:1")
        self.tally = Tally()
        self.completer = Completer(
            self.state,
            self.tally,
            lambda attempt, _: self.stored.append(attempt.id),
            on_doubt=lambda attempt, _: self.doubtful.append(attempt.id),
        )

    def add(self, job_id: int, kind: Kind = Kind.DONE, **fields: Any) -> Attempt:
        """Let a held job end."""
        attempt = self.state.held[job_id] = make_attempt_of(job_id)
        self.completer.add(attempt, Outcome(kind, **fields))
        return attempt

    def take(self) -> list[tuple[Attempt, Outcome]]:
        """Take the outcomes that are to be written."""
        self.completer.settle_known()
        return self.completer.take()


@pytest.fixture
def made() -> Completing:
    """A completer and its surroundings."""
    return Completing()


def ids(batch: list[tuple[Attempt, Outcome]]) -> list[int]:
    return [attempt.id for attempt, _ in batch]


def test_a_job_left_to_the_rescue_is_not_given_back(made: Completing) -> None:
    """It may have killed the worker, so it is to count as lost."""
    made.add(1, Kind.LEFT)
    made.take()
    assert (made.state.held, made.state.unwritable) == ({}, {1})


def test_a_job_is_held_until_the_server_has_answered(made: Completing) -> None:
    """S1.10."""
    made.add(1)
    batch = made.take()
    assert (ids(batch), list(made.state.held), made.stored) == ([1], [1], [])
    made.completer.settle(batch, {1})
    assert (list(made.state.held), made.stored, made.state.finished_jobs) == ([], [1], 1)


def test_outcomes_are_taken_in_batches_of_bounded_size_in_order(made: Completing) -> None:
    for job_id in range(1, MAX_BATCH + 11):
        made.add(job_id)
    assert ids(made.take()) == list(range(1, MAX_BATCH + 1))
    assert len(made.take()) == 10
    assert made.take() == []


def test_what_was_sent_without_an_answer_is_sent_again_first(made: Completing) -> None:
    """The connection may break under it."""
    made.add(1)
    made.add(2)
    batch = made.take()
    made.add(3)
    made.completer.put_back(batch, is_sent=True)
    assert ids(made.take()) == [1, 2, 3]
    assert list(made.state.held) == [1, 2, 3]


def test_an_outcome_that_missed_is_lost_and_said_so(
    made: Completing, caplog: pytest.LogCaptureFixture
) -> None:
    """Zero rows means lost; the worker logs it."""
    made.add(1)
    made.completer.settle(made.take(), set())
    assert (made.state.held, made.stored, made.state.finished_jobs) == ({}, [], 0)
    assert "job=1 outcome=done not written: the claim is lost" in caplog.text
    assert made.doubtful == []


def test_an_attempt_ends_once(made: Completing) -> None:
    """Whoever comes first: it is given up while its body ends, say."""
    attempt = made.add(1)
    assert not made.completer.add(attempt, Outcome(Kind.FAIL))
    [(_, outcome)] = made.take()
    assert outcome.kind == Kind.DONE
    assert made.take() == []


def test_what_an_atomic_task_has_written_stands_whatever_was_to_be_written(
    made: Completing, caplog: pytest.LogCaptureFixture
) -> None:
    """Its transaction may commit after somebody has given the job back."""
    attempt = made.add(1, Kind.RELEASE)
    batch = made.take()
    assert made.completer.add(attempt, Outcome(Kind.DONE, stored=True))
    made.completer.settle_known()
    made.completer.settle(batch, set())
    assert (made.state.held, made.stored, made.state.finished_jobs) == ({}, [1], 1)
    assert "runs elsewhere" not in caplog.text


def test_an_outcome_that_was_sent_twice_may_have_been_written_the_first_time(
    made: Completing, caplog: pytest.LogCaptureFixture
) -> None:
    made.add(1)
    made.completer.put_back(made.take(), is_sent=True)
    made.completer.settle(made.take(), set())
    assert "an answer was lost, and the job has ended, or its claim" in caplog.text
    assert made.doubtful == [1]


def test_a_later_attempt_of_the_same_job_stays_held(made: Completing) -> None:
    """The job was lost, rescued, and claimed by this very worker again."""
    made.add(1)
    again = make_attempt_of(1, claim=3, attempts=2)
    made.state.held[1] = again
    made.completer.settle(made.take(), set())
    assert made.state.held == {1: again}


@pytest.mark.parametrize("is_old_first", [True, False])
def test_of_two_attempts_of_a_job_the_later_one_is_meant(
    made: Completing, caplog: pytest.LogCaptureFixture, is_old_first: bool
) -> None:
    """Both ended while nothing could be written; the server names jobs by their ids."""
    made.add(1)
    later = make_attempt_of(1, claim=3, attempts=2)
    made.state.held[1] = later
    made.completer.add(later, Outcome(Kind.FAIL))
    made.add(2)
    batch = made.take() if is_old_first else made.take()[::-1]
    made.completer.settle(batch, {1, 2})
    assert sorted(made.stored) == [1, 2]
    assert not made.state.held
    assert "job=1 outcome=done not written: the claim is lost" in caplog.text
    [cell] = made.tally.totals().values()
    assert cell.ends == [1, 1, 0, 0]


def test_of_two_attempts_of_a_job_the_later_one_waits_for_a_lock(
    made: Completing, caplog: pytest.LogCaptureFixture
) -> None:
    """Whichever ended first: else nobody would write its outcome any more."""
    earlier, later = make_attempt_of(1), make_attempt_of(1, claim=3, attempts=2)
    for attempt in (later, earlier):
        made.completer.add(attempt, Outcome(Kind.DONE))
    made.state.held[1] = later
    answers = iter([[], [(1,)]])
    connection = SimpleNamespace(round_trip=lambda sends: [next(answers) for _ in sends])
    writing = Writing(made.completer, connection, made.take())  # type: ignore[arg-type]
    writing._write_apart(writing._fresh)
    assert made.state.held == {1: later}
    assert made.completer.aside(later) is not None
    assert caplog.text.count("not written: the claim is lost") == 1


def test_queues_that_follow_are_no_jobs_that_were_written(made: Completing) -> None:
    """Of batches that go on there are rows without an id."""
    made.add(1)
    made.add(2)
    batch = made.take()
    writing = Writing(made.completer, SimpleNamespace(), batch)  # type: ignore[arg-type]
    writing._settle(batch, [(1, None), (None, "mail")])
    assert made.stored == [1]
    [cell] = made.tally.totals().values()
    assert cell.ends == [1, 0, 0, 0]


def test_what_an_atomic_task_has_written_itself_needs_no_statement(made: Completing) -> None:
    """Exactly-once database effects."""
    made.add(1, stored=True)
    assert made.take() == []
    assert (made.state.held, made.stored, made.state.finished_jobs) == ({}, [1], 1)


def test_an_attempt_that_found_its_claim_lost_needs_no_statement(made: Completing) -> None:
    made.add(1, Kind.LOST)
    assert made.take() == []
    assert (made.state.held, made.stored) == ({}, [])


def test_a_job_that_runs_again_is_not_counted_as_finished(made: Completing) -> None:
    made.add(1, Kind.RETRY, error="{}", delay=1.0)
    made.completer.settle(made.take(), {1})
    assert (made.state.finished_jobs, made.stored) == (0, [1])


def test_an_outcome_that_is_refused_is_kept_until_it_is_written(made: Completing) -> None:
    made.add(1)
    [entry] = made.take()
    made.completer.keep_refused(entry, psycopg.DataError("no"))
    assert (made.completer.take_due(), made.state.held) == ([], {})
    assert (made.completer.refused.all(), made.state.unwritable) == ([entry], {1})
    assert made.completer.due_at == entry[1].due
    made.completer.settle([entry], {1})
    assert (made.stored, made.state.unwritable, made.completer.due_at) == ([1], set(), math.inf)


def test_if_the_row_is_locked_the_outcome_itself_is_tried_again_and_not_what_replaces_it(
    made: Completing,
) -> None:
    """By then the server may take it."""
    made.add(1)
    [entry] = made.take()
    plain = plain_failure(entry, psycopg.DataError("no"))
    assert plain is not None
    made.completer.put_aside(plain)
    assert made.completer.unwritten() == {entry[0]: entry[1]}
    made.completer.keep_refused(entry, psycopg.DataError("no"))
    made.completer.put_aside(plain)
    assert (made.completer.refused.all(), made.completer.take_due()) == ([entry], [])


def test_an_earlier_attempt_of_a_job_does_not_take_the_place_of_a_later_one(
    made: Completing,
) -> None:
    """The lease was lost, and the worker got the job again; both outcomes are refused.

    The later claim may be the lower number: after a filling, or of another job with this id.
    """
    earlier, later = make_attempt_of(1, claim=2), make_attempt_of(1, claim=1)
    made.state.held[1] = later
    made.completer.put_aside((later, Outcome(Kind.DONE)))
    made.completer.put_aside((earlier, Outcome(Kind.DONE)))
    assert made.completer.aside(later) is not None
    for attempt in (later, earlier):
        made.completer.refused.keep(attempt, Outcome(Kind.DONE))
    made.completer.settle([(earlier, Outcome(Kind.DONE))], set())
    assert made.completer.refused.has(later)
    assert made.state.unwritable == {1}


def test_the_failure_that_replaces_a_refused_outcome_tells_of_the_same_attempt() -> None:
    attempt = make_attempt_of(1, attempts=3)
    ended = Outcome(Kind.DONE, duration=4.2, ended_at=17.0)
    replacing = plain_failure((attempt, ended), psycopg.DataError("no"))
    assert replacing is not None
    assert replacing[0] is attempt
    assert json.loads(replacing[1].error)["attempt"] == 3
    assert (replacing[1].duration, replacing[1].ended_at) == (4.2, 17.0)


def test_a_job_that_was_never_begun_does_not_fail_because_it_cannot_be_given_back(
    made: Completing, caplog: pytest.LogCaptureFixture
) -> None:
    entry = make_attempt_of(1), released(AT_SHUTDOWN)
    assert plain_failure(entry, psycopg.DataError("no")) is None
    made.completer.keep_refused(entry, psycopg.DataError("no"))
    assert "job=1 its outcome cannot be written now, the job stays running: no" in caplog.text


def test_an_outcome_whose_row_is_locked_waits_beside_the_others(made: Completing) -> None:
    made.add(1)
    [entry] = made.take()
    pauses = []
    for _ in range(8):
        made.completer.put_aside(entry)
        pauses.append(entry[1].pause)
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == PAUSES
    assert (made.take(), made.completer.take_due()) == ([], [])
    assert made.completer.due_at == entry[1].due
    entry[1].due = 0.0
    assert made.completer.take_due() == [entry]
    made.completer.settle([entry], {1})
    assert (made.stored, made.completer.due_at) == ([1], math.inf)


def test_at_shutdown_a_job_that_has_ended_is_not_handed_back_while_its_row_is_locked(
    made: Completing,
) -> None:
    """It would run again."""
    done, running = made.add(1), make_attempt_of(2)
    entries = made.take()
    made.completer.put_aside(entries[0])
    Farewell(made.state, made.completer).release([done, running])
    [(attempt, outcome)] = made.take()
    assert (attempt.id, outcome.kind) == (running.id, Kind.RELEASE)


def test_an_outcome_that_waits_for_a_lock_belongs_to_its_attempt(made: Completing) -> None:
    """The job may have been rescued and claimed again here meanwhile."""
    made.add(1)
    [waiting] = made.take()
    made.completer.put_aside(waiting)
    made.add(1)
    [later] = made.take()
    assert made.completer.aside(later[0]) is None
    made.completer.settle([later], {1})
    assert made.completer.aside(waiting[0]) is waiting[1]


def test_a_job_that_is_left_to_the_rescue_is_logged_with_the_time_it_ran(
    made: Completing,
) -> None:
    farewell = Farewell(made.state, made.completer)
    ended = interrupted(make_attempt_of(1), AT_SHUTDOWN)
    ended.duration = 4.2
    assert farewell.judge(ended) is ended
    farewell.loses_jobs = True
    left = farewell.judge(ended)
    assert (left.kind, left.duration, left.interrupted) == (Kind.LEFT, 4.2, False)


def test_the_oldest_outcome_tells_how_long_it_has_waited(made: Completing) -> None:
    assert made.completer.oldest_age() == 0.0
    made.add(1, ended_at=time.monotonic() - 5)
    made.add(2, ended_at=time.monotonic())
    assert made.completer.oldest_age() == pytest.approx(5, abs=1)


@pytest.mark.parametrize(
    ("make_outcomes", "count"),
    [
        (list, 0),
        (lambda: [Outcome(Kind.DONE)] * 5, 1),
        (lambda: [Outcome(Kind.FAIL), Outcome(Kind.CANCEL)], 1),
        (lambda: [Outcome(Kind.RETRY), Outcome(Kind.SNOOZE), Outcome(Kind.UNKNOWN)], 1),
        (lambda: [Outcome(Kind.DONE), released("x"), Outcome(Kind.FAIL)], 3),
    ],
)
def test_there_is_one_statement_per_kind_of_outcome(
    make_outcomes: Callable[[], list[Outcome]], count: int
) -> None:
    batch = [(make_attempt_of(number), o) for number, o in enumerate(make_outcomes())]
    assert len(writings(batch)) == count
