"""Each check of the chaos test finds what it is there for, in a history that is made up."""

from __future__ import annotations

import json

import pytest

from tests.chaos import checks, figures, limit_checks, times, trees
from tests.chaos.checks import History
from tests.chaos.journal import Entry, Journal, parse
from tests.chaos.ledger import Change, Limit
from tests.chaos.logs import find_unexpected_lines, group
from tests.chaos.times import WHOLE, Kept
from tests.chaos.trees import Made, Node

NOW = 1_000.0
T = "tests.chaos.tasks.work"


def enqueued(*ids: int, **facts: object) -> Entry:
    return Entry("enqueued", ids=ids, tokens=tuple(f"t{job}" for job in ids), **facts)


def life(job: int, *statuses: str, **columns: object) -> list[Change]:
    """Return the changes of a job, a second apart."""
    return [
        Change(job, committed=at, asked=at, made=at, status=status, task_path=T, **columns)
        for at, status in enumerate(statuses, start=1)
    ]


def claims(key: str, *jobs: int) -> list[Change]:
    """Return the claims of jobs of a key, a second apart."""
    return [
        Change(job, committed=at, asked=at, made=at, status="running", concurrency_key=key)
        for at, job in enumerate(jobs, start=10)
    ]


def test_a_good_history_has_no_findings() -> None:
    history = History(
        [enqueued(1), Entry("begin", token="t1", job=1), Entry("end", token="t1", job=1)],
        life(1, "ready", "running", "successful"),
    )
    assert checks.find_lost(history) == []
    assert checks.find_stuck(history, NOW) == []
    assert checks.find_ghosts(history) == []
    assert checks.find_unrun(history) == []
    assert checks.find_doubled(history) == []
    assert checks.find_unmerged(history) == []
    assert checks.find_repeated_effects(history, []) == []
    assert checks.find_crash_loops(history) == []
    assert checks.find_killers(history) == []
    assert checks.find_ignored_cancels(history, 10) == []
    assert checks.find_standstill(history, 10, end=5) == []
    assert checks.find_hasty_dependents(history) == []


def test_an_acknowledged_job_that_is_not_there_is_found() -> None:
    [found] = checks.find_lost(History([enqueued(1), enqueued(2)], life(1, "ready")))
    assert "job 2" in found


@pytest.mark.parametrize("status", ["ready", "running"])
def test_a_job_that_does_not_end_is_found(status: str) -> None:
    [found] = checks.find_stuck(History([enqueued(1)], life(1, "ready", status)), NOW)
    assert f"is {status}" in found


@pytest.mark.parametrize(
    ("columns", "may_wait", "count"),
    [
        ({}, False, 1),
        ({}, True, 0),
        ({"due_at": NOW + 5}, False, 0),
        ({"due_at": NOW - 5}, False, 1),
        ({"status": "running"}, True, 1),
    ],
)
def test_an_odd_row_may_be_put_off_and_may_not_run_for_ever(
    columns: dict, may_wait: bool, count: int
) -> None:
    row = Change(1, **columns)
    odd = Entry("dirty", ids=(1,), what="x", may_wait=may_wait)
    assert len(checks.find_stuck(History([odd], [row]), NOW)) == count


@pytest.mark.parametrize(("policy", "count"), [("hold", 0), ("cancel", 1)])
def test_a_job_is_held_only_if_that_was_asked_for(policy: str, count: int) -> None:
    history = History([enqueued(1, what=policy)], [Change(1, hold="predecessor failed")])
    assert len(checks.find_stuck(history, NOW)) == count


def test_an_attempt_of_what_was_rolled_back_is_found() -> None:
    gone = Entry("rolled back", tokens=("t1",))
    assert len(checks.find_ghosts(History([gone, Entry("begin", token="t1", job=1)], []))) == 1


def test_a_success_without_the_end_of_an_attempt_is_found() -> None:
    history = History([Entry("begin", token="t1", job=1)], life(1, "running", "successful"))
    assert len(checks.find_unrun(history)) == 1


