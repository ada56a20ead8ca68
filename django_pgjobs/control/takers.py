"""Who would take a job, put into words."""

from __future__ import annotations

from collections.abc import Iterable

from django.utils.translation import gettext as _

from django_pgjobs.conf import get_conf
from django_pgjobs.control.explanation import Reason
from django_pgjobs.declaring.remote import is_remote_path
from django_pgjobs.queries.explain import JobFacts, WorkersRow


def taker_of(job: JobFacts, workers: WorkersRow, *, before: int = 0) -> Reason:
    """Return the reason that concerns the workers, if so many jobs are before this one."""
    values: dict[str, object] = {
        "backend": job.backend,
        "queue": job.queue_name,
        "task": job.task_path,
        "names": list_of(workers.names, workers.of_task),
        "running": workers.running,
        "slots": workers.slots,
        "seconds": f"{get_conf().POLL_INTERVAL_SECONDS:g}",
    }
    code, text = _text_of_taker(
        workers,
        is_remote=is_remote_path(job.task_path),
        is_in_line=_is_in_line(job, workers, before),
    )
    return Reason(code, text % values)


def _is_in_line(job: JobFacts, workers: WorkersRow, before: int) -> bool:
    """May the jobs before this one take what it needs: a slot, room in its queue, key or tokens?"""
    room = workers.slots - workers.running
    if job.queue is not None:
        room = min(room, job.queue.max_running - job.queue.running)
    has_limits = job.concurrency_key is not None or job.rate_limit_keys is not None
    return before > 0 and (has_limits or before >= room)


def _text_of_taker(workers: WorkersRow, *, is_remote: bool, is_in_line: bool) -> tuple[str, str]:
    """Return the code of the reason, and its text without values."""
    if is_remote and not workers.of_task:
        return "no_remote_worker", _(
            "No live worker over HTTP serves the queue “%(queue)s” and takes the task %(task)s. "
            "Workers of runjobs leave it alone: it is declared with remote=True."
        )
    if not workers.live:
        return "no_worker", _("No worker runs. Start one: manage.py runjobs.")
    if not workers.of_backend:
        text = _("No live worker serves the backend “%(backend)s” of the setting TASKS.")
        return "no_worker_for_backend", text
    if not workers.of_queue:
        return "no_worker_for_queue", _("No live worker serves the queue “%(queue)s”.")
    if not workers.of_task:
        return "no_worker_for_task", _(
            "No live worker that serves the queue “%(queue)s” knows the task %(task)s: was it "
            "renamed, is the new code not deployed yet, or is its module none that workers load "
            "(tasks.py of an app, or PGJOBS['TASK_MODULES'])?"
        )
    if not workers.awake:
        text = _("The workers that would take it (%(names)s) were asked to claim nothing.")
        return "workers_quiet", text
    if workers.running >= workers.slots:
        return "workers_busy", _(
            "The workers that would take it (%(names)s) run %(running)s jobs in %(slots)s slots."
        )
    if is_in_line:
        return "in_line", _(
            "Nothing else holds it back: a worker (%(names)s) takes it when its turn comes, as "
            "free slots and limits allow."
        )
    return "next_look", _text_of_next_look(is_remote=is_remote)


def _text_of_next_look(*, is_remote: bool) -> str:
    if is_remote:
        return _(
            "Nothing holds it back: a worker over HTTP (%(names)s) takes it when it next asks for "
            "jobs."
        )
    return _(
        "Nothing holds it back: a worker (%(names)s) takes it at its next poll, within "
        "%(seconds)s s."
    )


def list_of(items: Iterable[object], total: int) -> str:
    """Return the items with commas between, and how many more there are."""
    shown = [str(item) for item in items]
    text = ", ".join(shown)
    if total > len(shown):
        text += " " + _("and %(count)s more") % {"count": total - len(shown)}
    return text
