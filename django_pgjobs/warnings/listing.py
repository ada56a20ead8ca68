"""What is wrong now, in words, and only when it is so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from django.core.checks import ERROR, CheckMessage
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_pgjobs.checks import (
    check_router,
    check_settings,
    missing_rate_limits,
    run_own_checks,
    warn_of_rate,
)
from django_pgjobs.control.pause_words import pause_in_words
from django_pgjobs.control.stuck import Stuck
from django_pgjobs.declaring.keys import digest_of
from django_pgjobs.drawing import counted
from django_pgjobs.queries.overview import Installation, StandingBatch, TroubledSchedule
from django_pgjobs.queries.rate_limits import MissingRate
from django_pgjobs.queries.signs import Ended, FailingTask, HeldJobs
from django_pgjobs.values.words import CONTROL
from django_pgjobs.warnings.notices import (
    HARM,
    MAX_MUTED_BYTES,
    MAX_NAMED,
    MAX_SUBJECT,
    Notice,
)
from django_pgjobs.warnings.of_queues import (
    Why,
    growing_queues,
    long_waits,
    queues_without_slots,
    unknown_tasks,
    unserved_queues,
)
from django_pgjobs.warnings.rules import (
    MANY_DEAD_ROWS,
    RECENT_SECONDS,
    busy_queues,
    is_rising,
    share_of,
)
from django_pgjobs.warnings.situation import Situation

# Keys of a rate limit that are spelled out, and versions.
MAX_KEYS = 3
MAX_VERSIONS = 5
# Characters that are kept of what is too long to be muted.
SHOWN_OF_LONG = 200


def list_warnings(
    seen: Situation, problems: Iterable[CheckMessage] = (), why: Why | None = None
) -> list[Notice]:
    """Return all that is wrong now, the worst first; some of it may be muted.

    *problems* is what checks of the package said; *why* says why a job waits, if that may be asked.
    """
    busy = busy_queues(seen.waiting, seen.signs.crews, seen.facts.now)
    notices = [
        *unserved_queues(seen),
        *unknown_tasks(seen.signs.unknown),
        *_missing_rates(seen.signs.missing_rates),
        *_failing_tasks(seen),
        *_stuck_jobs(seen),
        *queues_without_slots(busy),
        *long_waits(seen, {queue.queue_name for queue in busy}, why),
        *growing_queues(seen.waiting, seen.signs.backlogs),
        *_troubled_schedules(seen.facts.troubled),
        *_lost_workers(seen.facts),
        *_standing_batches(seen.facts.standing),
        *_held_jobs(seen.signs.held),
        *_pauses(seen),
        *_server(seen.facts),
        *_versions(seen.facts),
        *_failed_checks(problems),
    ]
    return sorted(notices, key=lambda notice: HARM.index(notice.kind))


def light_checks() -> list[CheckMessage]:
    """Return what those of our checks say that load no module of tasks: a page may run them."""
    return [*check_settings(), *check_router()]


def all_checks(seen: Situation, alias: str) -> list[CheckMessage]:
    """Return what all of our checks say, but of rate limits that jobs were seen to wait for."""
    waited_for = {missing.name for missing in seen.signs.missing_rates}
    rates = [each for each in missing_rate_limits(alias) if each.name not in waited_for]
    return [*run_own_checks(), *map(warn_of_rate, rates)]


def _failed_checks(problems: Iterable[CheckMessage]) -> Iterator[Notice]:
    for message in problems:
        if not message.is_silenced():
            text = f"{message.msg.rstrip('.')}. {message.hint or ''}".strip()
            kind = "broken" if message.is_serious(ERROR) else "settings"
            yield Notice(kind, text, _subject_of(message))


def _subject_of(message: CheckMessage) -> str:
    """Return a line that can be muted: of one wrong limit, task or setting, and of no other one."""
    about = f" {message.obj}" if message.obj else ""
    whole = f"{message.id}{about}".translate(CONTROL)
    if len(whole) <= MAX_SUBJECT and len(whole.encode()) <= MAX_MUTED_BYTES:
        return whole
    return f"{whole[:SHOWN_OF_LONG]}... {digest_of(whole)}"


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
        yield Notice("missing_rate", text % values, name)


def _failing_tasks(seen: Situation) -> Iterator[Notice]:
    for task in seen.signs.failing:
        before = seen.before.get(task.task_path, Ended(0, 0))
        if is_rising(task, before):
            yield _failing_task(task, before)


def _failing_task(task: FailingTask, before: Ended) -> Notice:
    text = _(
        "%(failed)s jobs of %(task)s failed in the last %(minutes)s min: %(share)s %% of those "
        "that ended."
    )
    if before.failed + before.successful:
        text = _(
            "%(failed)s jobs of %(task)s failed in the last %(minutes)s min: %(share)s %% of those "
            "that ended, %(before)s %% the day before."
        )
    values = {
        "failed": counted(task.failed),
        "task": task.task_path,
        "minutes": counted(int(RECENT_SECONDS // 60)),
        "share": _percent(share_of(task.failed, task.successful)),
        "before": _percent(share_of(before.failed, before.successful)),
    }
    return Notice("failing", text % values, task.task_path, task.since)


def _percent(share: float) -> str:
    return counted(round(100 * share))


def _stuck_jobs(seen: Situation) -> Iterator[Notice]:
    """Yield all of them, which may be thousands: those that are counted only have no text."""
    muted = {mute.subject for mute in seen.signs.mutes if mute.kind == "stuck"}
    left = MAX_NAMED
    for each in seen.stuck:
        subject = str(each.run.id)
        text = _stuck_text(each) if left or subject in muted else ""
        left = max(left - (subject not in muted), 0)
        yield Notice("stuck", text, subject)


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
        yield Notice("schedule", text % values, f"{schedule.trouble}:{schedule.name}")


def _lost_workers(facts: Installation) -> Iterator[Notice]:
    if facts.lost_workers:
        text = ngettext(
            "%(workers)s worker was lost in the last hour: it said no goodbye.",
            "%(workers)s workers were lost in the last hour: they said no goodbye.",
            facts.lost_workers,
        )
        if facts.live_workers:
            text += " " + _("Jobs that were running there run again.")
        else:
            text += " " + _("Jobs that were running there run again when a worker is alive.")
        values = {"workers": counted(facts.lost_workers)}
        yield Notice("lost_workers", text % values)


def _standing_batches(standing: Sequence[StandingBatch]) -> Iterator[Notice]:
    for batch in standing:
        if batch.is_broken:
            text = _("Batch %(name)s cannot be counted; its page says why.")
        else:
            text = _("Batch %(name)s is not sealed for more than a day: it cannot end.")
        name = f"{batch.name} #{batch.id}".strip()
        yield Notice("batch", text % {"name": name}, str(batch.id))


def _held_jobs(held: HeldJobs) -> Iterator[Notice]:
    if held.number:
        text = ngettext(
            "Job %(id)s, one of the oldest, is held, because a job before it failed (its page "
            "names that): requeue that one, run this one all the same, or cancel it.",
            "%(jobs)s of the oldest jobs, such as %(id)s, are held, because a job before them "
            "failed (its page names that): requeue that one, run these all the same, or cancel "
            "them.",
            held.number,
        )
        yield Notice("held", text % {"jobs": counted(held.number), "id": str(held.first_id)})


def _pauses(seen: Situation) -> Iterator[Notice]:
    """Yield what is paused, whether jobs wait for it or not."""
    for pause in seen.signs.pauses:
        text = pause_in_words(pause, seen.facts.now)
        yield Notice("paused", text, f"{pause.kind}:{pause.name}")


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
        yield Notice("transaction", text % values, str(old.pid))
    if facts.dead_rows >= MANY_DEAD_ROWS and facts.dead_rows > facts.live_rows:
        text = _(
            "The table of live jobs holds %(dead)s dead rows and %(live)s live ones: it is "
            "vacuumed too rarely, or something keeps them."
        )
        values = {
            "dead": counted(facts.dead_rows),
            "live": counted(facts.live_rows),
        }
        yield Notice("dead_rows", text % values)


def _versions(facts: Installation) -> Iterator[Notice]:
    if len(facts.versions) > 1:
        text = _("Live workers are of different versions: %(versions)s.")
        versions = ", ".join(sorted(facts.versions)[:MAX_VERSIONS])
        yield Notice("versions", text % {"versions": versions}, versions)