def test_a_merged_change_that_nobody_saw_is_found() -> None:
    entries = [
        Entry("enqueued", ids=(1,), tokens=("a",), what="gather"),
        Entry("enqueued", ids=(1,), tokens=("b",), what="gather"),
        Entry("end", token="a", job=1),
    ]
    [found] = checks.find_unmerged(History(entries, life(1, "running", "successful")))
    assert found.startswith("b was merged")


@pytest.mark.parametrize(("effects", "count"), [(0, 1), (1, 0), (2, 1)])
def test_effects_are_as_many_as_successes(effects: int, count: int) -> None:
    history = History([], life(1, "running", "successful"), {1: effects} if effects else {})
    assert len(checks.find_repeated_effects(history, [T])) == count


def test_the_effect_of_a_job_that_failed_is_found() -> None:
    assert len(checks.find_repeated_effects(History([], life(1, "failed"), {1: 1}), [T])) == 1


def test_a_requeued_job_may_have_an_effect_each_time() -> None:
    changes = life(1, "running", "successful", "ready", "running", "successful")
    assert checks.find_repeated_effects(History([], changes, {1: 2}), [T]) == []


@pytest.mark.parametrize(
    ("columns", "count"),
    [
        ({"attempts": 4, "max_attempts": 3}, 1),
        ({"attempts": 4, "max_attempts": 3, "lost_count": 1}, 0),
        ({"lost_count": 10}, 1),
        ({"lost_count": 9}, 0),
    ],
)
def test_too_many_attempts_and_losses_are_found(columns: dict, count: int) -> None:
    assert len(checks.find_crash_loops(History([], [Change(1, **columns)]))) == count


def test_a_job_that_kills_one_worker_after_the_other_is_found() -> None:
    dying = Entry("dying", token="t1", job=1)
    assert checks.find_killers(History([dying] * 9, [])) == []
    assert len(checks.find_killers(History([dying] * 10, []))) == 1


def test_a_cancellation_that_is_not_heard_is_found() -> None:
    begun = Change(1, committed=1, status="running", claim=1)
    asked = begun._replace(committed=2, cancel_requested_at=2)
    ended = asked._replace(committed=9, status="cancelled")
    history = History([], [begun, asked, ended])
    assert checks.find_ignored_cancels(history, patience=10) == []
    assert len(checks.find_ignored_cancels(history, patience=5)) == 1


def test_a_time_in_which_nothing_is_claimed_is_found() -> None:
    changes = [
        Change(1, committed=0),
        Change(1, committed=1, status="running"),
        Change(2, committed=2),
        Change(2, committed=50, status="running"),
    ]
    assert len(checks.find_standstill(History([], changes), 30, end=60)) == 1
    assert checks.find_standstill(History([], changes), 60, end=60) == []
    # At the end as well.
    assert len(checks.find_standstill(History([], changes[:3]), 30, end=60)) == 1


def test_a_time_in_which_nothing_waits_is_no_standstill() -> None:
    changes = [Change(1, committed=0), Change(1, committed=1, status="running")]
    assert checks.find_standstill(History([], changes), 30, end=90) == []


def test_a_job_that_does_not_wait_for_the_one_before_it_is_found() -> None:
    entries = [enqueued(1), enqueued(2, after=(1,))]
    first = life(1, "ready", "running", "successful")
    second = life(2, "running")
    assert len(checks.find_hasty_dependents(History(entries, [*first[:2], *second]))) == 1
    assert checks.find_hasty_dependents(History(entries, [*first, *second])) == []


def no_default(change: Change) -> int | None:
    return change.concurrency_limit or 1


def crowds(changes: list[Change], *limits: Limit) -> list[str]:
    return limit_checks.find_crowds(
        changes,
        limit_checks.Limits("key", limits),
        group=lambda change: change.concurrency_key,
        default=no_default,
    )


def test_more_jobs_of_a_key_than_its_limit_are_found() -> None:
    assert len(crowds(claims("k", 1, 2))) == 1
    assert crowds(claims("k", 1, 2), Limit("key", "k", 2)) == []
    assert len(crowds(claims("k", 1, 2, 3), Limit("key", "k", 2))) == 1


