"""`manage.py jobs workers`: who is there and what they run, and orders to them."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError
from django.db.models import QuerySet

from django_pgjobs.control.workers import Workers, heartbeat_of, read_workers, state_of
from django_pgjobs.management.arguments import (
    JSON,
    LIST,
    add_action,
    add_verbs,
    examples,
    some_text,
    worker_name,
)
from django_pgjobs.management.printing import Write, in_english, json_text, width_of, write_table
from django_pgjobs.management.reading import reading
from django_pgjobs.models import Worker
from django_pgjobs.orders import ALL, WorkerOrder, carry_out
from django_pgjobs.queries.database import rows_of
from django_pgjobs.queries.worker_pages import HeldRow, WorkerRow
from django_pgjobs.values.job_ids import parse_job_id
from django_pgjobs.values.moments import duration
from django_pgjobs.values.words import CONTROL, counted

DESCRIPTION = """
Prints the live workers, and those that ended within a day: what the page Workers of the admin
shows. With a verb it asks workers for something, as the buttons of that page do.

  worker     its name; in brackets host and process, if the name does not say them
  state      running, quiet (takes no new jobs), stopping, ended, or lost: its lease ran out
  heartbeat  how long ago it last renewed its lease; late: it should have done so since
  run        jobs that it holds: those that run in its slots, async ones, and some claimed ahead
  queues     those it serves
"""
EPILOG = """
examples:
  manage.py jobs workers
  manage.py jobs workers --json
  manage.py jobs workers quiet 17 18
  manage.py jobs workers stop web-1:4402
  manage.py jobs workers resume all
  manage.py jobs workers stop all
  manage.py jobs workers forget all
