"""The checker of histories finds what it is there to find, in histories that are made up."""

from __future__ import annotations

import pytest

from tests.process.history import (
    find_crowds,
    find_disorder,
    find_lost,
    find_starvation,
    line_of,
    most_at_once,
    parse,
)


def history(text: str) -> list:
    """Return the events of lines such as "begin a 1 @7"; the process may be left out."""
    lines = []
    for words in map(str.split, text.strip().splitlines()):
        kind, key, number, *process = words
        lines.append(line_of(kind, key, int(number), int(process[0][1:]) if process else 0))
    return parse(["a line of something else", *lines])


GOOD = """
    wait a 1
    wait a 2
    wait b 3
    begin a 1
    begin b 3
    end a 1
    begin a 2
    end b 3
    end a 2
"""


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    events = history(GOOD)
    assert find_crowds(events) == find_disorder(events) == find_lost(events) == []
    assert find_starvation(events, turns=1) == []
    assert most_at_once(events, "a") == 1


@pytest.mark.parametrize(("limit", "found"), [(1, 2), (2, 1), (3, 0)])
def test_more_jobs_of_a_key_at_once_than_its_limit_are_found(limit: int, found: int) -> None:
    events = history("begin a 1\nbegin a 2\nbegin b 4\nbegin a 3\nend a 1\nend a 2\nend a 3")
    assert len(find_crowds(events, limit)) == found
    assert most_at_once(events, "a") == 3


def test_a_limit_that_changes_holds_from_its_line_on() -> None:
    events = history(
        "limit a 2\nbegin a 1\nbegin a 2\nlimit a 1\nend a 1\nend a 2\nbegin a 3\nbegin a 4"
    )
    [found] = find_crowds(events)
    assert "[3, 4] run at once in a" in found


def test_the_jobs_of_a_killed_process_do_not_run_any_more() -> None:
    killed = "begin a 1 @7\nlost - 0 @7\nbegin a 1 @8\nend a 1 @8"
    assert find_crowds(history(killed)) == []
    assert len(find_crowds(history("begin a 1 @7\nlost - 0 @9\nbegin a 2 @8"))) == 1


def test_jobs_may_be_counted_by_something_else_than_their_key() -> None:
    events = history("begin a 1 @7\nbegin a 2 @8\nend a 1 @7\nbegin a 3 @8")
    [found] = find_crowds(events, group=lambda event: str(event.process))
    assert "[2, 3] run at once in 8" in found


@pytest.mark.parametrize(
    "text",
    [
        "wait a 1\nwait a 2\nbegin a 2",
        "begin a 2\nend a 2\nbegin a 1",
        "begin a 1\nfail a 1\nbegin a 2",
        "begin a 1 @7\nlost - 0 @7\nbegin a 2 @8",
    ],
    ids=["overtakes", "comes after", "overtakes a retry", "overtakes a killed one"],
)
def test_jobs_of_a_key_out_of_order_are_found(text: str) -> None:
    assert len(find_disorder(history(text))) == 1


def test_an_attempt_that_comes_again_is_in_order() -> None:
    text = "begin a 1\nfail a 1\nbegin a 1\nend a 1\nbegin a 2\nbegin a 2\nend a 2"
    assert find_disorder(history(text)) == []


def test_a_key_that_waits_while_another_has_many_turns_is_found() -> None:
    turns = "".join(f"begin b {job}\nend b {job}\n" for job in range(2, 5))
    assert find_starvation(history("wait a 1\n" + turns), turns=3) == []
    [found] = find_starvation(history("wait a 1\n" + turns), turns=2)
    assert found == "b had more than 2 turns while a waited"


def test_a_key_that_is_full_or_has_nothing_to_do_does_not_starve() -> None:
    turns = "".join(f"begin b {job}\nend b {job}\n" for job in range(3, 9))
    full = history("wait a 1\nwait a 2\nbegin a 1\n" + turns)
    assert find_starvation(full, turns=2) == []
    assert len(find_starvation(full, turns=2, limit=2)) == 1


def test_a_job_that_was_begun_or_enqueued_and_did_not_end_is_found() -> None:
    events = history("wait a 1\nbegin b 2\nbegin a 3\nend a 3")
    assert find_lost(events) == ["1 of a did not end", "2 of b did not end"]
