"""What the Overview warns of, in words, and only when it is so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlencode

from django.core.checks import CheckMessage
from django.utils import formats, timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_pgjobs.admin.overview.notices import Notice
from django_pgjobs.admin.overview.rules import (
    RECENT_SECONDS,
    BusyQueue,
    Waiting,
    busy_queues,
    growth_of,
    is_rising,
    share_of,
)
from django_pgjobs.checks import check_router, check_settings
from django_pgjobs.conf import get_conf
from django_pgjobs.control.stuck import Stuck
from django_pgjobs.declaring.remote import remote_queues
from django_pgjobs.queries.overview import Installation, StandingBatch, Troubled
from django_pgjobs.queries.rate_limits import MissingRate
from django_pgjobs.queries.signs import Ended, Signs
from django_pgjobs.status import JobStatus
from django_pgjobs.values.moments import duration_in_words

# A job that may run and waits longer than this is worth a warning, in seconds.
LONG_WAIT_SECONDS = 300.0
# So is a transaction that keeps dead rows from being removed for longer, ...
OLD_TRANSACTION_SECONDS = 600.0
# ... and this many dead rows, if there are more of them than live ones.
MANY_DEAD_ROWS = 50_000
# So is a batch to which more jobs may come for longer.
UNSEALED_SECONDS = 86_400.0
# Warnings of one kind that are spelled out.
MAX_NAMED = 5
# The subject of a warning about those that are not.
OTHERS = "(others)"
# Where warnings lead.
JOBS = "pgjobs_job_changelist"
QUEUES = "pgjobs_queuesettings_changelist"
SCHEDULES = "pgjobs_schedule_changelist"
WORKERS = "pgjobs_worker_changelist"


# The kinds of warnings by the harm that they do: first what lets jobs wait for ever, then what goes
# wrong now, then what will, then what somebody wanted or only has to know.
KINDS = {
    "no_worker": gettext_lazy("No worker is alive"),
    "unserved": gettext_lazy("No worker listens to a queue"),
    "missing_rate": gettext_lazy("Jobs wait for a rate limit in vain"),
    "failing": gettext_lazy("More jobs of a task fail"),
    "stuck": gettext_lazy("Jobs look stuck"),
    "busy": gettext_lazy("All slots of a queue are busy"),
    "long_wait": gettext_lazy("A job waits for long"),
    "growth": gettext_lazy("A queue grows"),
    "schedule": gettext_lazy("A schedule has trouble"),
    "lost_workers": gettext_lazy("Workers were lost"),
    "batch": gettext_lazy("A batch stands still"),
    "paused": gettext_lazy("Jobs wait in a paused queue"),
    "transaction": gettext_lazy("A transaction is open for long"),
    "dead_rows": gettext_lazy("Too many dead rows"),
    "versions": gettext_lazy("Workers are of different versions"),
    "settings": gettext_lazy("A setting is wrong"),
}
HARM = tuple(KINDS)


class Situation(NamedTuple):
    """What warnings are judged by; *before* are the tasks a day before."""

    facts: Installation
    waiting: Sequence[Waiting] = ()
    missing_rates: Sequence[MissingRate] = ()
    signs: Signs = Signs([], [], [], {})
    stuck: Sequence[Stuck] = ()
    before: Mapping[str, Ended] = {}


def list_warnings(seen: Situation) -> list[Notice]:
    """Return what is wrong now, the worst first."""
    busy = busy_queues(seen.waiting, seen.signs.crews, seen.facts.now)
    notices = [
        *_unserved_queues(seen.facts, seen.waiting),
        *_missing_rates(seen.missing_rates),
        *_failing_tasks(seen),
        *_stuck_jobs(seen.stuck),
        *_busy_queues(busy),
        *_long_waits(seen, {queue.queue_name for queue in busy}),
        *_growing_queues(seen),
        *_troubled_schedules(seen.facts.troubled),
        *_lost_workers(seen.facts),
        *_standing_batches(seen.facts.standing),
        *_paused_queues(seen.waiting),
        *_server(seen.facts),
        *_versions(seen.facts),
        *(
            Notice("settings", message.msg, subject=message.id or "")
            for message in wrong_settings()
        ),
    ]
    return sorted(notices, key=lambda notice: HARM.index(notice.kind))


def wrong_settings() -> list[CheckMessage]:
    """Return what the package's own checks of settings say, if it is not silenced."""
    return [
        message for message in (*check_settings(), *check_router()) if not message.is_silenced()
    ]


