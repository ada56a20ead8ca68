"""What the Overview warns of, in words, and only when it is so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from django.core.checks import CheckMessage
from django.utils import formats
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_pgjobs.admin.numbers import QueueLine
from django_pgjobs.checks import check_router, check_settings
from django_pgjobs.conf import get_conf
from django_pgjobs.queries.overview import Installation, StandingBatch, Troubled
from django_pgjobs.queries.rate_limits import MissingRate

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


class Notice(NamedTuple):
    """A sentence, and the page that helps: its name among the site's urls, "" for none.

    *key* is that of the row the page is about, None for a page about many.
    """

    text: str
    page: str = ""
    key: int | None = None


def list_warnings(
    facts: Installation, queues: Sequence[QueueLine], missing_rates: Sequence[MissingRate] = ()
) -> list[Notice]:
    """Return what is wrong now, the worst first."""
    return [
        *_unserved_queues(facts, queues),
        *_missing_rates(missing_rates),
        *_long_waits(facts, queues),
        *_troubled_schedules(facts.troubled),
        *_lost_workers(facts),
        *_standing_batches(facts.standing),
        *_paused_queues(queues),
        *_server(facts),
        *_versions(facts),
        *(Notice(message.msg) for message in wrong_settings()),
    ]


def wrong_settings() -> list[CheckMessage]:
    """Return what the package's own checks of settings say, if it is not silenced."""
    return [
        message for message in (*check_settings(), *check_router()) if not message.is_silenced()
    ]


def _ready(queue: QueueLine) -> int:
    """Return how many jobs are ready: at least one if any wait that nobody takes."""
    return max(queue.size.ready if queue.size else 0, int(queue.row.is_unserved))


def _unserved_queues(facts: Installation, queues: Sequence[QueueLine]) -> Iterator[Notice]:
    unserved = [queue for queue in queues if queue.row.is_unserved]
    if not facts.live_workers and unserved:
        jobs = sum(map(_ready, unserved))
        yield Notice(
            ngettext(
                "%(jobs)s job waits and no worker is alive. Start one: manage.py runjobs.",
                "%(jobs)s jobs wait and no worker is alive. Start one: manage.py runjobs.",
                jobs,
            )
            % {"jobs": formats.number_format(jobs)},
            "pgjobs_worker_changelist",
        )
        return
    for queue in unserved[:MAX_NAMED]:
        text = ngettext(
            "%(jobs)s job waits in queue %(queue)s and no live worker listens to it.",
            "%(jobs)s jobs wait in queue %(queue)s and no live worker listens to it.",
            _ready(queue),
        )
        values = {"jobs": formats.number_format(_ready(queue)), "queue": queue.name}
        yield Notice(text % values, "pgjobs_worker_changelist")
    yield from _others(len(unserved) - MAX_NAMED)


def _others(queues: int) -> Iterator[Notice]:
    if queues > 0:
        text = ngettext(
            "The same holds for %(queues)s other queue.",
            "The same holds for %(queues)s other queues.",
            queues,
        )
        yield Notice(text % {"queues": formats.number_format(queues)})


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
        yield Notice(text % values, "pgjobs_ratelimit_changelist")


def _long_waits(facts: Installation, queues: Sequence[QueueLine]) -> Iterator[Notice]:
    """Yield the longest wait of a queue that workers take jobs of."""
    since = [
        (queue.size.waiting_since, queue.name)
        for queue in queues
        if queue.size and queue.size.waiting_since
        if not queue.row.paused_at and not queue.row.is_unserved
    ]
    if not since:
        return
    oldest, name = min(since)
    seconds = (facts.now - oldest).total_seconds()
    if seconds > LONG_WAIT_SECONDS:
        text = _("The oldest job of queue %(queue)s that may run has waited for %(minutes)s min.")
        values = {"queue": name, "minutes": formats.number_format(int(seconds // 60))}
        yield Notice(text % values, "pgjobs_queuesettings_changelist")


def _troubled_schedules(troubled: Sequence[Troubled]) -> Iterator[Notice]:
    for schedule in troubled[:MAX_NAMED]:
        text = {
            "late": _("Schedule %(name)s is late: it was due, and no worker has taken it."),
            "error": _("Schedule %(name)s has an error: %(error)s"),
            "failed": _("The last run of schedule %(name)s failed."),
        }[schedule.trouble]
        values = {"name": schedule.name, "error": schedule.error}
        yield Notice(text % values, "pgjobs_schedule_changelist")
    if len(troubled) > MAX_NAMED:
        yield Notice(_("There are more schedules like that."), "pgjobs_schedule_changelist")


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
        yield Notice(text % values, "pgjobs_worker_changelist")


def _standing_batches(standing: Sequence[StandingBatch]) -> Iterator[Notice]:
    for batch in standing:
        if batch.is_broken:
            text = _("Batch %(name)s cannot be counted; its page says why.")
        else:
            text = _("Batch %(name)s is not sealed for more than a day: it cannot end.")
        name = f"{batch.name} #{batch.id}".strip()
        yield Notice(text % {"name": name}, "pgjobs_batch_change", batch.id)


def _paused_queues(queues: Sequence[QueueLine]) -> Iterator[Notice]:
    waiting = {queue.name: _ready(queue) for queue in queues if queue.row.paused_at}
    waiting = {name: jobs for name, jobs in waiting.items() if jobs}
    for name, jobs in list(waiting.items())[:MAX_NAMED]:
        text = ngettext(
            "Queue %(queue)s is paused and %(jobs)s job waits in it.",
            "Queue %(queue)s is paused and %(jobs)s jobs wait in it.",
            jobs,
        )
        values = {"queue": name, "jobs": formats.number_format(jobs)}
        yield Notice(text % values, "pgjobs_queuesettings_changelist")
    yield from _others(len(waiting) - MAX_NAMED)


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
        yield Notice(text % values, "pgjobs_job_system")
    if facts.dead_rows >= MANY_DEAD_ROWS and facts.dead_rows > facts.live_rows:
        text = _(
            "The table of live jobs holds %(dead)s dead rows and %(live)s live ones: it is "
            "vacuumed too rarely, or something keeps them."
        )
        values = {
            "dead": formats.number_format(facts.dead_rows),
            "live": formats.number_format(facts.live_rows),
        }
        yield Notice(text % values, "pgjobs_job_system")


def _versions(facts: Installation) -> Iterator[Notice]:
    if len(facts.versions) > 1:
        text = _("Live workers are of different versions: %(versions)s.")
        yield Notice(
            text % {"versions": ", ".join(sorted(facts.versions)[:MAX_NAMED])},
            "pgjobs_worker_changelist",
        )


def heartbeat_state(silent_seconds: float) -> str:
    """Return how a live worker does: it renews its lease every third of LEASE_SECONDS."""
    return "ok" if silent_seconds < get_conf().LEASE_SECONDS / 3 * 1.5 else "late"
