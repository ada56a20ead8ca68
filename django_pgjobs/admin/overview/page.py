"""The Overview: the numbers of the whole installation on one page.

They are those of the statistics, and of the rows themselves where these are few. What was read is
kept for two seconds for all who look, a chart of more than an hour for longer.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db import connections
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _

from django_pgjobs.admin.numbers import as_of, jobs_query
from django_pgjobs.admin.overview.chart import (
    RANGES,
    SPLITS,
    Range,
    Split,
    build_chart,
)
from django_pgjobs.admin.overview.destinations import steady
from django_pgjobs.admin.overview.failures import ShownGroup
from django_pgjobs.admin.overview.live import KEPT_SECONDS, is_refresh, kept, unchanged
from django_pgjobs.admin.overview.series import by_outcome, read_series, series_of
from django_pgjobs.admin.overview.trend import trend_text
from django_pgjobs.admin.pages import PageAdmin
from django_pgjobs.admin.svg import build_spark
from django_pgjobs.control.numbers import (
    MINUTE,
    Hour,
    JobRate,
    QueueLine,
    add_up,
    enqueue_rate,
    finish_rate,
    queue_lines,
    read_hour,
    span_of,
)
from django_pgjobs.control.workers import is_late
from django_pgjobs.exceptions import TooSlow
from django_pgjobs.permissions import Verb, is_narrowed, may, require
from django_pgjobs.queries.budget import time_budget
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.queries.database import job_database
from django_pgjobs.queries.failures import FailureRow, list_failures
from django_pgjobs.queries.numbers import Finished, Size
from django_pgjobs.queries.overview import WorkerFact
from django_pgjobs.queries.queue_pages import Queues, list_queues
from django_pgjobs.queries.signs import Past
from django_pgjobs.values.moments import now_aware
from django_pgjobs.warnings.listing import light_checks, list_warnings
from django_pgjobs.warnings.notices import part, shorten
from django_pgjobs.warnings.situation import Situation, read_situation

# Seconds that one statement may take.
OVERVIEW_SECONDS = 1.0
# Failed jobs have long texts: each costs as much as twenty others. Those of the last minutes tell
# what goes wrong now; the page Failures looks at more.
MAX_FAILED_JOBS = 300
# Those with the most jobs; the page Queues has all. Each is 2 kB, with long names more.
MAX_QUEUES = 20
MAX_GROUPS = 6
MAX_WORKERS = 10
DAY_SECONDS = 86_400.0
DEFAULT_RANGE, DEFAULT_SPLIT = "1h", "outcome"
# Of the seconds of a bucket, so many parts is a chart kept; not longer than a minute.
KEPT_PART = 60
MAX_KEPT_SECONDS = 60
# So long is kept what was usual in the last days.
STEADY_SECONDS = 300


class OverviewData(NamedTuple):
    """The answers of the statements, which the page draws."""

    queues: Queues
    hour: Hour
    failures: list[FailureRow]
    drawn: Finished
    situation: Situation


class Tile(NamedTuple):
    """A number with its name, and the query of the jobs that it counts.

    *number* is None if it is not known, *is_cut* if there are more; *age* says how old it is.
    """

    key: str
    label: str
    number: float | None
    query: str
    is_cut: bool = False
    is_bad: bool = False
    age: str = ""


def overview(request: HttpRequest) -> dict[str, Any]:
    """Return what overview.html shows to this person."""
    context: dict[str, Any] = {"state": "shown"}
    if not may(request.user, Verb.VIEW):
        return context | {"state": "refused"}
    if is_narrowed(request.user):
        return context | {"state": "narrowed"}
    chosen = RANGES.get(request.GET.get("range", ""), RANGES[DEFAULT_RANGE])
    split = SPLITS.get(request.GET.get("by", ""), SPLITS[DEFAULT_SPLIT])
    context |= {
        "ranges": RANGES.values(), "chosen": chosen, "splits": SPLITS.values(), "split": split
    }  # fmt: skip
    try:
        name = f"overview:{chosen.key}:{split.key}"
        numbers = kept(name, lambda: read_numbers(chosen, split))
    except TooSlow:
        return context | {"state": "too_slow"}
    described = describe(numbers, chosen, split)
    warnings = [steady(notice) for notice in described["warnings"]]
    muted = [(steady(notice), mute) for notice, mute in described["muted"]]
    return context | {
        "may_pause": may(request.user, Verb.CONTROL_QUEUES),
        "fingerprint": (fingerprint(numbers), warnings, muted),
        **described,
    }


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


def fingerprint(numbers: OverviewData) -> tuple[Any, ...]:
    """Return what makes the page look different: all but the time that passes."""
    situation, queues = numbers.situation, numbers.queues
    facts = situation.facts
    workers = [
        (worker.id, worker.running, worker.is_quiet, _is_late(worker)) for worker in facts.workers
    ]
    sizes = [
        _steady(queues.size),
        queues.waiting_since,
        *((row[0], _steady(row.size), row[2:]) for row in queues.rows),
    ]
    hour, drawn = numbers.hour, numbers.drawn
    minutes = [each[:-1] for each in hour.minutes]
    finished = minutes, hour.queues, drawn.bucket, drawn.counts
    others = facts[3:8], facts.old_transaction is not None, facts.standing, facts.troubled
    return (
        sizes, finished, hour.times, numbers.failures, workers, others, facts.samples,
        situation.signs.missing_rates,
    )  # fmt: skip


def _steady(size: Size | None) -> Any:
    return size and (size[:6], size.is_cut)


def read_numbers(chosen: Range, split: Split) -> OverviewData:
    """Ask the database; raise TooSlow if one of the statements takes too long."""
    alias = job_database()
    with time_budget(alias, OVERVIEW_SECONDS, walks=True), connections[alias].cursor() as cursor:
        hour = read_hour(cursor)
        found = list_queues(cursor, also_names=hour.queue_names)
        return OverviewData(
            found,
            hour,
            list_failures(
                cursor, seconds=DAY_SECONDS, max_jobs=MAX_FAILED_JOBS, max_groups=MAX_GROUPS
            ),
            _read_chart(cursor, hour, chosen, split),
            read_situation(cursor, found.rows, max_workers=MAX_WORKERS, keep=keep_usual),
        )


def keep_usual(read: Callable[[], Past]) -> Past:
    """Return what was usual in the last days, for minutes the same."""
    return kept("past", read, seconds=STEADY_SECONDS)


def _is_late(worker: WorkerFact) -> bool:
    return is_late(worker.silent_seconds, worker.lease_seconds)


def _read_chart(cursor: Cursor, hour: Hour, chosen: Range, split: Split) -> Finished:
    """Return what the chart shows: the outcomes of the last hour are known."""
    if (chosen.key, split.key) == (DEFAULT_RANGE, DEFAULT_SPLIT):
        return by_outcome(hour.minutes)
    seconds = min(max(chosen.bucket_seconds // KEPT_PART, KEPT_SECONDS), MAX_KEPT_SECONDS)
    name = f"chart:{chosen.key}:{split.key}"
    return kept(name, lambda: read_series(cursor, chosen, split), seconds=seconds)


def describe(numbers: OverviewData, chosen: Range, split: Split) -> dict[str, Any]:
    """Return the numbers as the template draws them."""
    drawn, now = numbers.drawn, now_aware()
    situation, hour, size = numbers.situation, numbers.hour, numbers.queues.size
    facts = situation.facts
    lines = queue_lines(numbers.queues.rows, hour)
    times = add_up(hour.times.values())
    shown = [line for line in lines if _is_shown(line)]
    warnings, muted = part(list_warnings(situation, light_checks()), situation.signs.mutes)
    return {
        "warnings": shorten(warnings),
        "muted": muted,
        "tiles": [*size_tiles(size, now), *rate_tiles(numbers, now)],
        "size": size,
        "waiting_since": numbers.queues.waiting_since,
        "trend": trend_text(facts.samples, size),
        "backlog": build_spark(ready for _, ready in facts.samples),
        "waited": span_of(times.waits),
        "ran": span_of(times.runs),
        "facts": facts,
        "now": now,
        "workers": [(worker, _is_late(worker)) for worker in facts.workers],
        "chart": build_chart(chosen, drawn.bucket, series_of(drawn, chosen, split)),
        "chart_age": as_of(drawn.upto, now),
        "size_age": as_of(size.measured_at, now),
        "hour_age": as_of(hour.upto, now),
        "queues": _busiest(shown),
        "has_more_queues": len(shown) > MAX_QUEUES or numbers.queues.has_more,
        "groups": [ShownGroup(row) for row in numbers.failures],
        "has_more_failures": bool(numbers.failures)
        and numbers.failures[0].all_jobs >= MAX_FAILED_JOBS,
        "max_failures": MAX_FAILED_JOBS,
    }


def size_tiles(size: Size, now: datetime) -> list[Tile]:
    """Return how many jobs have not finished, by what they do."""
    age = as_of(size.measured_at, now)

    def tile(tab: str, label: str, number: int) -> Tile:
        return Tile(tab, label, number, jobs_query(tab), size.is_cut, age=age)

    return [
        tile("ready", _("Ready"), size.ready),
        tile("running", _("Running"), size.running),
        tile("retrying", _("Retrying"), size.retrying),
        tile("scheduled", _("Scheduled"), size.scheduled),
        tile("blocked", _("Blocked"), size.blocked),
    ]


def rate_tiles(numbers: OverviewData, now: datetime) -> list[Tile]:
    """Return how many jobs end and come in."""
    hour = numbers.hour
    failed = sum(minute.failed for minute in hour.minutes)
    ends, begins = finish_rate(hour), enqueue_rate(hour, numbers.situation.facts.samples)
    # It is of minutes that are over, so the one that is not is no age.
    return [
        Tile(
            "failed",
            _("Failed in the last hour"),
            failed,
            jobs_query("failed", since=hour.since),
            is_bad=failed > 0,
            age=as_of(hour.upto, now),
        ),
        _rate_tile("finished", _("Finished per minute"), ends, "finished_at", now),
        _rate_tile("enqueued", _("Enqueued per minute"), begins, "enqueued_at", now),
    ]


def _rate_tile(key: str, label: str, rate: JobRate, column: str, now: datetime) -> Tile:
    query = jobs_query("all", since=rate.since, until=rate.until, column=column)
    is_old = rate.until is not None and as_of(rate.until + timedelta(seconds=MINUTE), now)
    return Tile(key, label, rate.per_minute, query, age=as_of(rate.until, now) if is_old else "")


def _busiest(lines: list[QueueLine]) -> list[QueueLine]:
    """Return the queues with the most jobs, in their order."""
    if len(lines) <= MAX_QUEUES:
        return lines
    busiest = {line.name for line in sorted(lines, key=_jobs_of, reverse=True)[:MAX_QUEUES]}
    return [line for line in lines if line.name in busiest]


def _jobs_of(line: QueueLine) -> int:
    return (line.size.jobs if line.size else 0) + line.finished


def _is_shown(line: QueueLine) -> bool:
    """Has the queue jobs, had it some in the last hour, has it settings, or is it paused?"""
    jobs = line.size.jobs if line.size else 1
    ended = line.finished or line.ran
    return bool(jobs or ended or line.row.paused_at) or line.row.boost is not None