"""
# Verb -> what it does, what was done, and why it may not be.
VERBS = {
    "quiet": (
        "Let workers claim no new jobs; what they run goes on, what has not begun goes back.",
        "asked to claim no new jobs",
        "is not live, or was asked before",
    ),
    "resume": (
        "Let quiet workers take jobs again.",
        "asked to take jobs again",
        "is not live, or is not quiet",
    ),
    "stop": (
        "Let workers end what they run, and then themselves; runjobs does not start them again.",
        "asked to stop",
        "is not live, or was asked before",
    ),
    "forget": ("Delete the rows of lost workers.", "forgotten", "is not lost, or is gone"),
}
NUMBERS = ("id", "heartbeat", "slots", "run")
HEADS = ("id", "worker", "state", "heartbeat", "slots", "run", "version", "queues")


def worker_id(text: str) -> int | str | None:
    """Return the id of a worker, None for the word for all, else a name that one may have."""
    return None if text == ALL else parse_job_id(text) or worker_name(some_text(text))


def add_workers(actions: Any) -> None:
    """Add the action to those of `jobs`."""
    parser = add_action(
        actions,
        "workers",
        help="Show workers and what they hold; quiet, resume, stop and forget them.",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    verbs = add_verbs(parser, JSON, help="Show the workers, as without a verb.")
    for name, (does, *_) in VERBS.items():
        verb = add_action(
            verbs,
            name,
            help=does,
            epilog=examples(f"workers {name} 17", f"workers {name} {ALL}"),
            fails="one of those named was not in a state for it",
        )
        verb.add_argument(
            "workers",
            type=worker_id,
            nargs="+",
            metavar="id",
            help="The ids of workers, as `jobs workers` prints them, or names that one "
            f"{_whom(name)} worker has; {ALL}: all of them.",
        )


def handle(write: Write, screen: Any, *, verb: str, **flags: Any) -> None:
    """Show the workers, or give an order; raise CommandError if not all were in a state for it."""
    if verb == LIST:
        _show(write, screen, as_json=flags["json"])
    elif None in flags["workers"]:
        _order_all(write, verb)
    else:
        _order(write, verb, flags["workers"])


# Orders


def _order_all(write: Write, verb: str) -> None:
    _, done, _ = VERBS[verb]
    found = carry_out(WorkerOrder(verb, None))
    for worker in found:
        write(f"worker {worker.pk} ({worker.name}): {done}".translate(CONTROL))
    if not found:
        write(f"no {_whom(verb)} worker is in a state for that.")


def _order(write: Write, verb: str, given: list[int | str]) -> None:
    """Give the order to each; raise CommandError if one was not in a state for it."""
    _, done, not_done = VERBS[verb]
    failed = 0
    for each in given:
        ids = [each] if isinstance(each, int) else _ids_of(verb, each)
        found = carry_out(WorkerOrder(verb, ids[0])) if len(ids) == 1 else []
        failed += not found
        label = f"{ids[0]} ({each})" if len(ids) == 1 and ids != [each] else each
        said = done if found else not_done
        if len(ids) != 1:
            said = _why_not_one(verb, ids)
        write(f"worker {label}: {said}".translate(CONTROL))
    if failed:
        verb_form = "was" if failed == 1 else "were"
        raise CommandError(f"{failed} of {counted(len(given), 'worker')} {verb_form} not {done}.")


def _whom(verb: str) -> str:
    """Return which workers an order is for."""
    return "lost" if verb == "forget" else "live"


def _ids_of(verb: str, name: str) -> list[int]:
    """Return the ids of the workers of a name that an order is for."""
    found = WorkerOrder(verb, None).workers() if verb == "forget" else _live()
    return list(found.filter(name=name).order_by("pk").values_list("pk", flat=True))


def _live() -> QuerySet[Worker]:
    return rows_of(Worker).filter(Worker.that_is_live())


def _why_not_one(verb: str, ids: list[int]) -> str:
    if not ids:
        return f"no {_whom(verb)} worker has this name"
    named = f"{len(ids)} {_whom(verb)} workers have this name"
    return f"{named}, give an id: {', '.join(map(str, ids))}"


# Looking


@in_english()
def _show(write: Write, screen: Any, *, as_json: bool) -> None:
    with reading() as cursor:
        found = read_workers(cursor)
    if as_json:
        write(json_text([_as_values(found, row) for row in found.rows]))
        return
    rows = [_cells(found, row) for row in found.rows]
    nothing = "no worker has run in the last 24 hours. Start one: manage.py runjobs."
    write_table(write, HEADS, rows, nothing=nothing, numbers=NUMBERS, width=width_of(screen))
    if found.is_cut:
        write(f"there are more workers; the first {len(found.rows)} are shown.")
    if found.rows and not found.live:
        write("WARNING no worker is live: nothing runs. Start one: manage.py runjobs.")
    if found.are_mixed:
        write("WARNING live workers are of different versions.")


def _cells(found: Workers, row: WorkerRow) -> list[object]:
    is_late = not row.has_ended and heartbeat_of(row) == "late"
    held = _held(found.running.get(row.id, []))
    return [
        row.id,
        _worker(row),
        state_of(row),
        f"{duration(row.silent)}{' late' if is_late else ''}",
        row.slots,
        f"{found.max_counted}+" if held > found.max_counted else held,
        row.version,
        _queues(row),
    ]


def _worker(row: WorkerRow) -> str:
    """Return its name, and where it is if that is not in it."""
    place = f"{row.host}:{row.pid}" if row.token_id is None else "over HTTP"
    return row.name if place in row.name else f"{row.name} ({place})"


def _queues(row: WorkerRow) -> str:
    # An array that somebody has written by hand may hold NULL.
    names = "all" if row.queues is None else ", ".join(map(str, row.queues))
    but = ", ".join(map(str, row.excluded_queues))
    return f"{names} but {but}" if but else names


def _held(running: list[HeldRow]) -> int:
    return running[0].held if running else 0


def _as_values(found: Workers, row: WorkerRow) -> dict[str, Any]:
    running = found.running.get(row.id, [])
    return {
        "id": row.id,
        "name": row.name,
        "host": row.host if row.token_id is None else None,
        "pid": row.pid if row.token_id is None else None,
        "is_over_http": row.token_id is not None,
        "version": row.version,
        "state": state_of(row),
        "heartbeat": heartbeat_of(row),
        "silent_seconds": row.silent,
        "lease_seconds": row.lease,
        "ended_seconds": row.ended_ago,
        "age_seconds": row.age,
        "queues": row.queues,
        "excluded_queues": row.excluded_queues,
        "slots": row.slots,
        "held": _held(running),
        "jobs": [
            {
                "id": job.id,
                "task_path": job.task_path,
                "queue_name": job.queue_name,
                "seconds": job.seconds,
            }
            for job in running
        ],
    }
