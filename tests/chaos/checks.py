"""What must hold whatever went wrong: each check returns what it found, in words.

They read the journal and the ledger and nothing else, so each is tested with a made-up history.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tests.chaos import journal as notes
from tests.chaos.journal import Entry
from tests.chaos.ledger import Change

# How many attempts may be lost with their worker before the job fails, by default: 3 if it was
# lost alone at last, and three times as many if there were always others.
MOST_LOSSES = 9


class History(NamedTuple):
    """The journal, the ledger in the order of the commits, and effects: job -> how many."""

    entries: list[Entry]
    changes: list[Change]
    effects: Mapping[int, int] = {}

    def of(self, *kinds: str) -> list[Entry]:
        """Return the entries of some kinds."""
        return [entry for entry in self.entries if entry.kind in kinds]

    def last(self) -> dict[int, Change]:
        """Return each job as it is now."""
        return {change.job: change for change in self.changes}

    def dirty(self) -> dict[int, Entry]:
        """Return the entries of odd rows by id."""
        return {job: entry for entry in self.of(notes.DIRTY) for job in entry.ids}


def find_lost(history: History) -> list[str]:
    """Return the jobs whose enqueue was acknowledged and of which the table knows nothing."""
    known = history.last()
    return [
        f"job {job} of {entry.tokens} was acknowledged and is not there"
        for entry in history.of(notes.ENQUEUED, notes.DIRTY)
        for job in entry.ids
        if job not in known
    ]


def find_stuck(history: History, now: float) -> list[str]:
    """Return the jobs that have not ended though nothing keeps them."""
    dirty = history.dirty()
    policies = {job: entry.what for entry in history.of(notes.ENQUEUED) for job in entry.ids}
    found = []
    for job, change in history.last().items():
        if change.is_finished or may_wait(change, dirty.get(job), policies.get(job, ""), now):
            continue
        what = f" (odd row: {dirty[job].what})" if job in dirty else ""
        asked = " although it was cancelled" if change.cancel_requested_at is not None else ""
        found.append(
            f"job {job} of {change.task_path} is {change.status}{asked}, hold={change.hold} "
            f"due={change.due_at} claim={change.claim}{what}"
        )
    return found


def may_wait(change: Change, odd: Entry | None, policy: str, now: float) -> bool:
    """Return whether a job is ready for a reason that can be seen in its row."""
    if change.status != "ready":
        return False
    if odd is not None:
        # Put off with a note, or it asked for what never comes.
        return odd.may_wait or (change.due_at is not None and change.due_at > now)
    return change.hold == "predecessor failed" and policy == "hold"


def find_ghosts(history: History) -> list[str]:
    """Return the attempts of jobs whose enqueue was rolled back."""
    gone = {token for entry in history.of(notes.ROLLED_BACK) for token in entry.tokens}
    return [
        f"job {entry.job} ran with {entry.token}, which was rolled back"
        for entry in history.of(notes.BEGIN)
        if entry.token in gone
    ]


def find_unrun(history: History) -> list[str]:
    """Return the successful jobs of which no attempt came to its end."""
    ended = {entry.job for entry in history.of(notes.END)}
    odd = history.dirty()
    return [
        f"job {job} of {change.task_path} is successful and never ended"
        for job, change in history.last().items()
        if change.status == "successful"
        and change.task_path.startswith("tests.chaos.")
        and job not in ended
        and job not in odd
    ]


def find_doubled(history: History) -> list[str]:
    """Return the assignments of workers over HTTP that were not for one attempt alone.

    One is begun once, and its attempt does not come to its end when a later one has begun.
    """
    begun: dict[int, list[str]] = defaultdict(list)
    found = []
    for entry in history.of(notes.BEGIN, notes.END):
        assignments = begun[entry.job]
        if not entry.what:
            continue
        if entry.kind == notes.BEGIN:
            if entry.what in assignments:
                found.append(f"job {entry.job} was begun twice in one attempt")
            assignments.append(entry.what)
        elif assignments[-1:] != [entry.what]:
            found.append(f"job {entry.job} came to its end after its next attempt had begun")
    return found


def find_unmerged(history: History) -> list[str]:
    """Return what was merged into a waiting job and was not seen by a successful attempt."""
    seen = {entry.token for entry in history.of(notes.END)}
    last = history.last()
    return [
        f"{token} was merged into job {job}, which is successful and did not see it"
        for entry in history.of(notes.ENQUEUED)
        if entry.what == "gather"
        for token in entry.tokens
        for job in entry.ids
        if token not in seen and job in last and last[job].status == "successful"
    ]


def find_repeated_effects(history: History, paths: Iterable[str]) -> list[str]:
    """Return the atomic jobs whose effects are more or fewer than their successes."""
    successes: Counter[int] = Counter()
    atomic = set(paths)
    before: dict[int, str] = {}
    jobs = set(history.effects)
    for change in history.changes:
        if change.task_path in atomic:
            jobs.add(change.job)
            if change.status == "successful" and before.get(change.job) != "successful":
                successes[change.job] += 1
        before[change.job] = change.status
    return [
        f"job {job} succeeded {successes[job]} times and left {history.effects.get(job, 0)} effects"
        for job in sorted(jobs)
        if successes[job] != history.effects.get(job, 0)
    ]


def find_crash_loops(history: History) -> list[str]:
    """Return the jobs that were tried or lost more often than their bounds allow."""
    odd = history.dirty()
    found = {}
    for change in history.changes:
        if change.job in odd:
            continue
        most = change.max_attempts
        if most is not None and change.attempts > most + change.lost_count:
            found[change.job] = f"job {change.job} has {change.attempts} attempts of {most}"
        if change.lost_count > MOST_LOSSES:
            found[change.job] = f"job {change.job} was lost {change.lost_count} times"
    return list(found.values())


def find_killers(history: History) -> list[str]:
    """Return the jobs that killed more workers than they may."""
    kills = Counter(entry.job for entry in history.of(notes.DYING))
    return [f"job {job} killed {n} workers" for job, n in kills.items() if n > MOST_LOSSES]


def find_ignored_cancels(history: History, patience: float) -> list[str]:
    """Return the running jobs that were asked to end and went on for *patience* seconds."""
    asked: dict[tuple[int, int], float] = {}
    found = []
    for change in history.changes:
        attempt = (change.job, change.claim)
        if change.status == "running" and change.cancel_requested_at is not None:
            asked.setdefault(attempt, change.committed)
            continue
        for other in [other for other in asked if other[0] == change.job]:
            waited = change.committed - asked.pop(other)
            if waited > patience:
                found.append(f"job {change.job} ran {waited:.0f} s after its cancellation")
    return found


def find_standstill(history: History, patience: float, end: float) -> list[str]:
    """Return the times in which jobs without keys could be claimed and none was.

    *patience* is in seconds, *end* the instant at which the run was over.
    """
    waiting: dict[int, float] = {}
    odd = history.dirty()
    claimed_at = 0.0
    found = []

    def look(instant: float) -> None:
        since = max(claimed_at, min(waiting.values(), default=instant))
        if instant - since > patience:
            found.append(f"nothing was claimed for {instant - since:.0f} s until {instant:.0f}")

    for change in history.changes:
        is_plain = change.concurrency_key is None and change.rate_limit_keys is None
        if change.status == "running" and change.job in waiting:
            look(change.committed)
            claimed_at = change.committed
        waiting.pop(change.job, None)
        # The other queues are paused, or full.
        is_open = change.queue_name == "default"
        if change.is_startable and is_plain and is_open and change.job not in odd:
            waiting[change.job] = change.committed
    look(end)
    return found


def find_hasty_dependents(history: History) -> list[str]:
    """Return the jobs that were claimed before what they wait for had ended once."""
    after = {
        job: entry.after for entry in history.of(notes.ENQUEUED) if entry.after for job in entry.ids
    }
    ended: set[int] = set()
    rescheduled: dict[int, str | None] = defaultdict(lambda: None)
    found = []
    for change in history.changes:
        if change.is_finished:
            ended.add(change.job)
        if change.status == "running" and change.job in after:
            early = [job for job in after[change.job] if job not in ended]
            if early and rescheduled[change.job] != "requeued":
                found.append(f"job {change.job} was claimed before {early} had ended")
        if change.is_startable and change.job in ended:
            rescheduled[change.job] = "requeued"  # that ends what it waited for
    return found
