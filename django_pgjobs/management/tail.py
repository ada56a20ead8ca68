"""`manage.py jobs tail`: a line for each job that ends, as long as somebody looks."""

from __future__ import annotations

import json
import select
import time
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from itertools import product
from typing import Any, NoReturn

from django.db.models import Q
from django.db.models.functions import Now

from django_pgjobs.control.failures import class_name
from django_pgjobs.management.arguments import add_action
from django_pgjobs.management.filters import add_filters, matching
from django_pgjobs.management.printing import Write, in_english, json_text, local_time
from django_pgjobs.management.reading import read_again, reading
from django_pgjobs.management.spelling import tell_doubts
from django_pgjobs.models import Job
from django_pgjobs.models.failure_groups import last_error_expression
from django_pgjobs.queries.database import job_database
from django_pgjobs.status import JobStatus
from django_pgjobs.values.moments import logged_duration
from django_pgjobs.values.words import CONTROL

LOOK_SECONDS = 1.0
# A job may be committed a while after its end: each look goes back so far before the last one, by
# the server's clock, and leaves out what was told.
LOOK_BACK = timedelta(seconds=10)
# Of each status at one look.
MOST = 200
# Of all statuses at the first look, and how far that goes back, where *since* does not say more.
FIRST, FIRST_BACK = 10, timedelta(minutes=10)
COLUMNS = (
    "id", "status", "task_path", "queue_name", "attempts", "last_attempted_at", "finished_at",
)  # fmt: skip

DESCRIPTION = f"""
Prints a line for each job that ends, until Ctrl-C; first those of --since, or the last {FIRST} of
ten minutes. Where more than {MOST} of a status end in a second the newest are printed, and it is
said that there are more. No line has an end that is committed {LOOK_BACK.seconds} seconds late or
behind {MOST} others of its status, nor an attempt after which its job is retried: that has one in
the log of `runjobs`.
"""
EPILOG = """
examples:
  manage.py jobs tail
  manage.py jobs tail --status failed --since 1h
  manage.py jobs tail --queue mail --json | jq .exception_class
"""
ENDED = (JobStatus.SUCCESSFUL, JobStatus.FAILED, JobStatus.CANCELLED)

# Id and time.
End = tuple[int, Any]


def add_tail(actions: Any) -> None:
    """Add the action to those of `jobs`."""
    parser = add_action(
        actions,
        "tail",
        help="Print a line for each job that ends, until Ctrl-C.",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    add_filters(parser, ENDED, "all of them")
    parser.add_argument(
        "--json", action="store_true", help="Print an object of JSON in each line, for programs."
    )


@in_english()
def tail_jobs(write: Write, tell: Write, screen: Any, **flags: Any) -> NoReturn:
    """Print the jobs that ended last, and look again and again."""
    tell_doubts(tell, queues=[flags["queue"]], tasks=[flags["task"]])
    since = flags["since"]
    looked = time.monotonic()
    found, is_cut = _read(flags, since or FIRST_BACK, looked, {})
    told = dict.fromkeys(map(_end_of, found), looked)
    shown, is_cut = (found, is_cut) if since else (found[-FIRST:], False)
    while True:
        for job in shown:
            write(_as_json(job) if flags["json"] else _line(job))
        if is_cut:
            tell("there are more: name --status, --queue or --task.")
        screen.flush()
        _rest(screen)
        # A reader who stops for a while, such as a pager, or a database that is away holds this up.
        before, looked = looked, time.monotonic()
        found, is_cut = read_again(partial(_read, flags, LOOK_BACK, before, told), tell)
        shown = [job for job in found if _end_of(job) not in told]
        told = _still_told(told | dict.fromkeys(map(_end_of, found), looked), before)


def _rest(screen: Any) -> None:
    """Wait until the next look; raise BrokenPipeError if nobody reads any more."""
    try:
        number = screen.fileno()
    except OSError:
        time.sleep(LOOK_SECONDS)
        return
    # Without events it hears of errors only. A write would tell, but there may be none for hours.
    poll = select.poll()
    poll.register(number, 0)
    if poll.poll(LOOK_SECONDS * 1_000):
        raise BrokenPipeError


def _read(
    flags: Mapping[str, Any], back: timedelta, looked: float, told: Mapping[End, float]
) -> tuple[list[Job], bool]:
    """Return the newest jobs that match, by their ends, and may there be more to be told?

    Those since *back* before the last look, at *looked*, and those with a time to come, from before
    the server's clock was set back: as the newest of all these would hide all others.
    """
    back += timedelta(seconds=time.monotonic() - looked)
    found: list[Job] = []
    is_cut = False
    condition = matching({**flags, "since": None})
    whens = (
        (Q(finished_at__range=(Now() - back, Now())), "-finished_at"),
        (Q(finished_at__gt=Now()), "finished_at"),
    )
    statuses = [flags["status"]] if flags["status"] else ENDED
    for status, (when, order) in product(statuses, whens):
        jobs = Job.objects.using(job_database()).filter(condition & when, status=status)
        jobs = jobs.only(*COLUMNS).order_by(order)
        if status == JobStatus.FAILED:
            jobs = jobs.annotate(last_error=last_error_expression())
        with reading(walks=True):
            read = list(jobs[: MOST + 1])
        found += read[:MOST]
        # Else what is left out was told before, or there is no news.
        is_new = [_end_of(job) not in told for job in read]
        is_cut = is_cut or (len(read) > MOST and is_new[-1] and any(is_new[:-1]))
    return sorted(found, key=lambda job: (job.finished_at, job.pk)), is_cut


def _still_told(told: Mapping[End, float], looked: float) -> dict[End, float]:
    """Return those that a look may find again, by when one found them last.

    Their own times say less: the server's clock may be set back.
    """
    oldest = looked - LOOK_BACK.total_seconds()
    return {end: found_at for end, found_at in told.items() if found_at >= oldest}


def _end_of(job: Job) -> End:
    """Return what tells it from its other ends: it may be requeued."""
    return job.pk, job.finished_at


def _seconds(job: Job) -> float | None:
    """Return how long the last attempt took, None if there was none."""
    if job.last_attempted_at is None or job.finished_at is None:
        return None
    return max(0.0, float((job.finished_at - job.last_attempted_at).total_seconds()))


def _error(job: Job) -> tuple[str, str]:
    """Return class and message of the last error, empty if it has none."""
    name, _, message = getattr(job, "last_error", "").partition(": ")
    return name, message.strip()


def _line(job: Job) -> str:
    seconds, (name, message) = _seconds(job), _error(job)
    words = [
        local_time(job.finished_at)[11:19],
        job.status.ljust(10),
        f"{job.task_path} #{job.pk} queue={job.queue_name} attempts={job.attempts}",
        "" if seconds is None else f"ran={logged_duration(seconds)}",
        ": ".join(filter(None, (class_name(name), *message.splitlines()[:1]))),
    ]
    return " ".join(filter(None, words)).translate(CONTROL)


def _as_json(job: Job) -> str:
    name, message = _error(job)
    row = {column: getattr(job, column) for column in COLUMNS}
    row |= {"seconds": _seconds(job), "exception_class": name, "message": message}
    # One line, of what json_text makes of times and odd texts.
    return json.dumps(json.loads(json_text(row)))
