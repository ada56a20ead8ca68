"""`manage.py jobs list`, `stuck` and `stack`: which jobs there are, which look stuck, and where.

Also what `explain` and `show` take, which change nothing either.
"""

from __future__ import annotations

import time
from typing import Any

from django.core.management.base import CommandError

from django_pgjobs.control.details import detail_of, find_paused
from django_pgjobs.control.failures import class_name
from django_pgjobs.control.stacks import ask_where, where_it_is
from django_pgjobs.control.stuck import Stuck, find_stuck
from django_pgjobs.management.arguments import MAX_ROWS, add_action, count, examples, job_id
from django_pgjobs.management.filters import add_filters, matching
from django_pgjobs.management.printing import (
    Write,
    in_english,
    json_text,
    tell_of_more,
    width_of,
    write_table,
)
from django_pgjobs.management.reading import reading
from django_pgjobs.management.spelling import tell_doubts
from django_pgjobs.models import Job, Worker
from django_pgjobs.models.failure_groups import last_error_expression
from django_pgjobs.queries.database import job_database, rows_of
from django_pgjobs.status import FINISHED, Detail, Hold, JobStatus
from django_pgjobs.values.moments import duration
from django_pgjobs.values.words import counted

# Between two looks for the answer of a worker.
ANSWER_GAP_SECONDS = 0.1

LISTED = ("id", "status", "queue_name", "priority", "attempts", "enqueued_at", "task_path")
ENDED = tuple("finished_at" if name == "enqueued_at" else name for name in LISTED)
# What else tells the detail of a status.
DETAILS = ("hold", "due_at", "cancel_requested_at")
COLUMNS = ("id", "running", "queue_name", "worker", "task_path", "why")

OF_LIST = """
Lists unfinished jobs, or those of one status, newest first. Its filters are those of
`jobs requeue`, which takes what this lists with --error or --since.

  status       in brackets what a ready job waits for, or that a running one is asked to end
  priority     from -100 to 100: higher ones first
  attempts     those that have begun
  enqueued_at  in the TIME_ZONE of the settings
  finished_at  instead of that for finished jobs, which are listed by their end
  error        of failed jobs: class and first line of the last one; a terminal gets what fits

Of one job: `jobs show ID` prints what is stored, `jobs explain ID` why it does not run.
"""
OF_SHOW = """
Prints the columns of a job that are not as in every other one, why it does not run if it is not
finished, its failed attempts with the traceback of the newest, and what people did to it in the
admin: who cancelled or requeued it, and why. Nothing is masked.

Times are in the TIME_ZONE of the settings. --json prints all columns.
"""
OF_EXPLAIN = """
Says why a job does not run, the reasons that keep it first, as its page in the admin does; or what
it does, or how it ended. In brackets stands the code of each reason, which programs read by --json.
"""
OF_STACK = """
Asks the worker of a running job where the job is, waits for the answer, and prints the stack.
The job goes on. Nobody can ask a worker over HTTP.
"""
GONE = "there is no such job"
OF_STUCK = """
Lists running jobs that take far longer than their task usually does, or that stand still.

  running  for how long its attempt has run
  worker   who runs it; `jobs stack ID` asks it where the job is
  why      what is unusual
"""


def add_looks(actions: Any) -> None:
    """Add the actions that change nothing to those of `jobs`."""
    why = add_action(
        actions,
        "explain",
        help="Say why a job is not running, or what it does.",
        description=OF_EXPLAIN,
        epilog=examples("explain 4711", "explain 4711 --json | jq -r '.reasons[].code'"),
        fails=GONE,
    )
    show = add_action(
        actions,
        "show",
        help="Print what is stored of a job.",
        description=OF_SHOW,
        epilog=examples("show 4711", "show 4711 --json | jq .result"),
        fails=GONE,
    )
    listing = _add_list(actions)
    stuck = _add_stuck(actions)
    where = add_action(
        actions,
        "stack",
        help="Show where a running job is: its stack, from its worker.",
        description=OF_STACK,
        epilog=examples("stack 4711"),
        fails="the job does not run, or its worker has not answered within its lease",
    )
    for parser in (why, show, where):
        parser.add_argument("id", type=job_id, help="The id of a job.")
    for parser in (why, show, listing, stuck):
        parser.add_argument("--json", action="store_true", help="Print JSON for programs.")


def _add_stuck(actions: Any) -> Any:
    stuck = add_action(
        actions,
        "stuck",
        help="List running jobs that take far longer than usual, or stand still.",
        description=OF_STUCK,
        epilog=examples("stuck", "stuck --json | jq '.[].id'"),
        fails="with --fail, a job looks stuck",
    )
    stuck.add_argument(
        "--fail", action="store_true", help="End with exit status 1 if a job looks stuck."
    )
    return stuck


def _add_list(actions: Any) -> Any:
    listing = add_action(
        actions,
        "list",
        help="List unfinished jobs, or those of one status, newest first.",
        description=OF_LIST,
        epilog=examples(
            "list --queue mail",
            "list --task shop.tasks.push --error ConnectionError --since 2h",
            "list --status successful --since 10m --json | jq '.[].id'",
        ),
    )
    usual = "ready and running, with --error or --since failed"
    add_filters(listing, list(JobStatus), usual)
    listing.add_argument(
        "--limit",
        type=count,
        default=20,
        metavar="N",
        help=f"At most so many, 1 to {MAX_ROWS} (default: 20).",
    )
    return listing


