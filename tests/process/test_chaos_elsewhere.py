"""What the checker of the chaos test finds of workers over HTTP, in histories that are made up."""

from __future__ import annotations

from tests.chaos.checks import History, find_doubled
from tests.chaos.journal import Entry


def attempt(kind: str, assignment: str, job: int = 1) -> Entry:
    """Return an entry of a worker over HTTP."""
    return Entry(kind, token=f"t{job}", job=job, what=assignment)


def test_an_assignment_that_is_begun_twice_is_found() -> None:
    entries = [attempt("begin", "a"), attempt("end", "a"), attempt("begin", "b")]
    assert find_doubled(History(entries, [])) == []
    [found] = find_doubled(History([*entries, attempt("begin", "a")], []))
    assert "begun twice" in found


def test_an_attempt_that_ends_beside_its_next_one_is_found() -> None:
    entries = [attempt("begin", "a"), attempt("begin", "b")]
    assert find_doubled(History([*entries, attempt("end", "b")], [])) == []
    [found] = find_doubled(History([*entries, attempt("end", "a")], []))
    assert "after its next attempt had begun" in found


def test_attempts_of_our_own_workers_have_no_assignments() -> None:
    entries = [attempt("begin", ""), attempt("begin", ""), attempt("end", "")]
    assert find_doubled(History(entries, [])) == []
