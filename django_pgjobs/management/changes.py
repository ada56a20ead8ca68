"""`manage.py jobs cancel`, `requeue`, `reschedule`, `delete`: jobs by ids or by filters."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.core.management.base import CommandError
from django.db import DatabaseError, connections
from django.db.models import Q

from django_pgjobs.control import lifecycle
from django_pgjobs.control.changing import (
    Change,
    cancel_jobs,
    delete_jobs,
    is_refused,
    refusal_text,
    requeue_jobs,
    reschedule_jobs,
    times_of,
)
from django_pgjobs.control.leaving import Why, why_locked, why_not_deleted, why_not_requeued
from django_pgjobs.control.many import Jobs, change_pages, find_jobs
from django_pgjobs.exceptions import JobError
from django_pgjobs.management.arguments import (
    MAX_ROWS,
    add_action,
    count,
    instant,
    job_id,
    refuse_past,
    span,
)
from django_pgjobs.management.filters import add_filters, matching
from django_pgjobs.management.printing import Write, in_english, local_time
from django_pgjobs.management.spelling import tell_doubts
from django_pgjobs.models import Job
from django_pgjobs.models.batch_states import is_of_open
from django_pgjobs.queries.database import job_database, rows_of
from django_pgjobs.status import Hold, JobStatus
from django_pgjobs.values.moments import duration_in_words, now_aware
from django_pgjobs.values.words import counted

# Of the jobs that would be changed, so many are named.
MAX_NAMED = 5
# Between two lines of progress on a terminal.
PROGRESS_SECONDS = 2.0
FILTERS = ("status", "queue", "task", "error", "since", "limit")

# When jobs are to run: at an instant, after a length of time, None: now.
When = datetime | timedelta | None


@dataclass(frozen=True)
class JobChange:
    """What an action does, and the statuses of the jobs it is for.

    *usual* are those that it takes by filters if none is named. *one* changes one job and returns
    what was done, "": nothing. *done* is a word of what is printed, *before_time* what stands
    before the time, None: it has no time. *note* is told by its help. Jobs that *spares* finds are
    not its own. *why* says what keeps one of many.
    """

    name: str
    help: str
    statuses: tuple[JobStatus, ...]
    usual: tuple[JobStatus, ...]
    change: Callable[[When], Change]
    one: Callable[[int, When], str]
    done: str
    before_time: str | None = None
    note: str = ""
    spares: Callable[[], Q] | None = None
    why: Why = why_locked


def _cancel_one(job_id: int, when: When) -> str:
    if not lifecycle.cancel(job_id):
        return ""
    is_cancelled = rows_of(Job).filter(pk=job_id, status=JobStatus.CANCELLED).exists()
    return "cancelled" if is_cancelled else "asked to end"


def _requeue_one(job_id: int, when: When) -> str:
    return "requeued" if lifecycle.requeue(job_id, run_after=when) else ""


def _reschedule_one(job_id: int, when: When) -> str:
    return "rescheduled" if lifecycle.reschedule(job_id, when) else ""


def _delete_one(job_id: int, when: When) -> str:
    with connections[job_database()].cursor() as cursor:
        return "deleted" if delete_jobs(cursor, [job_id]).changed else ""


def _state_of(verb: JobChange, job_id: int) -> str:
    """Return what keeps a job from being changed."""
    status = rows_of(Job).filter(pk=job_id).values_list("status", flat=True).first()
    if status is None:
        return "does not exist"
    return f"is {status}" + (NEEDED if verb.spares and status in verb.statuses else "")


NEEDED = ", and an open workflow or a waiting job needs it, or somebody has locked it"
LIVE = (JobStatus.READY, JobStatus.RUNNING)
ENDED = (JobStatus.FAILED, JobStatus.CANCELLED, JobStatus.SUCCESSFUL)
VERBS = (
    JobChange(
        "cancel",
        "Cancel jobs that wait; ask those that run to end.",
        LIVE,
        LIVE,
        lambda when: cancel_jobs,
        _cancel_one,
        "cancelled",
    ),
    JobChange(
        "requeue",
        "Give finished jobs new attempts.",
        ENDED,
        (JobStatus.FAILED,),
        lambda when: partial(requeue_jobs, times=times_of(when)),
        _requeue_one,
        "requeued",
        "for",
        why=why_not_requeued,
    ),
    JobChange(
        "reschedule",
        "Move waiting jobs to another time.",
        (JobStatus.READY,),
        (JobStatus.READY,),
        lambda when: partial(reschedule_jobs, times=times_of(when)),
        _reschedule_one,
        "rescheduled",
        "to",
    ),
    JobChange(
        "delete",
        "Delete finished jobs.",
        ENDED,
        ENDED,
        lambda when: delete_jobs,
        _delete_one,
        "deleted",
        note="Jobs of workflows that are not complete stay, and so do failed ones as long as a\n"
        "waiting job is still to learn of them.\n",
        spares=is_of_open,
        why=why_not_deleted,
    ),
)
DESCRIPTION = """
{help}
{note}
Name jobs by their ids, or say which by --queue, --task and the like: then it says how many there
are, and asks before it changes them, 1,000 in a transaction. Jobs that come in meanwhile, or do not
match any more by then, are left alone.
"""
EPILOGS = {
    "cancel": """