def list_jobs(
    write: Write,
    tell: Write,
    screen: Any,
    *,
    status: str | None,
    limit: int,
    **flags: Any,
) -> None:
    """Print the newest jobs, those that have not finished unless flags are about others.

    Finished ones are listed in the order of their end, for which there is an index.
    """
    tell_doubts(tell, queues=[flags["queue"]], tasks=[flags["task"]])
    if status is None and (flags["error"] or flags["since"]):
        status = JobStatus.FAILED
    jobs = Job.objects.using(job_database()).only(*LISTED, *DETAILS, "finished_at")
    jobs = jobs.filter(status=status) if status else jobs.unfinished()
    jobs = jobs.order_by("-finished_at" if status in FINISHED else "-id")
    jobs = jobs.filter(matching(flags))
    if status == JobStatus.FAILED:
        jobs = jobs.annotate(last_error=last_error_expression())
    with reading(walks=True):
        read = list(jobs[: limit + 1])
    rows = _listed(read[:limit])
    if flags["json"]:
        write(json_text(rows))
    else:
        _write_list(write, screen, rows, status)
    if len(read) > limit:
        tell_of_more(tell, limit)


def _listed(jobs: list[Job]) -> list[dict[str, Any]]:
    """Return what is told of each job; of one that was read with it also its last error."""
    paused = find_paused(jobs)
    rows = []
    for job in jobs:
        row = {name: getattr(job, name) for name in (*LISTED, "finished_at")}
        row["detail"] = detail_of(job, is_paused=job.pk in paused)
        if (error := getattr(job, "last_error", None)) is not None:
            row["exception_class"], _, row["message"] = error.partition(": ")
        rows.append(row)
    return rows


def _write_list(write: Write, screen: Any, rows: list[dict[str, Any]], status: str | None) -> None:
    names, width = ENDED if status in FINISHED else LISTED, None
    if status == JobStatus.FAILED:
        names, width = (*names, "error"), width_of(screen)
    shown = [row | {"status": _with_detail(row["status"], row["detail"])} for row in rows]
    cells = [[_error(row) if name == "error" else row[name] for name in names] for row in shown]
    nothing = f"no {status or 'ready or running'} job was found."
    write_table(write, names, cells, nothing=nothing, width=width)


def _error(row: dict[str, Any]) -> str:
    """Return class and first line of an error."""
    lines = row["message"].strip().splitlines()
    return ": ".join(filter(None, (class_name(row["exception_class"]), *lines[:1])))


def _with_detail(status: str, detail: Hold | Detail | None) -> str:
    """Return both lines of the admin's list as one, such as "ready (waits for other jobs)"."""
    if detail is None:
        return status
    with in_english():
        text = str(detail.label)
    return f"{status} ({text[:1].lower()}{text[1:]})"


@in_english()
def list_stuck(write: Write, **flags: Any) -> None:
    """Print the jobs that look stuck, the longest running first.

    Raise CommandError if there are some and that was asked for.
    """
    with reading() as cursor:
        found = find_stuck(cursor)
    if flags["json"]:
        write(json_text([_as_values(stuck) for stuck in found]))
    else:
        write_table(write, COLUMNS, map(_cells, found), nothing="no job looks stuck.")
    if found and flags["fail"]:
        look = "looks" if len(found) == 1 else "look"
        raise CommandError(f"{counted(len(found), 'job')} {look} stuck.")


def _cells(stuck: Stuck) -> list[object]:
    return [
        stuck.run.id,
        duration(stuck.run.seconds),
        stuck.run.queue_name,
        stuck.run.worker_name,
        stuck.run.task_path,
        " ".join(text for _, text in stuck.reasons()),
    ]


def show_stack(write: Write, **flags: Any) -> None:
    """Ask the worker of a running job where the job is, wait for the answer and print it.

    Raise CommandError if there is no such job, it does not run, or its worker does not answer
    within its lease.
    """
    job_id = flags["id"]
    if not ask_where(job_id):
        raise CommandError(_why_nobody_answers(job_id))
    while (found := where_it_is(job_id)) is not None and found.written_at is None:
        if found.is_late:
            raise CommandError(f"the worker of job {job_id} has not answered within its lease.")
        time.sleep(ANSWER_GAP_SECONDS)
    if found is None:
        raise CommandError(f"job {job_id} does not run any more.")
    write(found.stack or "its worker holds it and has not begun it, or it is ending.")


def _why_nobody_answers(job_id: int) -> str:
    job = rows_of(Job).filter(pk=job_id).values("status", "worker_id").first()
    if job is None:
        return f"there is no job {job_id}."
    if job["status"] != JobStatus.RUNNING:
        return f"job {job_id} does not run: it is {job['status']}."
    worker = rows_of(Worker).filter(pk=job["worker_id"] or 0).first()
    if worker is not None and worker.token_id is not None:
        return (
            f"job {job_id} runs in {worker.name}, a worker over HTTP, whose stack nobody sees "
            "from here."
        )
    return f"the worker of job {job_id} is gone; another one will take the job."


def _as_values(stuck: Stuck) -> dict[str, Any]:
    usual = stuck.usual
    return {
        "id": stuck.run.id,
        "task_path": stuck.run.task_path,
        "queue_name": stuck.run.queue_name,
        "worker_id": stuck.run.worker_id,
        "worker_name": stuck.run.worker_name,
        "seconds": stuck.run.seconds,
        "usual_seconds": None if usual is None else list(usual),
        "still_seconds": stuck.still,
    }
