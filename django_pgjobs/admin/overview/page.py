"""The Overview: the numbers of the whole installation on one page.

Everything is read from the tables as they are, in bounded statements, and kept for two
seconds for all who look.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from django.db import connections
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _

from django_pgjobs.admin.overview.chart import RANGES, Range, build_chart
from django_pgjobs.admin.overview.failures import make_groups
from django_pgjobs.admin.overview.live import is_refresh, kept, unchanged
from django_pgjobs.admin.overview.muting import part
from django_pgjobs.admin.overview.rules import waiting_of
from django_pgjobs.admin.overview.situation import Seen, read_signs
from django_pgjobs.admin.overview.warnings import (
    OLD_TRANSACTION_SECONDS,
    UNSEALED_SECONDS,
    Situation,
    heartbeat_state,
    is_served,
    list_warnings,
)
from django_pgjobs.admin.pages import PageAdmin
from django_pgjobs.exceptions import TooSlow
from django_pgjobs.permissions import Verb, is_narrowed, may, require
from django_pgjobs.queries.budget import time_budget
from django_pgjobs.queries.database import job_database
from django_pgjobs.queries.failures import FailureRow, list_failures
from django_pgjobs.queries.overview import (
    FinishedRow,
    Installation,
    LiveRow,
    QueueFact,
    count_finished_jobs,
    count_live_jobs,
    get_installation,
)
from django_pgjobs.queries.rate_limits import MissingRate, list_missing_rates
from django_pgjobs.queries.schedule_pages import Troubled, list_troubled
from django_pgjobs.schedules.words import LATE_AFTER
from django_pgjobs.status import JobStatus

# Seconds that one statement may take.
OVERVIEW_SECONDS = 1.0
# Rows that one statement reads at most: what can be read in 0.05 s. Of jobs that run it is
# 10,000 more, see the statement.
MAX_FINISHED_JOBS = 50_000
MAX_READY_JOBS = 30_000
# Failed jobs have long texts: each costs as much as twenty others.
MAX_FAILED_JOBS = 1_000
MAX_QUEUES = 50
MAX_KEYS = 5
MAX_GROUPS = 6
MAX_WORKERS = 10
MAX_FACTS = 200
DAY_SECONDS = 86_400.0
# What "finished per minute" is the mean of; the statement says the same.
RATE_MINUTES = 5
DEFAULT_RANGE = "1h"


class Numbers(NamedTuple):
    """What the statements found."""

    live: list[LiveRow]
    finished: list[FinishedRow]
    failures: list[FailureRow]
    facts: Installation
    missing_rates: list[MissingRate]
    troubled: list[Troubled]
    seen: Seen


class QueueLine(NamedTuple):
    """A line of the table of queues."""

    name: str
    is_paused: bool
    reason: str
    paused_by: str
    is_unserved: bool
    ready: int
    running: int
    max_running: int | None
    retrying: int
    scheduled: int
    held: int
    waiting_since: datetime | None
    finished_hour: int
    failed_percent: float | None


class Tile(NamedTuple):
    """A number with its name; *tab* is the list it leads to."""

    key: str
    number: int
    tab: str
    is_bad: bool = False


def overview(request: HttpRequest) -> dict[str, Any]:
    """Return what overview.html shows to this person."""
    context: dict[str, Any] = {"state": "shown"}
    if not may(request.user, Verb.VIEW):
        return context | {"state": "refused"}
    if is_narrowed(request.user):
        return context | {"state": "narrowed"}
    chosen = RANGES.get(request.GET.get("range", ""), RANGES[DEFAULT_RANGE])
    try:
        numbers = kept(f"overview:{chosen.key}", lambda: read_numbers(chosen))
    except TooSlow:
        return context | {"state": "too_slow", "ranges": RANGES.values(), "chosen": chosen}
    described = describe(numbers, chosen)
    return context | {
        "ranges": RANGES.values(),
        "chosen": chosen,
        "may_pause": may(request.user, Verb.CONTROL_QUEUES),
        "fingerprint": (fingerprint(numbers), described["warnings"], described["muted"]),
        **described,
    }


def situation_of(numbers: Numbers) -> Situation:
    """Return what the warnings are judged by."""
    waiting = waiting_of(numbers.live)
    rates, troubled = numbers.missing_rates, numbers.troubled
    return Situation(numbers.facts, waiting, rates, troubled, *numbers.seen)


def draw_overview(model_admin: PageAdmin, request: HttpRequest) -> HttpResponse:
    """Return the page as one of its own, or the part of it that refreshes itself."""
    require(request, Verb.VIEW)
    context = overview(request)
    if not is_refresh(request):
        shown = {"title": _("Overview"), "pgjobs_page": "overview", **context}
        return model_admin.render_page(request, "overview_page.html", shown)
    etag, response = unchanged(request, context["state"], context.get("fingerprint"))
    if response is None:
        request.current_app = model_admin.admin_site.name
        response = TemplateResponse(request, "admin/pgjobs/overview.html", context)
        response["ETag"] = etag
    return response


def fingerprint(numbers: Numbers) -> tuple[Any, ...]:
    """Return what makes the page look different: all but the time that passes."""
    facts = numbers.facts
    workers = [
        (worker.id, worker.running, worker.is_quiet, heartbeat_state(worker.silent_seconds))
        for worker in facts.workers
    ]
    steady = (
        *facts[1:2], workers, *facts[3:9], facts.old_transaction is not None, facts.standing
    )  # fmt: skip
    rest = (numbers.missing_rates, numbers.troubled)
    return (numbers.live, numbers.finished, numbers.failures, steady, *rest)


def read_numbers(chosen: Range) -> Numbers:
    """Ask the database; raise TooSlow if one of the statements takes too long."""
    alias = job_database()
    with time_budget(alias, OVERVIEW_SECONDS), connections[alias].cursor() as cursor:
        live = count_live_jobs(
            cursor, max_jobs=MAX_READY_JOBS, max_queues=MAX_QUEUES, max_keys=MAX_KEYS
        )
        return Numbers(
            live,
            count_finished_jobs(
                cursor,
                bucket_seconds=chosen.bucket_seconds,
                seconds=chosen.bucket_seconds * chosen.buckets,
                max_jobs=MAX_FINISHED_JOBS,
                max_queues=MAX_QUEUES,
            ),
            list_failures(
                cursor, seconds=DAY_SECONDS, max_jobs=MAX_FAILED_JOBS, max_groups=MAX_GROUPS
            ),
            get_installation(
                cursor,
                max_rows=MAX_FACTS,
                max_workers=MAX_WORKERS,
                old_seconds=OLD_TRANSACTION_SECONDS,
                unsealed_seconds=UNSEALED_SECONDS,
            ),
            list_missing_rates(cursor),
            list_troubled(cursor, late=LATE_AFTER.total_seconds()),
            read_signs(cursor, waiting_of(live)),
        )


def describe(numbers: Numbers, chosen: Range) -> dict[str, Any]:
    """Return the numbers as the template draws them."""
    live = [row for row in numbers.live if not row.is_of_keys]
    finished, facts = numbers.finished, numbers.facts
    counts = {(row.status, row.bucket): row.jobs for row in finished if row.bucket is not None}
    last_bucket = (
        finished[0].last_bucket if finished else int(facts.now.timestamp()) // chosen.bucket_seconds
    )
    queues = queue_lines(live, finished, facts)
    is_partial = bool(finished) and finished[0].looked_at >= MAX_FINISHED_JOBS
    warnings, muted = part(list_warnings(situation_of(numbers)), numbers.seen.signs.mutes)
    return {
        "warnings": warnings,
        "muted": muted,
        "tiles": tiles(live, finished),
        "oldest": min((row.waiting_since for row in live if row.waiting_since), default=None),
        "finished_a_minute": sum(row.jobs_minutes for row in finished if row.bucket is not None)
        / RATE_MINUTES,
        "facts": facts,
        "workers": [(worker, heartbeat_state(worker.silent_seconds)) for worker in facts.workers],
        "chart": build_chart(chosen, last_bucket, counts),
        "covered_since": finished[0].since if is_partial else None,
        "max_finished": MAX_FINISHED_JOBS,
        "has_more_ready": bool(live) and live[0].looked_at >= MAX_READY_JOBS,
        "max_ready": MAX_READY_JOBS,
        "queues": queues,
        "groups": make_groups(numbers.failures),
        "has_more_failures": bool(numbers.failures)
        and numbers.failures[0].all_jobs >= MAX_FAILED_JOBS,
        "max_failures": MAX_FAILED_JOBS,
        "keys": [row for row in numbers.live if row.is_of_keys],
    }


def tiles(live: list[LiveRow], finished: list[FinishedRow]) -> list[Tile]:
    """Return the numbers at the top that lead to a list of jobs."""
    failed = sum(
        row.jobs_hour
        for row in finished
        if row.bucket is not None and row.status == JobStatus.FAILED
    )
    return [
        Tile("ready", sum(row.ready for row in live), "ready"),
        Tile("running", sum(row.running for row in live), "running"),
        Tile("retrying", sum(row.retrying for row in live), "retrying"),
        Tile("scheduled", sum(row.scheduled for row in live), "scheduled"),
        Tile("blocked", sum(row.held for row in live), "blocked"),
        Tile("failed", failed, "failed", is_bad=failed > 0),
    ]


def queue_lines(
    live: list[LiveRow], finished: list[FinishedRow], facts: Installation
) -> list[QueueLine]:
    """Return the queues that have jobs, had some in the last hour, have settings or a pause."""
    known = {queue.name: queue for queue in facts.queues}
    ended: dict[str, dict[str, int]] = {}
    for row in finished:
        if row.bucket is None and row.queue_name is not None and row.jobs_hour:
            ended.setdefault(row.queue_name, {})[row.status] = row.jobs_hour
    names = {row.second or "" for row in live} | known.keys() | ended.keys()
    return [
        _queue_line(
            name,
            [row for row in live if row.second == name],
            ended.get(name, {}),
            known.get(name),
            facts,
        )
        for name in sorted(names)[:MAX_QUEUES]
    ]


def _queue_line(
    name: str,
    rows: list[LiveRow],
    ended: dict[str, int],
    known: QueueFact | None,
    facts: Installation,
) -> QueueLine:
    """Return the line of a queue; *rows* are those of its backends."""
    finished = sum(ended.values())
    failed = ended.get(JobStatus.FAILED, 0)
    return QueueLine(
        name=name,
        is_paused=bool(known and known.is_paused),
        reason=known.reason if known else "",
        paused_by=known.paused_by if known else "",
        is_unserved=any(
            row.ready and not is_served(facts.services, row.first or "", name) for row in rows
        ),
        ready=sum(row.ready for row in rows),
        running=sum(row.running for row in rows),
        max_running=known.max_running if known else None,
        retrying=sum(row.retrying for row in rows),
        scheduled=sum(row.scheduled for row in rows),
        held=sum(row.held for row in rows),
        waiting_since=min((row.waiting_since for row in rows if row.waiting_since), default=None),
        finished_hour=finished,
        failed_percent=100 * failed / finished if finished else None,
    )
