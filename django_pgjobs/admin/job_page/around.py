"""What the page of a job says of other jobs, as far as the person may see those.

A person who sees some jobs is told that there are others, where that is why one's own job
waits, but neither which they are, nor what keeps them or who would run them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.http import HttpRequest
from django.utils.translation import gettext as _

from django_pgjobs.admin.pages import PageAdmin
from django_pgjobs.control.explanation import Explanation, Reason
from django_pgjobs.models import Job
from django_pgjobs.permissions import Verb, is_narrowed, may, visible_ids
from django_pgjobs.queries.job_page import Surroundings
from django_pgjobs.values.notes import without_others

# Reasons that speak of the job itself, and of rules that hold for it.
OWN = frozenset({
    "finished", "running", "lease_lost", "cancel_requested", "scheduled", "retry", "snoozed",
    "unknown_task", "rescued", "given_back", "refused", "queue_paused", "task_paused",
    "key_paused", "no_rate_limit", "no_worker", "no_worker_for_backend", "no_worker_for_queue",
    "no_worker_for_task", "no_remote_worker", "undeclared",
})  # fmt: skip
# Those that name no jobs but their `refs`.
OF_REFS = frozenset({
    "dependencies", "predecessor_failed", "key_full", "queue_full", "rate_limit",
    "cost_above_burst",
})  # fmt: skip


def seen_around(user: Any, around: Surroundings) -> Surroundings:
    """Return what is around a job without the jobs that *user* may not see."""
    if not is_narrowed(user):
        return around
    named = {around.twin_id or 0, *(run.id for run in around.runs)}
    named.update(each.id for each in (*around.waits_for, *around.waited_for_by))
    seen = visible_ids(user, named)
    return around._replace(
        waits_for=[each for each in around.waits_for if each.id in seen],
        waited_for_by=[each for each in around.waited_for_by if each.id in seen],
        runs=[run for run in around.runs if run.id in seen],
        twin_id=around.twin_id if around.twin_id in seen else None,
    )


def seen_explanation(user: Any, explanation: Explanation) -> Explanation:
    """Return why a job does not run, without what *user* may not see of others."""
    if not is_narrowed(user):
        return explanation
    refs = {job_id for reason in explanation.reasons for job_id in reason.refs}
    seen = visible_ids(user, refs)
    return replace(
        explanation, reasons=tuple(_seen_reason(reason, seen) for reason in explanation.reasons)
    )


def _seen_reason(reason: Reason, seen: set[int]) -> Reason:
    if reason.code in OWN or (reason.code in OF_REFS and seen.issuperset(reason.refs)):
        return reason
    texts = {
        "dependencies": _("It waits for other jobs."),
        "predecessor_failed": _("One of the jobs it waited for failed."),
        "key_full": _("As many jobs of its concurrency key run as may."),
        "key_order": _("Its concurrency key keeps its order, and another job is before this one."),
        "queue_full": _("As many jobs of its queue run as may."),
        "behind": _("Other jobs of its queue are before it."),
        "workers_quiet": _("The workers that would take it were asked to claim nothing."),
        "workers_busy": _("The workers that would take it are busy."),
        "in_line": _("Nothing else holds it back: a worker takes it when its turn comes."),
        "next_look": _("Nothing holds it back: a worker takes it at its next poll."),
    }
    text = texts.get(reason.code) or _("It waits for something that is not shown to you.")
    return Reason(reason.code, text, tuple(job_id for job_id in reason.refs if job_id in seen))


def seen_note(user: Any, note: str) -> str:
    """Return the note of a job without what *user* may not see of others."""
    return without_others(note) if is_narrowed(user) else note


class ShownReason(NamedTuple):
    """A reason, and the address that resumes what it says is paused; "": not for this person."""

    reason: Reason
    resume_url: str


def shown_reasons(
    model_admin: PageAdmin, request: HttpRequest, job: Job, explanation: Explanation
) -> list[ShownReason]:
    """Return why a job does not run, as this person sees it."""
    paused = {"queue_paused": ("queue", job.queue_name), "task_paused": ("task", job.task_path)}
    resumable = paused if may(request.user, Verb.CONTROL_QUEUES) else {}
    resume_url = model_admin.url("pgjobs_queue_resume")
    shown = []
    for reason in seen_explanation(request.user, explanation).reasons:
        kind, name = resumable.get(reason.code, ("", ""))
        query = urlencode({"kind": kind, "name": name, "next": request.path})
        shown.append(ShownReason(reason, f"{resume_url}?{query}" if kind else ""))
    return shown
