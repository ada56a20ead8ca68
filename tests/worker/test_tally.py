"""The tally: attempts are counted by the server's minute, queue and task."""

from __future__ import annotations

import time
from unittest import mock

import pytest

from django_pgjobs.metrics.cells import attempts_of
from django_pgjobs.queries.jobs import Rescued
from django_pgjobs.queries.statistics import OTHERS, Cell
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.running import tally as tally_module
from django_pgjobs.worker.running.calling import make_attempt
from django_pgjobs.worker.running.outcome import Kind, Outcome
from django_pgjobs.worker.running.tally import Tally
from tests.worker.support import make_options, row_of_job

# A minute and a half after some full hour, when the process had run for 1,000 seconds.
SERVER_TIME = 360_090.0
STARTED = 1_000.0


@pytest.fixture
def tally() -> Tally:
    made = Tally()
    made.set_clock(SERVER_TIME, STARTED)
    return made


def attempt(queue_name: str = "default", **changes: float) -> Attempt:
    made = make_attempt(row_of_job(1, queue_name=queue_name), make_options())
    made.waited = changes.get("waited", 0.0)
    made.started_at = made.claimed_at + changes.get("buffered", 0.0)
    return made


def outcome(kind: Kind = Kind.DONE, *, after: float = 0.0, ran: float = 0.0) -> Outcome:
    return Outcome(kind, duration=ran, ended_at=STARTED + after)


def at(seconds: float) -> mock._patch[object]:
    """Let so many seconds have gone since the process asked for the time."""
    return mock.patch.object(time, "monotonic", return_value=STARTED + seconds)


def only(cells: dict[tuple[str, str], Cell]) -> Cell:
    [cell] = cells.values()
    return cell


@pytest.mark.parametrize(
    ("kind", "place"),
    [(Kind.DONE, 0), (Kind.FAIL, 1), (Kind.CANCEL, 2), (Kind.EXPIRE, 2), (Kind.RETRY, 3)],
)
def test_each_end_of_a_run_has_its_place(tally: Tally, kind: Kind, place: int) -> None:
    """S1.15."""
    tally.note([(attempt(), outcome(kind))])
    assert only(tally.totals()).ends == [int(place == each) for each in range(4)]


@pytest.mark.parametrize("kind", [Kind.SNOOZE, Kind.RELEASE, Kind.UNKNOWN, Kind.FILL])
def test_what_goes_back_is_no_end(tally: Tally, kind: Kind) -> None:
    tally.note([(attempt(), outcome(kind))])
    assert tally.totals() == {}


def lost(status: str) -> Rescued:
    return Rescued(1, "tests.tasks.add", "default", status, 1, 7)


def test_losses_are_counted_where_they_are_noticed(tally: Tally) -> None:
    """They are none of the attempts of this process."""
    with at(30.1):
        tally.note_rescued([lost("ready"), lost("failed"), lost("failed"), lost("cancelled")])
    assert tally.totals() == {}
    [minute] = tally.take(is_last=True)
    assert minute.number == 6002
    tally.give_back([minute, minute])
    cell = only(tally.take(is_last=True)[0].cells)
    assert (cell.lost, cell.ends_of_lost, cell.ends) == (8, [4, 2], [0] * 4)


def test_times_are_counted_by_classes_that_double(tally: Tally) -> None:
    tally.note(
        [
            (attempt(waited=0.0), outcome(ran=0.0009)),
            (attempt(waited=1.5, buffered=0.5), outcome(ran=0.001)),
            (attempt(), outcome(ran=1e9)),
        ]
    )
    cell = only(tally.totals())
    assert (cell.waited, cell.ran) == (pytest.approx(2.0), pytest.approx(1e9, rel=1e-6))
    assert {place: count for place, count in enumerate(cell.waits) if count} == {0: 2, 11: 1}
    assert {place: count for place, count in enumerate(cell.runs) if count} == {0: 1, 1: 1, 27: 1}


def test_nobody_waits_for_less_than_no_time(tally: Tally) -> None:
    tally.note([(attempt(waited=0.0, buffered=-5.0), outcome())])
    cell = only(tally.totals())
    assert (cell.waited, cell.waits[0]) == (0.0, 1)


def test_a_job_that_expired_before_it_began_has_no_times(tally: Tally) -> None:
    late = attempt()
    late.started_at = 0.0
    tally.note([(late, outcome(Kind.EXPIRE))])
    totals = tally.totals()
    cell = only(totals)
    assert (cell.ends[2], sum(cell.waits), sum(cell.runs)) == (1, 0, 0)
    assert list(attempts_of(totals)) == []
    tally.note([(attempt(), outcome(Kind.CANCEL))])
    [(_, name, number)] = attempts_of(tally.totals())
    assert (name, number) == ("cancelled", 1)