def test_a_limit_that_is_lowered_stops_nothing_that_runs() -> None:
    limits = [Limit("key", "k", 2), Limit("key", "k", 1, committed=100.0)]
    assert crowds(claims("k", 1, 2), *limits) == []
    later = Change(3, committed=200, asked=200, status="running", concurrency_key="k")
    assert len(crowds([*claims("k", 1, 2), later], *limits)) == 1


def test_a_job_that_has_ended_makes_room() -> None:
    first, second = claims("k", 1, 2)
    ended = first._replace(status="successful")
    assert crowds([first, ended, second]) == []


def test_a_job_that_overtakes_an_older_one_of_its_key_is_found() -> None:
    older = Change(1, committed=1, concurrency_key="k")
    [claim] = claims("k", 2)
    limits = limit_checks.Limits("key", [])
    assert len(limit_checks.find_disorder([older, claim], limits)) == 1
    for harmless in (
        [claim],
        [older._replace(hold="dependencies"), claim],
        [older._replace(due_at=5.0, run_after=5.0), claim],
        [older, claim._replace(skips_waiting=True)],
        [older, claim._replace(concurrency_limit=2)],
        # Nobody can say whether the claim could see it.
        [older._replace(committed=9.0), claim],
    ):
        assert limit_checks.find_disorder(harmless, limits) == []


def test_a_retry_is_waited_for() -> None:
    retry = Change(1, committed=1, concurrency_key="k", due_at=50.0)
    limits = limit_checks.Limits("key", [])
    assert len(limit_checks.find_disorder([retry, *claims("k", 2)], limits)) == 1


def test_a_rate_limit_that_is_exceeded_is_found() -> None:
    starts = [
        Change(job, asked=at, made=at + 0.1, status="running", rate_limit_keys="r")
        for job, at in enumerate((0.0, 0.2, 0.4))
    ]
    assert len(limit_checks.find_haste(starts, count=2, period=1.0)) == 1
    assert limit_checks.find_haste(starts, count=3, period=1.0) == []
    # The last may have taken its token after the window.
    assert limit_checks.find_haste(starts, count=2, period=0.5) == []


def test_two_unfinished_jobs_with_one_unique_key_are_found() -> None:
    one, two = (Change(job, unique_key="u") for job in (1, 2))
    assert len(limit_checks.find_twins([one, two])) == 1
    assert limit_checks.find_twins([one, one._replace(status="failed"), two]) == []
    claimed = one._replace(claim=1, unique_until_claimed=True)
    assert limit_checks.find_twins([one, claimed, two]) == []
    assert limit_checks.find_twins([one, two._replace(task_path="other")]) == []


def ticks(*seconds: float) -> list[Kept]:
    """Return occurrences with a job each."""
    return [
        Kept(WHOLE, second, "enqueued", job, (job,)) for job, second in enumerate(seconds, start=1)
    ]


def test_occurrences_with_a_job_each_and_without_a_gap_are_none() -> None:
    kept = [*ticks(1.0, 2.0, 3.0), Kept("skipping", 2.0, "skipped", None, ())]
    assert times.find_doubled(kept) == []
    assert times.find_left_out([*kept, Kept("skipping", 9.0, "skipped", None, ())]) == []
    assert times.find_silence(kept, end=60.0, patience=60.0) == []
    assert times.find_silence(kept, end=64.0, patience=60.0) != []


@pytest.mark.parametrize(
    ("outcome", "job", "jobs"),
    [("enqueued", 1, (1, 2)), ("enqueued", 1, ()), ("enqueued", 1, (2,)), ("missed", None, (1,))],
)
def test_an_occurrence_with_other_jobs_than_its_own_is_found(
    outcome: str, job: int | None, jobs: tuple[int, ...]
) -> None:
    assert len(times.find_doubled([Kept(WHOLE, 1.0, outcome, job, jobs)])) == 1


def test_a_second_that_was_left_out_is_found() -> None:
    assert times.find_left_out(ticks(1.0, 2.0, 5.0)) == [
        "each second was not due at 3",
        "each second was not due at 4",
    ]


def log_line(level: str, message: str, **facts: str) -> str:
    return json.dumps({"level": level, "message": message, **facts})


