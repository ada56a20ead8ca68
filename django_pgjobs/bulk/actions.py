"""What can be done to many jobs: which jobs each action is for, and what it does to a page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypedDict

from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from django_pgjobs.control.changing import (
    Effect,
    RunTimes,
    cancel_jobs,
    delete_jobs,
    requeue_jobs,
    reschedule_jobs,
)
from django_pgjobs.control.leaving import Why, why_locked, why_not_deleted, why_not_requeued
from django_pgjobs.models.batch_states import in_open, is_of_open
from django_pgjobs.permissions import Verb
from django_pgjobs.queries import bulk, jobs, notifications
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.status import FINISHED, Hold, JobStatus
from django_pgjobs.workflows.retrying import requeue_tree


class ChosenOptions(TypedDict, total=False):
    """What a person chose on the page of confirmation, as it is stored in JSON.

    *delay* and *spread* are seconds, *at* is ISO text; what is None or absent was not chosen.
    """

    delay: float | None
    spread: float | None
    at: str | None
    reset_attempts: bool
    queue_name: str | None
    priority: int | None
    note: str


def at_any_status(*statuses: str) -> Callable[[ChosenOptions], Q]:
    """Return the condition of an action that is for all jobs of some statuses."""
    condition = Q(status__in=statuses)
    return lambda options: condition


@dataclass(frozen=True)
class Action:
    """A change of many jobs.

    *suits* is the condition on the jobs that it is for, *statuses* are those that they can have;
    *apply* changes those of the given ids that still meet it, in the open transaction. *spared*, if
    given: the action is for all jobs of *statuses* but those that meet this condition. *why* says
    what keeps a job that is still one of its, *overtaken* what one is that has one of *statuses*
    but does not suit any more, if that is not its status.
    """

    name: str
    label: Any
    verb: Verb
    statuses: tuple[str, ...]
    suits: Callable[[ChosenOptions], Q]
    apply: Callable[[Cursor, list[int], ChosenOptions], Effect]
    spared: Q | None = None
    why: Why = why_locked
    overtaken: str = ""


def _when(options: ChosenOptions) -> RunTimes:
    """Return when the jobs are to run, as the statements take it."""
    at = options.get("at")
    spread = options.get("spread")
    delay = options.get("delay")
    return {
        "run_after": datetime.fromisoformat(at) if at else None,
        "delay": 0.0 if spread and delay is None else delay,
        "spread": spread or 0.0,
    }


def _requeue(cursor: Cursor, ids: list[int], options: ChosenOptions) -> Effect:
    effect = requeue_jobs(cursor, ids, times=_when(options))
    if options.get("reset_attempts"):
        done = set(effect.changed)
        waiting = bulk.reset_attempts(cursor, [job_id for job_id in ids if job_id not in done])
        reschedule_jobs(cursor, waiting, times=_when(options))
        effect.changed += waiting
    return effect


def retry_tree(
    cursor: Cursor, batch_id: int, statuses: list[str], options: ChosenOptions
) -> Effect:
    """Retry jobs of a tree as `Batch.retry` does, all at once: its end is told once."""
    requeue = partial(
        jobs.requeue_jobs, cursor, **_when(options), statuses=statuses, despite_cancels=True
    )
    done = requeue_tree(cursor, batch_id, statuses, requeue)
    return Effect(done.ids, done.conflicts)


def _reschedule(cursor: Cursor, ids: list[int], options: ChosenOptions) -> Effect:
    return reschedule_jobs(cursor, ids, times=_when(options))


def _cancel(cursor: Cursor, ids: list[int], options: ChosenOptions) -> Effect:
    return cancel_jobs(cursor, ids)


def _discard(cursor: Cursor, ids: list[int], options: ChosenOptions) -> Effect:
    note = options.get("note") or "discarded"
    return Effect(list(bulk.discard_jobs(cursor, ids, note=note)))


def _move(cursor: Cursor, ids: list[int], options: ChosenOptions) -> Effect:
    queue_name, priority = options.get("queue_name"), options.get("priority")
    moved = bulk.move_jobs(cursor, ids, queue_name=queue_name, priority=priority)
    notifications.notify_workers(cursor, list(moved.values()))
    return Effect(list(moved))


def _delete(cursor: Cursor, ids: list[int], options: ChosenOptions) -> Effect:
    return delete_jobs(cursor, ids)


def _refuse(cursor: Cursor, ids: list[int], options: ChosenOptions) -> Effect:
    raise TypeError("an export changes nothing.")


def _suits_requeue(options: ChosenOptions) -> Q:
    condition = Q(status__in=sorted(FINISHED))
    if options.get("reset_attempts"):
        condition |= Q(status=JobStatus.READY, attempts__gt=0)
    return condition


def _suits_run_now(options: ChosenOptions) -> Q:
    waits = Q(due_at__isnull=False) | Q(hold=Hold.PREDECESSOR_FAILED)
    return Q(status=JobStatus.READY) & waits


def _suits_delete(options: ChosenOptions) -> Q:
    """Return the condition of jobs to delete: what follows in an open workflow needs its jobs."""
    return Q(status__in=_FINISHED) & ~is_of_open()


def _suits_cancel(options: ChosenOptions) -> Q:
    return Q(status=JobStatus.READY) | Q(status=JobStatus.RUNNING, cancel_requested_at=None)


_FINISHED = (JobStatus.FAILED, JobStatus.CANCELLED, JobStatus.SUCCESSFUL)
_ALL = (JobStatus.READY, JobStatus.RUNNING, *_FINISHED)

ACTIONS = {
    action.name: action
    for action in (
        Action(
            "requeue",
            _("Requeue"),
            Verb.OPERATE,
            (JobStatus.READY, *_FINISHED),
            _suits_requeue,
            _requeue,
            why=why_not_requeued,
        ),
        Action(
            "run_now",
            _("Run now"),
            Verb.OPERATE,
            (JobStatus.READY,),
            _suits_run_now,
            _reschedule,
            overtaken="it is due by now.",
        ),
        Action(
            "postpone",
            _("Postpone"),
            Verb.OPERATE,
            (JobStatus.READY,),
            at_any_status(JobStatus.READY),
            _reschedule,
        ),
        Action(
            "cancel",
            _("Cancel"),
            Verb.OPERATE,
            (JobStatus.READY, JobStatus.RUNNING),
            _suits_cancel,
            _cancel,
            overtaken="it has been asked to end.",
        ),
        Action(
            "discard",
            _("Discard"),
            Verb.OPERATE,
            (JobStatus.READY, JobStatus.FAILED),
            at_any_status(JobStatus.READY, JobStatus.FAILED),
            _discard,
        ),
        Action(
            "move",
            _("Change queue or priority"),
            Verb.OPERATE,
            (JobStatus.READY,),
            at_any_status(JobStatus.READY),
            _move,
        ),
        Action(
            "delete",
            _("Delete"),
            Verb.DELETE,
            _FINISHED,
            _suits_delete,
            _delete,
            in_open(),
            why_not_deleted,
        ),
        Action("export", _("Export"), Verb.VIEW, _ALL, at_any_status(*_ALL), _refuse),
    )
}
