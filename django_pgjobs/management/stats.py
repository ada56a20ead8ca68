"""`manage.py jobs stats`: what waits and runs in each queue, and how fast it goes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, NoReturn

from django_pgjobs.control.numbers import (
    OLD_SECONDS,
    Hour,
    QueueLine,
    Span,
    queue_lines,
    read_finish_rates,
    read_hour,
)
from django_pgjobs.management.arguments import add_action, whole_number
from django_pgjobs.management.printing import (
    Write,
    in_english,
    json_text,
    local_time,
    width_of,
    write_table,
)
from django_pgjobs.management.reading import read_again, reading
from django_pgjobs.queries import queue_pages
from django_pgjobs.queries.control import PauseRow
from django_pgjobs.queries.numbers import Size
from django_pgjobs.queries.queue_pages import QueueRow, Queues
from django_pgjobs.values.moments import duration, now_aware
from django_pgjobs.values.words import CONTROL

DESCRIPTION = """
Prints a line per queue, and what is paused: what the page Queues of the admin shows.

  state     active, or PAUSED: by whom and why is told below the table, also of tasks and keys
  ready     jobs that may run now; 8000+ are at least so many, for not all were counted
  run       jobs that run; 3/4 where the queue has a limit of 4
  retry     jobs that wait for their next attempt
  sched     jobs for later
  blocked   jobs that wait for other jobs
  oldest    how long the oldest ready job has waited
  done/min  jobs that ended per minute, in the last five minutes that are over
  fail%     how many of 100 jobs that ended in the last hour failed, without cancelled ones
  p50, p95  half of the attempts of the last hour ran so long at most, and 95 of 100; times are
            kept in classes that double, and each is the end of its class

A dash is what is not known, or that there is nothing. WARNING: no live worker takes the ready jobs
of a queue.
"""
EPILOG = """
examples:
  manage.py jobs stats
  manage.py jobs stats --watch
  manage.py jobs stats --json | jq '.[] | select(.is_unserved)'