@pytest.mark.parametrize(
    ("line", "count"),
    [
        (log_line("INFO", "anything"), 0),
        (log_line("WARNING", "worker=a lease not renewed: gone"), 0),
        (log_line("WARNING", "something new"), 1),
        (log_line("CRITICAL", "role=pump crashed", traceback="..."), 1),
        (log_line("WARNING", "worker=a statement failed: x", traceback="..."), 1),
        ("Traceback (most recent call last):", 1),
        (log_line("WARNING", "no task and no waiting job uses the queue 'mail'. Is it"), 0),
        ("Ctrl-C to stop, twice to stop at once.", 1),
    ],
)
def test_a_line_of_a_log_needs_a_reason(line: str, count: int) -> None:
    assert len(find_unexpected_lines("worker", [line])) == count


def test_an_interrupt_that_the_driver_drops_is_explained_and_other_tracebacks_are_not() -> None:
    lines = ["Traceback (most recent call last):", "Exception ignored in: 'psycopg_binary.pq'"]
    assert find_unexpected_lines("w", [*lines, "x.LeaseLost:"]) == []
    assert len(find_unexpected_lines("w", [*lines, "KeyError: 1"])) == 1


def test_lines_that_differ_in_numbers_only_are_one_finding() -> None:
    assert group(["crew1.2: job=1 x", "crew3.1: job=22 x", "y"]) == [
        "crew1.2: job=1 x (2 times)",
        "y (1 times)",
    ]


def test_what_is_written_into_the_journal_can_be_read(tmp_path: object) -> None:
    journal = Journal(f"{tmp_path}/journal")
    assert journal.read() == []
    journal.write("enqueued", ids=[1, 2], tokens=["a"])
    [entry] = journal.read()
    assert (entry.kind, entry.ids, entry.tokens) == ("enqueued", (1, 2), ("a",))
    assert entry.at > 0
    assert parse([]) == []


def node(number: int = 1, **facts: object) -> Node:
    """Return a batch of which all is well."""
    well = {
        "root": 1,
        "policy": "continue",
        "is_over": True,
        "broken": "",
        "completions": 2,
        "callbacks": 1,
        "called": 2,
        "numbers": (3, 2, 1, 0),
        "jobs": (3, 2, 1, 0),
    }
    return Node(number, **(well | facts))


def test_a_good_tree_has_no_findings() -> None:
    assert trees.find_open([node()]) == []
    assert trees.find_miscounted([node()]) == []
    assert trees.find_wrong_calls([node()]) == []
    assert trees.find_wrong_streams([Made(2, 1, 5, 2)], {5: 2}, set()) == []


def test_a_tree_that_does_not_end_is_found() -> None:
    assert len(trees.find_open([node(), node(2, is_over=False), node(3, broken="odd")])) == 2


def test_a_wrong_number_is_found() -> None:
    [found] = trees.find_miscounted([node(), node(2, numbers=(4, 2, 1, 0))])
    assert "batch 2" in found


@pytest.mark.parametrize("called", [1, 3])
def test_a_callback_too_many_or_too_few_is_found(called: int) -> None:
    [found] = trees.find_wrong_calls([node(called=called)])
    assert f"called back {called} times" in found


def test_a_job_too_many_or_too_few_of_a_result_is_found() -> None:
    made = [Made(2, 1, 5, 2), Made(2, 1, 6, 0)]
    assert len(trees.find_wrong_streams(made, {5: 1, 6: 1}, set())) == 2
    # A tree that was cancelled makes fewer, and never more.
    [found] = trees.find_wrong_streams(made, {5: 1, 6: 1}, {1})
    assert "job 5" in found


def test_each_success_of_a_job_counts() -> None:
    changes = life(1, "ready", "running", "successful", "ready", "running", "successful")
    assert trees.successes_of([*changes, *life(2, "ready", "running", "failed")]) == {1: 2}


@pytest.mark.parametrize(
    ("name", "number", "count"),
    [("successful", 2, 0), ("successful", 3, 1), ("failed", 1, 1), ("enqueued", 3, 1)],
)
def test_statistics_never_say_more_than_happened(name: str, number: int, count: int) -> None:
    changes = [
        *life(1, "ready", "running", "successful", "successful"),
        *life(2, "ready", "running", "successful"),
    ]
    assert len(figures.find_overcounted(changes, {name: number})) == count