examples:
  manage.py jobs cancel 4711 4712
  manage.py jobs cancel --queue mail --dry-run
  manage.py jobs cancel --queue mail --status ready
""",
    "requeue": """
examples:
  manage.py jobs requeue 4711 4712
  manage.py jobs requeue --task shop.tasks.push --error "timed out" --limit 10
  manage.py jobs requeue --queue mail --status cancelled --since 2h --yes
  manage.py jobs requeue --task shop.tasks.push --in 30m
""",
    "reschedule": """
examples:
  manage.py jobs reschedule 4711 --now
  manage.py jobs reschedule --queue reports --at 2026-12-24T02:00
  manage.py jobs reschedule --task shop.tasks.push --in 2h --yes
""",
    "delete": """
examples:
  manage.py jobs delete 4711 4712
  manage.py jobs delete --task shop.tasks.push --status failed --dry-run
  manage.py jobs delete --queue mail --since 2h --yes
""",
}


def add_changes(actions: Any) -> None:
    """Add the actions that change jobs to those of `jobs`."""
    for verb in VERBS:
        parser = add_action(
            actions,
            verb.name,
            help=verb.help,
            description=DESCRIPTION.format(help=verb.help, note=verb.note),
            epilog=EPILOGS[verb.name],
            fails=f"some job was not {verb.done}, or you have answered no",
        )
        parser.add_argument("ids", type=job_id, nargs="*", metavar="id", help="The ids of jobs.")
        if verb.before_time is not None:
            _add_times(parser, is_required=verb.name == "reschedule")
        _add_filters(parser.add_argument_group("all jobs that match"), verb)


def _add_times(parser: Any, *, is_required: bool) -> None:
    when = parser.add_mutually_exclusive_group(required=is_required)
    when.add_argument("--in", type=span, dest="when", metavar="30m", help="To run after: s m h d.")
    when.add_argument(
        "--at",
        type=instant,
        dest="when",
        metavar="TIME",
        help="To run at 2026-12-24T18:00, in the TIME_ZONE of the settings.",
    )
    when.add_argument(
        "--now",
        action="store_const",
        const=None,
        dest="when",
        help=f"To run now{'' if is_required else ', the default'}.",
    )


def _add_filters(some: Any, verb: JobChange) -> None:
    usual = " and ".join(verb.usual)
    add_filters(some, verb.statuses, usual, of_ended=verb.statuses == ENDED)
    some.add_argument(
        "--limit",
        type=count,
        metavar="N",
        help=f"At most so many, oldest first, 1 to {MAX_ROWS} (default: all).",
    )
    some.add_argument("--dry-run", action="store_true", help="Only say how many there are.")
    some.add_argument(
        "--yes", action="store_true", help="Do not ask: needed where nobody can answer."
    )


def change_jobs(name: str, write: Write, tell: Write, **flags: Any) -> None:
    """Change jobs; raise CommandError if not all of them were.

    Raise ValueError unless either ids or filters were given.
    """
    [verb] = (each for each in VERBS if each.name == name)
    is_filtered = any(flags.get(each) is not None for each in FILTERS)
    if flags["ids"] and (is_filtered or flags["dry_run"]):
        raise ValueError(f"{name} expected ids or filters, got both.")
    refuse_past("--at", flags.get("when"), "Write --now to let them run at once.")
    times_of(flags.get("when"))  # which refuses what is too far away
    if flags["ids"]:
        _change_each(verb, write, flags["ids"], flags.get("when"))
    elif is_filtered:
        _change_all(verb, write, tell, flags)
    else:
        raise ValueError(f"{name} expected the ids of jobs, or filters such as --queue and --task.")


def _change_each(verb: JobChange, write: Write, ids: list[int], when: When) -> None:
    """Change each job and write what was done."""
    failed, at = 0, _time_of(verb, when)
    for each in ids:
        try:
            did = verb.one(each, when)
            said = f"{did}{at}{_still_waits(each)}" if did else _state_of(verb, each)
        except JobError as error:
            did, said = "", str(error).removeprefix(f"job {each} ")
        except DatabaseError as error:
            if not is_refused(error):
                raise
            did, said = "", refusal_text(error)
        failed += not did
        write(f"job {each}: {said}")
    if failed:
        was = "was" if failed == 1 else "were"
        raise CommandError(f"{failed} of {counted(len(ids), 'job')} {was} not {verb.done}.")


@in_english()
def _time_of(verb: JobChange, when: When) -> str:
    """Return the time that was asked for, as what follows the jobs or what was done to them."""
    if when is None:
        return " to now" if verb.name == "reschedule" else ""
    now = now_aware()
    at = now + when if isinstance(when, timedelta) else when
    left = duration_in_words((at - now).total_seconds())
    return f" {verb.before_time} {local_time(at)} (in {left})"


def _still_waits(job_id: int) -> str:
    """Return that a job waits for others whatever its time is, "" if it does not."""
    rows = rows_of(Job).filter(pk=job_id, status=JobStatus.READY, hold=Hold.DEPENDENCIES)
    return ", but it still waits for other jobs" if rows.exists() else ""


def _change_all(verb: JobChange, write: Write, tell: Write, flags: dict[str, Any]) -> None:
    """Change the jobs that the filters find, if whoever asked for it says so again."""
    statuses = [flags["status"]] if flags.get("status") else list(verb.usual)
    found = Job.objects.filter(matching(flags)).filter(status__in=statuses)
    if verb.spares is not None:
        found = found.exclude(verb.spares())
    found = found.order_by("pk")[: flags["limit"]]
    jobs = find_jobs(found, statuses)
    if not jobs:
        tell_doubts(tell, queues=[flags["queue"]], tasks=[flags["task"]])
        write(f"no {' or '.join(statuses)} job was found.")
        return
    at = _time_of(verb, flags.get("when"))
    wanted = f"{verb.name} {_named(list(jobs), at)}"
    if flags["dry_run"]:
        write(f"would {wanted}")
        return
    _refuse_unless_sure(verb, write, wanted, is_sure=flags["yes"])
    _change_found(verb, write, tell, found, jobs, flags.get("when"), at)


def _named(ids: list[int], at: str) -> str:
    """Return how many jobs there are, the time that was asked for, and some of them."""
    some = ", ".join(map(str, ids[:MAX_NAMED]))
    return f"{_number(len(ids))}{at}: {some}{', ...' if len(ids) > MAX_NAMED else ''}"


def _number(jobs: int) -> str:
    return f"{jobs:,} job{'' if jobs == 1 else 's'}"


def _refuse_unless_sure(verb: JobChange, write: Write, wanted: str, *, is_sure: bool) -> None:
    """Ask; raise CommandError unless the answer is yes, ValueError if nobody can answer."""
    if is_sure:
        return
    if not sys.stdin.isatty():
        raise ValueError(f"{verb.name} expected --yes, or --dry-run to see what it would change.")
    try:
        answer = input(f"{wanted[0].upper()}{wanted[1:]}? [y/N] ")
    except (EOFError, KeyboardInterrupt):
        write("")  # the line of the question has no end yet
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise CommandError("nothing was changed.")


def _change_found(
    verb: JobChange, write: Write, tell: Write, found: Any, jobs: Jobs, when: When, at: str
) -> None:
    """Change jobs page by page, and write how many were, also if it is interrupted."""
    done, told_at = 0, time.monotonic()
    change = verb.change(when)
    try:
        for number in change_pages(found, jobs, verb.statuses, change, verb.why):
            done += number
            if sys.stderr.isatty() and time.monotonic() > told_at + PROGRESS_SECONDS:
                tell(f"{done:,} of {_number(len(jobs))}")
                told_at = time.monotonic()
    except JobError as error:
        raise CommandError(str(error)) from error
    finally:
        rest = "" if done == len(jobs) else f" of {len(jobs):,}"
        some = f"{done:,}{rest} job{'' if done == len(jobs) == 1 else 's'}"
        write(f"{some} {verb.done}{at}.")
    if done < len(jobs):
        raise CommandError(
            "The others have changed meanwhile, or a live job holds their unique key."
        )