def _unserved_queues(facts: Installation, waiting: Sequence[Waiting]) -> Iterator[Notice]:
    unserved = [row for row in waiting if row.is_unserved]
    remote = set(remote_queues()) if unserved else set()
    if not facts.live_workers and any(row.queue_name not in remote for row in unserved):
        jobs = sum(row.ready for row in unserved)
        text = ngettext(
            "%(jobs)s job waits and no worker is alive. Start one: manage.py runjobs.",
            "%(jobs)s jobs wait and no worker is alive. Start one: manage.py runjobs.",
            jobs,
        )
        values = {"jobs": formats.number_format(jobs)}
        yield Notice("no_worker", text % values, JOBS, query=urlencode({"tab": "ready"}))
        return
    for row in unserved[:MAX_NAMED]:
        if row.queue_name in remote:
            text = ngettext(
                "%(jobs)s job waits in queue %(queue)s and no live worker over HTTP serves it.",
                "%(jobs)s jobs wait in queue %(queue)s and no live worker over HTTP serves it.",
                row.ready,
            )
        else:
            text = ngettext(
                "%(jobs)s job waits in queue %(queue)s and no live worker listens to it.",
                "%(jobs)s jobs wait in queue %(queue)s and no live worker listens to it.",
                row.ready,
            )
        values = {"jobs": formats.number_format(row.ready), "queue": row.queue_name}
        yield _of_queue("unserved", text % values, row.queue_name)
    yield from _others("unserved", len(unserved) - MAX_NAMED)


def _of_queue(kind: str, text: str, queue_name: str) -> Notice:
    """Return a warning that leads to the ready jobs of a queue."""
    query = urlencode({"tab": "ready", "queue": queue_name})
    return Notice(kind, text, JOBS, query=query, subject=queue_name)


def _others(kind: str, queues: int) -> Iterator[Notice]:
    if queues > 0:
        text = ngettext(
            "The same holds for %(queues)s other queue.",
            "The same holds for %(queues)s other queues.",
            queues,
        )
        values = {"queues": formats.number_format(queues)}
        yield Notice(kind, text % values, QUEUES, subject=OTHERS)


def _missing_rates(missing_rates: Sequence[MissingRate]) -> Iterator[Notice]:
    for missing in missing_rates[:MAX_NAMED]:
        text = _(
            "Jobs wait for the rate limit of %(key)s, which does not exist: they cannot start. "
            "Make one named %(name)s."
        )
        if missing.cost is not None:
            text = _(
                "Jobs wait for the rate limit of %(key)s and take %(cost)s tokens at once, but "
                "%(name)s has a burst of %(burst)s: they cannot start. Raise it."
            )
        values = missing._asdict() | {"name": missing.name}
        yield Notice(
            "missing_rate", text % values, "pgjobs_ratelimit_changelist", subject=missing.key
        )