"""
NUMBERS = (
    "ready",
    "run",
    "retry",
    "sched",
    "blocked",
    "oldest",
    "done/min",
    "fail%",
    "p50",
    "p95",
)
HEADS = ("queue", "state", *NUMBERS)
WATCH_SECONDS = 2
MAX_WATCH_SECONDS = 86_400
# Clears a terminal and goes to its first line.
CLEAR = "\x1b[2J\x1b[H"
NONE = "-"


class Stats(NamedTuple):
    """What was read, and the numbers of jobs that finish per minute of queues where known.

    *pauses* are those of tasks and keys.
    """

    queues: Queues
    pauses: list[PauseRow]
    hour: Hour
    per_minute: dict[str, float | None]
    now: datetime

    @property
    def lines(self) -> list[QueueLine]:
        """What is told of each queue."""
        return queue_lines(self.queues.rows, self.hour)


def add_stats(actions: Any) -> None:
    """Add the action to those of `jobs`."""
    parser = add_action(
        actions,
        "stats",
        help="Show what waits and runs in each queue, how fast it goes and what fails.",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="Print JSON for programs.")
    how.add_argument(
        "--watch",
        nargs="?",
        const=WATCH_SECONDS,
        type=partial(whole_number, most=MAX_WATCH_SECONDS),
        metavar="SECONDS",
        help=f"Draw it anew every 1 to {MAX_WATCH_SECONDS} s (default: {WATCH_SECONDS}), until "
        "Ctrl-C.",
    )


@in_english()
def show_stats(write: Write, tell: Write, screen: Any, **flags: Any) -> None:
    """Print the numbers of all queues, once or again and again."""
    if flags["watch"] is not None:
        _watch(write, tell, screen, flags["watch"])
    stats = _read()
    if flags["json"]:
        write(json_text([_as_values(stats, line) for line in stats.lines]))
    else:
        _draw(write, stats, width_of(screen))


def _watch(write: Write, tell: Write, screen: Any, seconds: int) -> NoReturn:
    stats = _read()
    while True:
        if screen.isatty():
            screen.write(CLEAR, ending="")
        write(f"--- {local_time(stats.now)}, every {seconds} s until Ctrl-C")
        _draw(write, stats, width_of(screen))
        screen.flush()
        time.sleep(seconds)
        stats = read_again(_read, tell)


def _read() -> Stats:
    with reading(walks=True) as cursor:
        hour = read_hour(cursor)
        queues = queue_pages.list_queues(cursor, also_names=hour.queue_names)
        pauses = queue_pages.list_pauses(cursor)
        rates = read_finish_rates(cursor, hour, [row.name for row in queues.rows])
    per_minute = {name: rate.per_minute for name, rate in rates.items()}
    return Stats(queues, pauses, hour, per_minute, now_aware())


# For people


def _draw(write: Write, stats: Stats, width: int | None) -> None:
    lines = stats.lines
    rows = [_cells(stats, line) for line in lines]
    nothing = "no queue has jobs, settings, a pause or a worker of its own."
    write_table(write, HEADS, rows, nothing=nothing, numbers=NUMBERS, width=width)
    for text in (*_notes(stats), *filter(None, map(_warning, lines))):
        write(text.translate(CONTROL))


def _cells(stats: Stats, line: QueueLine) -> list[str]:
    row, size = line.row, line.size
    counts = [NONE] * 5
    if size is not None:
        numbers = (size.ready, size.running, size.retrying, size.scheduled, size.blocked)
        counts = [_counted(size, number) for number in numbers]
    if row.max_running is not None:
        counts[1] += f"/{row.max_running}"
    return [
        row.name,
        "PAUSED" if row.paused_at else "active",
        *counts,
        _duration(_age(row.waiting_since, stats.now)),
        _decimal(stats.per_minute.get(row.name)),
        _decimal(line.failed_percent),
        *(_duration(each) for each in _parts(line.ran)),
    ]


def _notes(stats: Stats) -> Iterator[str]:
    """Yield who paused what, and what is not as new as it looks, or left out."""
    for row in stats.queues.rows:
        if row.paused_at is not None:
            yield _pause("queue", row, stats.now)
    for pause in stats.pauses:
        yield _pause(pause.kind, pause, stats.now)
    for what, at in (("waits and runs", stats.queues.size.measured_at), ("ended", stats.hour.upto)):
        seconds = _age(at, stats.now) or 0.0
        if seconds >= OLD_SECONDS:
            yield f"what {what} is as of {duration(round(seconds))} ago."
    if stats.queues.has_more:
        yield f"there are more queues; the first {len(stats.queues.rows)} are shown."
    if len(stats.pauses) >= queue_pages.MAX_PAUSES:
        yield f"there may be more pauses; {len(stats.pauses)} of tasks and keys are shown."


def _pause(kind: str, row: QueueRow | PauseRow, now: datetime) -> str:
    by = f" by {row.paused_by}" if row.paused_by else ""
    why = f": {' '.join(row.reason.split())}" if row.reason else ""
    left = _age(now, row.resume_at) if row.resume_at else None
    end = "" if left is None else f" (resumes in {duration(left)})"
    return f"{kind} {row.name}: paused{by} {_duration(_age(row.paused_at, now))} ago{end}{why}"


def _warning(line: QueueLine) -> str | None:
    """Return what is wrong if no live worker takes the ready jobs of a queue."""
    if not line.row.is_unserved:
        return None
    size = line.size
    number = _counted(size, size.ready) if size is not None and size.ready else ""
    jobs, them = ("job is", "it") if number == "1" else ("jobs are", "them")
    some = f"{number} {jobs}".lstrip()
    return f"WARNING queue {line.name}: {some} ready and no live worker takes {them}."


def _counted(size: Size, number: int) -> str:
    """Return a number of jobs as it is shown, with a + if there may be more."""
    return f"{number}{'+' if size.is_cut else ''}"


def _duration(seconds: float | None) -> str:
    return NONE if seconds is None else duration(seconds)


def _decimal(number: float | None) -> str:
    return NONE if number is None else f"{number:.1f}"


def _parts(span: Span | None) -> tuple[float | None, float | None]:
    return (None, None) if span is None else (span.half, span.most)


def _age(since: datetime | None, now: datetime) -> float | None:
    return None if since is None else max(0.0, (now - since).total_seconds())


# For programs


def _as_values(stats: Stats, line: QueueLine) -> dict[str, Any]:
    row, size = line.row, line.size
    (run_half, run_most), (wait_half, wait_most) = _parts(line.ran), _parts(line.waited)
    return {
        "queue_name": row.name,
        "state": "paused" if row.paused_at else "active",
        "paused_at": row.paused_at,
        "paused_by": row.paused_by,
        "pause_reason": row.reason,
        "resume_at": row.resume_at,
        "ready": size and size.ready,
        "running": size and size.running,
        "max_running": row.max_running,
        "retrying": size and size.retrying,
        "scheduled": size and size.scheduled,
        "blocked": size and size.blocked,
        "is_cut": size and size.is_cut,
        "measured_at": size and size.measured_at,
        "waiting_since": row.waiting_since,
        "oldest_seconds": _age(row.waiting_since, stats.now),
        "finished_per_minute": stats.per_minute.get(row.name),
        "finished_hour": line.finished,
        "failed_hour": line.failed,
        "failed_percent": line.failed_percent,
        "run_seconds": {"p50": run_half, "p95": run_most},
        "wait_seconds": {"p50": wait_half, "p95": wait_most},
        "workers": row.workers,
        "slots": row.slots,
        "is_unserved": row.is_unserved,
    }
