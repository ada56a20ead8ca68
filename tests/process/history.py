"""What jobs under control did, in the order in which they did it, and what was wrong with it.

A line of the journal is `<what> <key> <number> <instant> <process>`. Jobs write `begin`, `end`
and `fail` (an attempt that is to run again) with their id; the test writes `wait` for a job
that is enqueued, `limit` when so many of a key may run from now on, and `lost` when it has
killed a process. Each line is one write to a file opened with O_APPEND, so their order is the
truth: a job that was claimed because another had ended begins after the line of that end.

Each check returns what it found, in words; an empty list is what a test wants.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

KINDS = ("wait", "begin", "end", "fail", "limit", "lost")


class Event(NamedTuple):
    """One line; *number* is the id of a job, for `limit` how many may run."""

    kind: str
    key: str
    number: int
    instant: float = 0.0
    process: int = 0


def line_of(kind: str, key: str, number: int, process: int = 0) -> str:
    """Return a line of the journal, written now."""
    assert kind in KINDS
    assert key.split() == [key]
    return f"{kind} {key} {number} {time.time():.6f} {process}"


def parse(lines: Iterable[str]) -> list[Event]:
    """Return the events among the lines of a journal, in order."""
    events = []
    for line in lines:
        kind, *rest = line.split()
        if kind in KINDS:
            key, number, instant, process = rest
            events.append(Event(kind, key, int(number), float(instant), int(process)))
    return events


def find_crowds(
    events: Iterable[Event],
    limit: int = 1,
    *,
    group: Callable[[Event], str] = lambda event: event.key,
) -> list[str]:
    """Return the begins that made more than *limit* jobs of a group, by default a key, run."""
    limits: dict[str, int] = defaultdict(lambda: limit)
    running: dict[str, dict[int, int]] = defaultdict(dict)
    found = []
    for event in events:
        if event.kind == "limit":
            limits[event.key] = event.number
        elif event.kind == "begin":
            place = group(event)
            running[place][event.number] = event.process
            if len(running[place]) > limits[place]:
                found.append(f"{sorted(running[place])} run at once in {place}, see {event}")
        elif event.kind in ("end", "fail"):
            running[group(event)].pop(event.number, None)
        elif event.kind == "lost":
            for attempts in running.values():
                for job in [job for job, process in attempts.items() if process == event.process]:
                    del attempts[job]
    return found


def find_disorder(events: Iterable[Event]) -> list[str]:
    """Return the begins of jobs while an older one of their key had not ended, or after it did.

    A job that fails or whose process is killed has not ended: it comes again before the others.
    """
    unended: dict[str, set[int]] = defaultdict(set)
    newest: dict[str, int] = Counter()
    found = []
    for event in events:
        jobs = unended[event.key]
        if event.kind == "begin":
            older = [job for job in jobs if job < event.number]
            if older:
                found.append(f"{event} overtakes {sorted(older)}")
            if event.number not in jobs and event.number < newest[event.key]:
                found.append(f"{event} comes after {newest[event.key]}")
            newest[event.key] = max(newest[event.key], event.number)
        if event.kind in ("wait", "begin"):
            jobs.add(event.number)
        elif event.kind == "end":
            jobs.discard(event.number)
    return found


def find_starvation(events: Iterable[Event], turns: int, limit: int = 1) -> list[str]:
    """Return the keys that waited while another one got more than *turns* turns.

    A key waits while it has jobs that have not begun and fewer than *limit* that run.
    """
    waiting: dict[str, set[int]] = defaultdict(set)
    running: dict[str, set[int]] = defaultdict(set)
    # For each key the turns that others got since it could have had one.
    passed: dict[str, Counter[str]] = defaultdict(Counter)
    found = []
    for event in events:
        key = event.key
        if event.kind in ("wait", "fail"):
            waiting[key].add(event.number)
        elif event.kind == "begin":
            waiting[key].discard(event.number)
            passed[key].clear()
            for other, jobs in waiting.items():
                if other != key and jobs and len(running[other]) < limit:
                    passed[other][key] += 1
                    if passed[other][key] == turns + 1:
                        found.append(f"{key} had more than {turns} turns while {other} waited")
            running[key].add(event.number)
        if event.kind in ("end", "fail"):
            running[key].discard(event.number)
    return found


def find_lost(events: Iterable[Event]) -> list[str]:
    """Return the jobs that were enqueued or begun and did not end."""
    events = list(events)
    known = {event.number: event.key for event in events if event.kind in ("wait", "begin")}
    ended = {event.number for event in events if event.kind == "end"}
    return [f"{job} of {key} did not end" for job, key in sorted(known.items()) if job not in ended]


def most_at_once(events: Iterable[Event], key: str) -> int:
    """Return how many jobs of a key ran at the same time at most."""
    running: set[int] = set()
    most = 0
    for event in events:
        if event.key == key and event.kind == "begin":
            running.add(event.number)
        elif event.key == key and event.kind in ("end", "fail"):
            running.discard(event.number)
        most = max(most, len(running))
    return most
