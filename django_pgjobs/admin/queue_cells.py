"""What rows of tables say of queues and pauses: templates would take three times as long."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from django_pgjobs.admin.numbers import queue_query
from django_pgjobs.admin.svg import Spark
from django_pgjobs.control.numbers import QueueLine, Span
from django_pgjobs.drawing import age, counted, jobs_link, moment, percent
from django_pgjobs.values.moments import duration

NONE = "–"
STATUS = '<span class="pgjobs-status pgjobs-{}"><span aria-hidden="true">{}</span> {}</span>'
# From so many percent of failed jobs on the number is red.
BAD_PERCENT = 5
MAX_SHOWN_REASON = 300


def draw_state(queue: QueueLine) -> SafeString:
    """Return whether a queue is paused, and whether no worker takes its jobs."""
    row = queue.row
    if not row.is_unserved:
        return draw_pause(row)
    return format_html(
        '{} <span class="pgjobs-state pgjobs-bad"><span aria-hidden="true">!</span> {}</span>',
        draw_pause(row) if row.paused_at else "",
        _("No worker"),
    )


def draw_pause(row: Any) -> SafeString:
    """Return whether what a row is about is paused: by whom, since when and until when, why."""
    if not row.paused_at:
        return format_html(STATUS, "successful", "▶", _("Active"))
    times = moment(row.paused_at)
    if row.paused_by:
        times = format_html("{}, {}", _("by %(by)s") % {"by": row.paused_by}, times)
    if row.resume_at:
        times = format_html("{}; {} {}", times, _("resumes"), moment(row.resume_at))
    reason = Truncator(row.reason or "").chars(MAX_SHOWN_REASON)
    return format_html(
        '{}<div class="pgjobs-quiet">{}</div>{}',
        format_html(STATUS, "warn", "‖", _("Paused")),
        times,
        format_html("<div>{}</div>", reason) if reason else "",
    )


def draw_cells(
    queue: QueueLine, jobs_url: str, now: datetime, spark: Spark | None = None
) -> SafeString:
    """Return the cells under the heads of queue_heads.html, behind that of the state.

    *now* is what ages are told by; *spark*: how many jobs were ready lately.
    """
    is_bad = queue.failed_percent is not None and queue.failed_percent >= BAD_PERCENT
    cells = [
        *_unfinished(queue, jobs_url, spark),
        _oldest(queue, jobs_url, now),
        jobs_link(queue.finished, jobs_url, queue_query(queue, "finished")),
        _failed(queue, jobs_url),
        _times(queue.waited),
        _times(queue.ran),
    ]
    bad = SafeString(' class="pgjobs-bad"') if is_bad else ""
    kinds = ["", "", "", "", "", bad, "", ""]
    # Nothing tells the cells to be numbers: what has heads in these tables is one.
    return format_html_join(
        "\n", '<td data-head="{}"{}>{}</td>', zip(_heads(), kinds, cells, strict=True)
    )


def _heads() -> list[str]:
    """Return what queue_heads.html says over the cells, which a narrow table says in them."""
    return [
        _("Ready"),
        _("Running"),
        _("Later"),
        _("Oldest waiting"),
        _("Finished in 1 h"),
        pgettext("share", "Failed"),
        _("Waited"),
        _("Ran"),
    ]


def draw_spark(spark: Spark) -> SafeString:
    """Return a line of how many jobs of a queue were ready in the last three hours."""
    if not spark.path:
        return SafeString('<span class="pgjobs-quiet">–</span>')
    label = _("Ready jobs in the last 3 hours: at most %(jobs)s") % {"jobs": counted(spark.largest)}
    return format_html(
        '<svg class="pgjobs-spark pgjobs-spark-busy" viewBox="0 0 {} 20"'
        ' preserveAspectRatio="none" role="img" aria-label="{}"><path d="{}"/></svg>',
        str(spark.width),
        label,
        spark.path,
    )


def _unfinished(queue: QueueLine, jobs_url: str, spark: Spark | None) -> Iterator[str]:
    """Yield what is ready, runs, and is to run later."""
    size, most = queue.size, queue.row.max_running

    is_cut = size is not None and size.is_cut

    def link(tab: str, number: int) -> str:
        return jobs_link(number, jobs_url, queue_query(queue, tab), is_cut)

    ready = link("ready", size.ready) if size else NONE
    yield format_html("{}{}", ready, draw_spark(spark)) if spark and spark.path else ready
    running = link("running", size.running) if size else NONE
    full = format_html(' <span class="pgjobs-warn">{}</span>', _("full")) if queue.is_full else ""
    yield running if most is None else format_html("{} / {}{}", running, counted(most), full)
    if size is None:
        yield NONE
        return
    later = (
        ("retrying", size.retrying, _("retrying")),
        ("scheduled", size.scheduled, _("scheduled")),
        ("blocked", size.blocked, _("blocked")),
    )
    lines = ((link(tab, number), label) for tab, number, label in later if number)
    yield format_html_join("", '<span class="pgjobs-line">{} {}</span>', lines) or "0"


def _oldest(queue: QueueLine, jobs_url: str, now: datetime) -> str:
    since = queue.row.waiting_since
    if since is None:
        return NONE
    query = queue_query(queue, "ready")
    return format_html('<a href="{}?{}">{}</a>', jobs_url, query, age(since, now))


def _failed(queue: QueueLine, jobs_url: str) -> str:
    share = percent(queue.failed_percent)
    if not queue.failed:
        return share
    return format_html(
        '<a href="{}?{}" title="{}">{}</a>',
        jobs_url,
        queue_query(queue, "failed"),
        counted(queue.failed),
        share,
    )


def _times(span: Span | None) -> str:
    if span is None:
        return NONE
    return format_html(
        '{}<br><span class="pgjobs-quiet">{}</span>', duration(span.half), duration(span.most)
    )