def test_a_minute_leaves_when_it_has_been_over_for_a_while(tally: Tally) -> None:
    tally.note([(attempt(), outcome(after=29.9)), (attempt(), outcome(after=30.1))])
    with at(34.9):
        assert tally.take() == []
    with at(35.1):
        [minute] = tally.take()
    assert (minute.number, only(minute.cells).ends[0]) == (6001, 1)
    with at(36):
        [minute] = tally.take(is_last=True)
        assert (minute.number, tally.take(is_last=True)) == (6002, [])


@pytest.mark.parametrize("hours", [-2, 2])
def test_what_was_counted_by_a_wrong_clock_moves_to_the_servers_minute(hours: int) -> None:
    with at(0), mock.patch.object(time, "time", return_value=SERVER_TIME + 3_600 * hours):
        early = Tally()
    early.note([(attempt(), outcome())])
    early.set_clock(SERVER_TIME, STARTED)
    # Later the clock may be set: what was counted by it stays where it is.
    early.set_clock(SERVER_TIME + 300, STARTED)
    assert [minute.number for minute in early.take(is_last=True)] == [SERVER_TIME // 60]


def test_totals_keep_what_was_taken(tally: Tally) -> None:
    tally.note([(attempt(), outcome())])
    taken = tally.take(is_last=True)
    tally.note([(attempt(), outcome(Kind.FAIL))])
    assert only(tally.totals()).ends == [1, 1, 0, 0]
    tally.give_back(taken)
    assert only(tally.totals()).ends == [1, 1, 0, 0]
    [minute] = tally.take(is_last=True)
    assert only(minute.cells).ends == [1, 1, 0, 0]


def test_names_without_number_are_counted_together(tally: Tally) -> None:
    with mock.patch.object(tally_module, "MAX_CELLS", 2):
        tally.note([(attempt(f"queue-{number}"), outcome()) for number in range(5)])
    totals = tally.totals()
    assert len(totals) == 3
    assert totals[OTHERS].ends[0] == 3


def test_minutes_that_cannot_be_written_become_one(tally: Tally) -> None:
    for number in range(5):
        tally.note([(attempt(), outcome(after=60.0 * number))])
    with mock.patch.object(tally_module, "MAX_MINUTES", 3):
        tally.give_back(tally.take(is_last=True))
    numbers = {m.number: only(m.cells).ends[0] for m in tally.take(is_last=True)}
    assert numbers == {6003: 3, 6004: 1, 6005: 1}


def test_cells_that_cannot_be_written_are_bounded(tally: Tally) -> None:
    """However many tasks there are; one minute stays whatever it holds."""
    for number in range(5):
        tally.note([(attempt(f"queue-{n}"), outcome(after=60.0 * number)) for n in range(3)])
    with mock.patch.object(tally_module, "MAX_KEPT", 7):
        tally.give_back(tally.take(is_last=True))
    taken = tally.take(is_last=True)
    assert [minute.number for minute in taken] == [6004, 6005]
    with mock.patch.object(tally_module, "MAX_KEPT", 1):
        tally.give_back(taken)
    [minute] = tally.take(is_last=True)
    assert (minute.number, [each.ends[0] for each in minute.cells.values()]) == (6005, [5, 5, 5])
    assert sum(each.ends[0] for each in tally.totals().values()) == 15


def test_what_was_counted_meanwhile_is_kept(tally: Tally) -> None:
    tally.note([(attempt(), outcome())])
    taken = tally.take(is_last=True)
    tally.note([(attempt(), outcome())])
    tally.give_back(taken)
    [minute] = tally.take(is_last=True)
    assert only(minute.cells).ends[0] == 2


def test_many_cells_are_taken_in_pages(tally: Tally) -> None:
    for number in range(5):
        tally.note([(attempt(f"queue-{n}"), outcome(after=60.0 * number)) for n in range(3)])
    pages = []
    while page := tally.take(is_last=True, max_cells=4):
        pages.append([minute.number - 6001 for minute in page])
    assert pages == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize(("after", "left"), [(0.0, 35.0), (34.0, 1.0), (36.0, 59.0)])
def test_it_says_when_the_next_minute_closes(tally: Tally, after: float, left: float) -> None:
    with at(after):
        assert tally.next_close() == pytest.approx(left)
