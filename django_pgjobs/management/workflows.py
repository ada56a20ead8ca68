"""`manage.py jobs workflows`: trees of batches, and changes of one."""

from __future__ import annotations

import argparse
from typing import Any

from django.core.management.base import CommandError

from django_pgjobs.exceptions import JobError
from django_pgjobs.management.arguments import (
    JSON,
    LIST,
    MAX_ROWS,
    add_action,
    add_verbs,
    count,
    examples,
    job_id,
)
from django_pgjobs.management.one_workflow import COUNTS, counts_of, find_batch, show_workflow
from django_pgjobs.management.printing import (
    Write,
    in_english,
    json_text,
    tell_of_more,
    write_table,
)
from django_pgjobs.management.reading import reading
from django_pgjobs.models.batch_states import LARGE_FIELDS, all_workflows, with_states
from django_pgjobs.queries.database import job_database
from django_pgjobs.queries.workflow_pages import MAX_SUMMED, summarise_trees
from django_pgjobs.values.words import counted

LISTED = ("id", "name", "state", *COUNTS, "created_at")

DESCRIPTION = """
Lists workflows, newest first, with the numbers of their whole trees. With a verb it prints or
changes one: a workflow, or any batch of it with what is below.

  state       not complete: open, to which more jobs may come; waiting, for other batches;
              running; cancelling. Complete: successful; failed, if not all of it succeeded;
              cancelled, likewise after a cancel, if no job of its own failed; not run, as what
              it follows failed. broken: cannot be counted, see its page in the admin
  jobs        all that were added so far, and how many of them ended as the next columns say
"""
EPILOG = """
examples:
  manage.py jobs workflows --unfinished
  manage.py jobs workflows show 17
  manage.py jobs workflows retry 17
  manage.py jobs workflows cancel 17
  manage.py jobs workflows seal 17
"""
OF_SHOW = """
Prints the batches of a workflow, each with the numbers of its own jobs; what it waits for; its
newest failed jobs; and who or what cancelled it, when and why, as far as that is known: the admin
writes down what people do there, and only there. The state of a batch tells of all below it, too.
"""
OF_RETRY = """
Requeues the failed jobs of a batch and of all below it, in one transaction. What follows them runs
again with the new results, and the callbacks come once more.
"""
OF_SEAL = """
Says that no more jobs come to a batch that is open, because the program that was to seal it has
died. It is complete when what is in it is. This cannot be taken back.
"""
OF_CANCEL = """
Cancels a batch and all below it: jobs that wait end as cancelled, those that run are asked to end.
Workers go on with that, 1,000 jobs at a time. To take it back: retry --cancelled.
"""
# Verb -> what it does, its description, and what else may keep it.
VERBS = {
    "show": ("Print a workflow, what it waits for, and what failed.", OF_SHOW, ""),
    "retry": (
        "Run the failed part of a workflow again.",
        OF_RETRY,
        ", no job of it failed, or one above it was cancelled",
    ),
    "cancel": ("Cancel a workflow.", OF_CANCEL, ", or it is complete or was cancelled before"),
    "seal": ("Say that no more jobs come to a batch.", OF_SEAL, ", or it is not open"),
}
# Those of the list, beside --json.
FLAGS: dict[str, dict[str, Any]] = {
    "--unfinished": {"action": "store_true", "help": "Only those that are not complete."},
    "--limit": {
        "type": count,
        "default": 20,
        "metavar": "N",
        "help": f"At most so many, 1 to {MAX_ROWS} (default: 20).",
    },
}


def add_workflows(actions: Any) -> None:
    """Add the action to those of `jobs`."""
    parser = add_action(
        actions,
        "workflows",
        help="List workflows; show, retry, cancel and seal one.",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    verbs = add_verbs(parser, FLAGS | JSON, help="List workflows, as without a verb.")
    for name, (does, description, fails) in VERBS.items():
        verb = add_action(
            verbs,
            name,
            help=does,
            description=description,
            epilog=examples(f"workflows {name} 17"),
            fails=f"there is no such batch{fails}",
        )
        verb.add_argument("id", type=job_id, help="The id of a workflow, or of a batch below it.")
        if name == "show":
            # Left out it leaves what was given before the verb.
            unless = argparse.SUPPRESS
            verb.add_argument(
                "--json", action="store_true", default=unless, help="Print JSON for programs."
            )
        if name == "retry":
            verb.add_argument(
                "--cancelled", action="store_true", help="Requeue cancelled jobs, too."
            )


def handle(write: Write, tell: Write, *, verb: str, json: bool, **flags: Any) -> None:
    """List workflows, or show or change one; raise CommandError if that cannot be."""
    try:
        if verb == LIST:
            unfinished = flags["unfinished"]
            _list(write, tell, unfinished=unfinished, limit=flags["limit"], as_json=json)
        elif verb == "show":
            show_workflow(write, flags["id"], as_json=json)
        elif verb == "retry":
            _retry(write, flags["id"], cancelled=flags["cancelled"])
        elif verb == "cancel":
            _cancel(write, flags["id"])
        else:
            _seal(write, flags["id"])
    except (LookupError, JobError) as error:
        raise CommandError(str(error)) from error


# Changing


def _retry(write: Write, batch_id: int, *, cancelled: bool) -> None:
    batch = find_batch(batch_id)
    was_cancelled = batch.cancel_requested_at is not None
    number = batch.retry(cancelled=cancelled)
    if number:
        write(f"batch {batch_id}: {counted(number, 'job')} requeued")
    elif was_cancelled and batch.cancel_requested_at is None:
        write(f"batch {batch_id}: no job requeued; what waits runs, as its cancel was taken back")
    else:
        ended = "has failed or was cancelled" if cancelled else "has failed"
        more = "" if cancelled else " --cancelled requeues cancelled ones, too."
        raise CommandError(f"no job of batch {batch_id} was requeued: none {ended}.{more}")


def _cancel(write: Write, batch_id: int) -> None:
    if not find_batch(batch_id).cancel():
        raise CommandError(f"batch {batch_id} is complete, or was cancelled before.")
    write(f"batch {batch_id}: cancelled")


def _seal(write: Write, batch_id: int) -> None:
    batch = find_batch(batch_id)
    if batch.sealed_at is not None or batch.follows is not None:
        raise CommandError(f"batch {batch_id} is not open: no more jobs come to it.")
    batch.seal()
    write(f"batch {batch_id}: sealed")


# Looking


@in_english()
def _list(write: Write, tell: Write, *, unfinished: bool, limit: int, as_json: bool) -> None:
    """Write the newest workflows, with the numbers of whole trees."""
    roots = with_states(all_workflows().using(job_database())).order_by("-id")
    if unfinished:
        roots = roots.filter(tree_completed_at=None)
    with reading() as cursor:
        read = list(roots.defer(*LARGE_FIELDS)[: limit + 1])
        found = read[:limit]
        sums = summarise_trees(cursor, [root.pk for root in found])
    shown = [root for root in found if root.pk in sums]  # not deleted meanwhile
    rows = [
        (root.pk, root.name, root.state, *counts_of(sums[root.pk]), root.created_at)
        for root in shown
    ]
    if as_json:
        write(json_text([dict(zip(LISTED, row, strict=True)) for row in rows]))
    else:
        nothing = "no workflow is unfinished." if unfinished else "there are no workflows."
        write_table(write, LISTED, rows, nothing=nothing)
        for root in shown:
            if sums[root.pk].is_cut:
                first = "the numbers are those of the first."
                write(f"{root.pk}: more than {MAX_SUMMED} batches; {first}")
    if len(read) > limit:
        tell_of_more(tell, limit)
