"""What the Overview warns of, in words, and only when it is so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from django.core.checks import CheckMessage
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_pgjobs.admin.numbers import MANY_DEAD_ROWS, jobs_query
from django_pgjobs.admin.overview.notices import (
    JOBS,
    LIMITS,
    MAX_NAMED,
    SCHEDULES,
    WORKERS,
    Notice,
)
from django_pgjobs.admin.overview.queue_warnings import (
    growing_queues,
    long_waits,
    paused_queues,
    queues_without_slots,
    unserved_queues,
)
from django_pgjobs.admin.overview.rules import (
    RECENT_SECONDS,
    WaitingQueue,
    busy_queues,
    is_rising,
    share_of,
)
from django_pgjobs.checks import check_router, check_settings
from django_pgjobs.conf import get_conf
from django_pgjobs.control.stuck import Stuck
from django_pgjobs.drawing import counted
from django_pgjobs.queries.overview import Installation, StandingBatch, TroubledSchedule
from django_pgjobs.queries.rate_limits import MissingRate
from django_pgjobs.queries.signs import Ended, FailingTask, Signs

# A batch to which more jobs may come for longer is worth a warning.
UNSEALED_SECONDS = 86_400.0
# Keys of a rate limit that are spelled out, and versions.
MAX_KEYS = 3
MAX_VERSIONS = 5

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
    waiting: Sequence[WaitingQueue] = ()
    missing_rates: Sequence[MissingRate] = ()
    signs: Signs = Signs([], [], [], {})
    stuck: Sequence[Stuck] = ()
    before: Mapping[str, Ended] = {}


def list_warnings(seen: Situation) -> list[Notice]:
    """Return all that is wrong now, the worst first; some of it may be muted."""
    busy = busy_queues(seen.waiting, seen.signs.crews, seen.facts.now)
    notices = [
        *unserved_queues(seen.facts, seen.waiting),
        *_missing_rates(seen.missing_rates),
        *_failing_tasks(seen),
        *_stuck_jobs(seen),
        *queues_without_slots(busy),
        *long_waits(seen.waiting, {queue.queue_name for queue in busy}, seen.facts.now),
        *growing_queues(seen.waiting, seen.signs.backlogs),
        *_troubled_schedules(seen.facts.troubled),
        *_lost_workers(seen.facts),
        *_standing_batches(seen.facts.standing),
        *paused_queues(seen.waiting),
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


def _missing_rates(missing_rates: Sequence[MissingRate]) -> Iterator[Notice]:
    by_limit: dict[str, list[MissingRate]] = {}
    for missing in missing_rates:
        by_limit.setdefault(missing.name, []).append(missing)
    for name, group in by_limit.items():
        largest = max(group, key=lambda missing: missing.cost or 0)
        text = _(
            "Jobs wait for the rate limit of %(key)s, which does not exist: they cannot start. "
            "Make one named %(name)s."
        )
        if largest.cost is not None:
            text = _(
                "Jobs wait for the rate limit of %(key)s and take %(cost)s tokens at once, but "
                "%(name)s has a burst of %(burst)s: they cannot start. Raise it."
            )
        keys = [missing.key for missing in group[:MAX_KEYS]]
        more = ["…"] if len(group) > MAX_KEYS else []
        values = largest._asdict() | {"name": name, "key": ", ".join(keys + more)}
        yield Notice("missing_rate", text % values, LIMITS, subject=name)


def _failing_tasks(seen: Situation) -> Iterator[Notice]:
    for task in seen.signs.failing:
        before = seen.before.get(task.task_path, Ended(0, 0))
        if is_rising(task, before):
            yield _failing_task(task, before)


def _failing_task(task: FailingTask, before: Ended) -> Notice:
    text = _(
        "%(failed)s jobs of %(task)s failed in the last %(minutes)s min: %(share)s %% of them."
    )
    if before.failed + before.successful:
        text = _(
            "%(failed)s jobs of %(task)s failed in the last %(minutes)s min: %(share)s %% of them, "
            "%(before)s %% the day before."
        )
    values = {
        "failed": counted(task.failed),
        "task": task.task_path,
        "minutes": counted(int(RECENT_SECONDS // 60)),
        "share": _percent(share_of(task.failed, task.successful)),
        "before": _percent(share_of(before.failed, before.successful)),
    }
    query = jobs_query("failed", {"task": task.task_path}, since=task.since)
    return Notice("failing", text % values, JOBS, query=query, subject=task.task_path)


def _percent(share: float) -> str:
    return counted(round(100 * share))


def _stuck_jobs(seen: Situation) -> Iterator[Notice]:
    """Yield all of them, which may be thousands: those that are counted only have no text."""
    muted = {mute.subject for mute in seen.signs.mutes if mute.kind == "stuck"}
    left = MAX_NAMED
    for each in seen.stuck:
        job_id, subject = each.run.id, str(each.run.id)
        text = _stuck_text(each) if left or subject in muted else ""
        left = max(left - (subject not in muted), 0)
        yield Notice("stuck", text, "pgjobs_job_change", job_id, subject=subject)


def _stuck_text(stuck: Stuck) -> str:
    return _("Job %(id)s of %(task)s looks stuck. %(why)s") % {
        "id": stuck.run.id,
        "task": stuck.run.task_path,
        "why": " ".join(reason for _code, reason in stuck.reasons()),
    }


def _troubled_schedules(troubled: Sequence[TroubledSchedule]) -> Iterator[Notice]:
    for schedule in troubled:
        text = {
            "late": _("Schedule %(name)s is late: it was due, and no worker has taken it."),
            "error": _("Schedule %(name)s has an error: %(error)s"),
            "failed": _("The last run of schedule %(name)s failed."),
        }[schedule.trouble]
        values = {"name": schedule.name, "error": schedule.error}
        subject = f"{schedule.trouble}:{schedule.name}"
        yield Notice("schedule", text % values, SCHEDULES, subject=subject)


def _lost_workers(facts: Installation) -> Iterator[Notice]:
    if facts.lost_workers:
        text = ngettext(
            "%(workers)s worker was lost in the last hour: it said no goodbye. What it ran is run "
            "again.",
            "%(workers)s workers were lost in the last hour: they said no goodbye. What they ran "
            "is run again.",
            facts.lost_workers,
        )
        values = {"workers": counted(facts.lost_workers)}
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


def _server(facts: Installation) -> Iterator[Notice]:
    old = facts.old_transaction
    if old is not None:
        text = _(
            "A transaction has been open for %(minutes)s min (process %(pid)s, %(application)s). "
            "Until it ends, no dead row can be removed and claims become slower."
        )
        values = {
            "minutes": counted(int(old.seconds // 60)),
            "pid": str(old.pid),
            "application": old.application or _("without a name"),
        }
        yield Notice("transaction", text % values, "pgjobs_job_system", subject=str(old.pid))
    if facts.dead_rows >= MANY_DEAD_ROWS and facts.dead_rows > facts.live_rows:
        text = _(
            "The table of live jobs holds %(dead)s dead rows and %(live)s live ones: it is "
            "vacuumed too rarely, or something keeps them."
        )
        values = {
            "dead": counted(facts.dead_rows),
            "live": counted(facts.live_rows),
        }
        yield Notice("dead_rows", text % values, "pgjobs_job_system")


def _versions(facts: Installation) -> Iterator[Notice]:
    if len(facts.versions) > 1:
        text = _("Live workers are of different versions: %(versions)s.")
        versions = ", ".join(sorted(facts.versions)[:MAX_VERSIONS])
        yield Notice("versions", text % {"versions": versions}, WORKERS, subject=versions)


def heartbeat_state(silent_seconds: float) -> str:
    """Return how a live worker does: it renews its lease every third of LEASE_SECONDS."""
    return "ok" if silent_seconds < get_conf().LEASE_SECONDS / 3 * 1.5 else "late"