def _failing_tasks(seen: Situation) -> Iterator[Notice]:
    tasks = [(task, seen.before.get(task.task_path, Ended(0, 0))) for task in seen.signs.failing]
    rising = [(task, before) for task, before in tasks if is_rising(task, before)]
    for task, before in rising[:MAX_NAMED]:
        text = _(
            "%(failed)s jobs of %(task)s failed in the last %(minutes)s min: %(share)s %% of them, "
            "%(before)s %% the day before."
        )
        values = {
            "failed": formats.number_format(task.failed),
            "task": task.task_path,
            "minutes": formats.number_format(int(RECENT_SECONDS // 60)),
            "share": _percent(share_of(task.failed, task.successful)),
            "before": _percent(share_of(before.failed, before.successful)),
        }
        since = timezone.localtime(task.since)
        address = {
            "tab": JobStatus.FAILED.value,
            "task": task.task_path,
            "finished_at__range__gte_0": since.strftime("%Y-%m-%d"),
            "finished_at__range__gte_1": since.strftime("%H:%M:%S"),
        }
        yield Notice(
            "failing", text % values, JOBS, query=urlencode(address), subject=task.task_path
        )
    if len(rising) > MAX_NAMED:
        text = _("There are more tasks like that.")
        yield Notice("failing", text, "pgjobs_job_failures", subject=OTHERS)


def _percent(share: float) -> str:
    return formats.number_format(round(100 * share))


def _stuck_jobs(stuck: Sequence[Stuck]) -> Iterator[Notice]:
    if stuck:
        text = ngettext(
            "%(jobs)s job looks stuck: it runs far longer than its task usually does, or its "
            "progress stands still.",
            "%(jobs)s jobs look stuck: they run far longer than their tasks usually do, or their "
            "progress stands still.",
            len(stuck),
        )
        values = {"jobs": formats.number_format(len(stuck))}
        yield Notice("stuck", text % values, "pgjobs_job_stuck")


def _busy_queues(busy: Sequence[BusyQueue]) -> Iterator[Notice]:
    for queue in busy[:MAX_NAMED]:
        text = ngettext(
            "All %(slots)s slots of the workers of queue %(queue)s are busy, and %(jobs)s job "
            "waits, for %(time)s.",
            "All %(slots)s slots of the workers of queue %(queue)s are busy, and %(jobs)s jobs "
            "wait, the oldest for %(time)s.",
            queue.ready,
        )
        values = {
            "slots": formats.number_format(queue.slots),
            "queue": queue.queue_name,
            "jobs": formats.number_format(queue.ready),
            "time": duration_in_words(queue.seconds),
        }
        yield _of_queue("busy", text % values, queue.queue_name)
    yield from _others("busy", len(busy) - MAX_NAMED)


def _long_waits(seen: Situation, busy: set[str]) -> Iterator[Notice]:
    """Yield the longest wait of a queue that workers take jobs of, and have slots for."""
    since = [
        (row.waiting_since, row.queue_name)
        for row in seen.waiting
        if row.waiting_since and row.queue_name not in busy
        if not row.is_paused and not row.is_unserved
    ]
    if not since:
        return
    oldest, queue = min(since, key=lambda pair: pair[0])
    seconds = (seen.facts.now - oldest).total_seconds()
    if seconds > LONG_WAIT_SECONDS:
        text = _("The oldest job of queue %(queue)s that may run has waited for %(minutes)s min.")
        values = {"queue": queue, "minutes": formats.number_format(int(seconds // 60))}
        yield _of_queue("long_wait", text % values, queue)


def _growing_queues(seen: Situation) -> Iterator[Notice]:
    ready: dict[str, int] = {}
    for row in seen.waiting:
        if not row.is_paused and not row.is_unserved:
            ready[row.queue_name] = ready.get(row.queue_name, 0) + row.ready
    found = [
        growth_of(name, seen.signs.backlogs.get(name, ()), jobs) for name, jobs in ready.items()
    ]
    growing = sorted((each for each in found if each), key=lambda each: each.before - each.now)
    for growth in growing[:MAX_NAMED]:
        text = _("Queue %(queue)s grows: %(before)s jobs were ready %(time)s ago, %(now)s are now.")
        values = {
            "queue": growth.queue_name,
            "before": formats.number_format(growth.before),
            "now": formats.number_format(growth.now),
            "time": duration_in_words(growth.seconds),
        }
        yield _of_queue("growth", text % values, growth.queue_name)
    yield from _others("growth", len(growing) - MAX_NAMED)


def _troubled_schedules(troubled: Sequence[Troubled]) -> Iterator[Notice]:
    for schedule in troubled[:MAX_NAMED]:
        text = {
            "late": _("Schedule %(name)s is late: it was due, and no worker has taken it."),
            "error": _("Schedule %(name)s has an error: %(error)s"),
            "failed": _("The last run of schedule %(name)s failed."),
        }[schedule.trouble]
        values = {"name": schedule.name, "error": schedule.error}
        subject = f"{schedule.trouble}:{schedule.name}"
        yield Notice("schedule", text % values, SCHEDULES, subject=subject)
    if len(troubled) > MAX_NAMED:
        text = _("There are more schedules like that.")
        yield Notice("schedule", text, SCHEDULES, subject=OTHERS)


def _lost_workers(facts: Installation) -> Iterator[Notice]:
    if facts.lost_workers:
        text = ngettext(
            "%(workers)s worker was lost in the last hour: it said no goodbye. What it ran is run "
            "again.",
            "%(workers)s workers were lost in the last hour: they said no goodbye. What they ran "
            "is run again.",
            facts.lost_workers,
        )
        values = {"workers": formats.number_format(facts.lost_workers)}
        yield Notice("lost_workers", text % values, WORKERS)


def _standing_batches(standing: Sequence[StandingBatch]) -> Iterator[Notice]:
    for batch in standing:
        if batch.is_broken:
            text = _("Batch %(name)s cannot be counted; its page says why.")
        else:
            text = _("Batch %(name)s is not sealed for more than a day: it cannot end.")
        name = f"{batch.name} #{batch.id}".strip()
        subject = str(batch.id)
        yield Notice("batch", text % {"name": name}, "pgjobs_batch_change", batch.id, "", subject)


def _paused_queues(waiting: Sequence[Waiting]) -> Iterator[Notice]:
    ready: dict[str, int] = {}
    for row in waiting:
        if row.is_paused and row.ready:
            ready[row.queue_name] = ready.get(row.queue_name, 0) + row.ready
    for name, jobs in list(ready.items())[:MAX_NAMED]:
        text = ngettext(
            "Queue %(queue)s is paused and %(jobs)s job waits in it.",
            "Queue %(queue)s is paused and %(jobs)s jobs wait in it.",
            jobs,
        )
        values = {"queue": name, "jobs": formats.number_format(jobs)}
        yield _of_queue("paused", text % values, name)
    yield from _others("paused", len(ready) - MAX_NAMED)


def _server(facts: Installation) -> Iterator[Notice]:
    old = facts.old_transaction
    if old is not None:
        text = _(
            "A transaction has been open for %(minutes)s min (process %(pid)s, %(application)s). "
            "Until it ends, no dead row can be removed and claims become slower."
        )
        values = {
            "minutes": formats.number_format(int(old.seconds // 60)),
            "pid": str(old.pid),
            "application": old.application or _("without a name"),
        }
        yield Notice("transaction", text % values, "pgjobs_job_system")
    if facts.dead_rows >= MANY_DEAD_ROWS and facts.dead_rows > facts.live_rows:
        text = _(
            "The table of live jobs holds %(dead)s dead rows and %(live)s live ones: it is "
            "vacuumed too rarely, or something keeps them."
        )
        values = {
            "dead": formats.number_format(facts.dead_rows),
            "live": formats.number_format(facts.live_rows),
        }
        yield Notice("dead_rows", text % values, "pgjobs_job_system")


def _versions(facts: Installation) -> Iterator[Notice]:
    if len(facts.versions) > 1:
        text = _("Live workers are of different versions: %(versions)s.")
        versions = ", ".join(sorted(facts.versions)[:MAX_NAMED])
        yield Notice("versions", text % {"versions": versions}, WORKERS)


def heartbeat_state(silent_seconds: float) -> str:
    """Return how a live worker does: it renews its lease every third of LEASE_SECONDS."""
    return "ok" if silent_seconds < get_conf().LEASE_SECONDS / 3 * 1.5 else "late"
