"""The flags that say which jobs: those of `jobs list`, and of what changes jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import Q
from django.utils import timezone

from django_pgjobs.bulk.lookups import conditions
from django_pgjobs.management.arguments import some_text, span
from django_pgjobs.status import JobStatus


def add_filters(
    parser: Any, statuses: Sequence[JobStatus], usual: str, *, of_ended: bool = True
) -> None:
    """Add the flags; *usual* says what is taken where no status is named.

    *of_ended*: also those that are for jobs that have ended.
    """
    if len(statuses) > 1:
        parser.add_argument(
            "--status",
            choices=[status.value for status in statuses],
            help=f"Only those of this status. Default: {usual}.",
        )
    parser.add_argument("--queue", metavar="NAME", help="Only those of this queue.")
    parser.add_argument("--task", metavar="PATH", help="Only those of this task.")
    if of_ended:
        parser.add_argument(
            "--error",
            type=some_text,
            metavar="TEXT",
            help="Only those with this in class or message of the last error, in any case.",
        )
        parser.add_argument(
            "--since", type=span, metavar="2h", help="Only those that ended within: s m h d."
        )


def matching(flags: Mapping[str, Any]) -> Q:
    """Return the condition that the flags name, but for the status."""
    since = flags.get("since")
    given = {
        "queue_name": flags["queue"],
        "task_path": flags["task"],
        "error": flags.get("error"),
        "finished_at__gte": timezone.now() - since if since else None,
    }
    return conditions({name: value for name, value in given.items() if value is not None})
