"""What is wrong with queues, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_pgjobs.declaring.remote import is_remote_path, remote_queues
from django_pgjobs.drawing import counted
from django_pgjobs.queries.signs import Backlog, UnknownPath
from django_pgjobs.values.moments import duration_in_words
from django_pgjobs.warnings.notices import Notice
from django_pgjobs.warnings.rules import (
    LONG_WAIT_SECONDS,
    BusyQueue,
    WaitingQueue,
    growth_of,
    late_queues,
)
from django_pgjobs.warnings.situation import Situation

# Says why a job waits.
Why = Callable[[int], str]
# Queues of a task that are named.
MAX_QUEUES = 3


def unserved_queues(seen: Situation) -> Iterator[Notice]:
    """Yield the queues that no live worker serves, or that no worker is alive."""
    unserved = [row for row in seen.waiting if row.is_unserved]
    remote = set(remote_queues()) if unserved else set()
    if not seen.facts.live_workers and any(row.queue_name not in remote for row in unserved):
        jobs = sum(row.ready for row in unserved)
        text = ngettext(
            "%(jobs)s job waits and no worker is alive. Start one: manage.py runjobs.",
            "%(jobs)s jobs wait and no worker is alive. Start one: manage.py runjobs.",
            jobs,
        )
        yield Notice("no_worker", text % {"jobs": counted(jobs)})
        return
    for row in unserved:
        is_quiet = any(crew.takes(row.queue_name) for crew in seen.signs.crews if crew.is_quiet)
        text = _unserved_text(row, is_quiet=is_quiet, is_remote=row.queue_name in remote)
        values = {"jobs": counted(row.ready), "queue": row.queue_name}
        yield Notice("unserved", text % values, row.queue_name)


def _unserved_text(row: WaitingQueue, *, is_quiet: bool, is_remote: bool) -> str:
    if is_quiet:
        return ngettext(
            "%(jobs)s job waits in queue %(queue)s and all live workers that serve it were asked "
            "to claim nothing.",
            "%(jobs)s jobs wait in queue %(queue)s and all live workers that serve it were asked "
            "to claim nothing.",
            row.ready,
        )
    if is_remote:
        return ngettext(
            "%(jobs)s job waits in queue %(queue)s and no live worker over HTTP serves it.",
            "%(jobs)s jobs wait in queue %(queue)s and no live worker over HTTP serves it.",
            row.ready,
        )
    return ngettext(
        "%(jobs)s job waits in queue %(queue)s and no live worker serves it.",
        "%(jobs)s jobs wait in queue %(queue)s and no live worker serves it.",
        row.ready,
    )


def unknown_tasks(unknown: Sequence[UnknownPath]) -> Iterator[Notice]:
    """Yield the tasks that no live worker knows, though some serve the queues of their jobs."""
    queues: dict[str, list[str]] = {}
    for found in unknown:
        queues.setdefault(found.task_path, []).append(found.queue_name)
    for path, names in queues.items():
        if is_remote_path(path):
            text = _("Jobs of %(task)s wait and no live worker over HTTP takes them (%(queues)s).")
        else:
            text = _(
                "Jobs of %(task)s wait and no live worker that serves their queue (%(queues)s) "
                "knows this task. Deploy its code, or load it: as tasks.py of an app, or by "
                "PGJOBS['TASK_MODULES']."
            )
        more = ["…"] if len(names) > MAX_QUEUES else []
        values = {"task": path, "queues": ", ".join(names[:MAX_QUEUES] + more)}
        yield Notice("unknown_task", text % values, path)


def queues_without_slots(busy: Sequence[BusyQueue]) -> Iterator[Notice]:
    """Yield the queues whose workers have no free slot."""
    for queue in busy:
        values = {
            "slots": counted(queue.slots),
            "queue": queue.queue_name,
            "jobs": counted(queue.ready),
            "time": duration_in_words(queue.seconds),
        }
        yield Notice("busy", _busy_text(queue) % values, queue.queue_name)


def _busy_text(queue: BusyQueue) -> str:
    if queue.slots == 1:
        return ngettext(
            "The only slot of the workers of queue %(queue)s is busy, and %(jobs)s job waits, for "
            "%(time)s.",
            "The only slot of the workers of queue %(queue)s is busy, and %(jobs)s jobs wait, the "
            "oldest for %(time)s.",
            queue.ready,
        )
    return ngettext(
        "All %(slots)s slots of the workers of queue %(queue)s are busy, and %(jobs)s job "
        "waits, for %(time)s.",
        "All %(slots)s slots of the workers of queue %(queue)s are busy, and %(jobs)s jobs "
        "wait, the oldest for %(time)s.",
        queue.ready,
    )


def long_waits(seen: Situation, busy: set[str], why: Why | None) -> Iterator[Notice]:
    """Yield the longest waits of queues that workers take jobs of, and have slots for."""
    late = set(late_queues(seen.waiting, seen.facts.now)) - busy
    full = {row.queue_name for row in seen.waiting if row.is_full}
    for job in sorted(seen.signs.oldest, key=lambda job: job.since):
        seconds = (seen.facts.now - job.since).total_seconds()
        if job.queue_name not in late or seconds <= LONG_WAIT_SECONDS:
            continue
        if why is not None:
            text = _("Job %(id)s, the oldest of queue %(queue)s, has waited for %(time)s: %(why)s")
        elif job.has_keys or job.queue_name in full:
            text = _(
                "Job %(id)s, the oldest of queue %(queue)s, has waited for %(time)s. A limit may "
                "keep it: its page says why."
            )
        else:
            text = _(
                "Job %(id)s, the oldest of queue %(queue)s that may run, has waited for %(time)s."
            )
        values = {
            "id": str(job.id),
            "queue": job.queue_name,
            "time": duration_in_words(seconds),
            "why": why(job.id) if why else "",
        }
        yield Notice("long_wait", text % values, job.queue_name)


def growing_queues(
    waiting: Sequence[WaitingQueue], backlogs: Mapping[str, Backlog]
) -> Iterator[Notice]:
    """Yield the queues that grow, first the one that grew by most jobs."""
    found = [
        growth_of(row.queue_name, backlogs[row.queue_name], row.ready)
        for row in waiting
        if row.is_served and row.queue_name in backlogs
    ]
    growing = sorted((each for each in found if each), key=lambda each: each.before - each.now)
    for growth in growing:
        text = _("Queue %(queue)s grows: %(before)s jobs were ready %(time)s ago, %(now)s are now.")
        values = {
            "queue": growth.queue_name,
            "before": counted(growth.before),
            "now": counted(growth.now),
            "time": duration_in_words(growth.seconds),
        }
        yield Notice("growth", text % values, growth.queue_name)
