"""Drawing the page of all schedules and that of one; nothing of the project is imported for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.contrib.admin.utils import quote
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_pgjobs.admin.addresses import search_address
from django_pgjobs.admin.breadcrumbs import step
from django_pgjobs.admin.job_page.json_html import json_html
from django_pgjobs.admin.job_page.links import schedule_address
from django_pgjobs.admin.pages import PageAdmin
from django_pgjobs.drawing import status_badge
from django_pgjobs.models import Schedule
from django_pgjobs.occurrences.planning import Planned
from django_pgjobs.occurrences.rule import Rule
from django_pgjobs.permissions import Verb, may
from django_pgjobs.queries import schedule_pages
from django_pgjobs.queries.database import job_cursor, rows_of
from django_pgjobs.queries.schedule_pages import RunRow
from django_pgjobs.schedules import control
from django_pgjobs.schedules.plans import rule_of
from django_pgjobs.schedules.skipping import next_kept, skipped_ahead
from django_pgjobs.schedules.words import MARKS, POLICIES, cron_in_words, is_planned, state_of
from django_pgjobs.status import JobStatus, OccurrenceOutcome
from django_pgjobs.values.moments import aware, now_aware

# Occurrences to come that the page of a schedule shows.
SHOWN_NEXT = 10
# Icon, word and CSS class of what a schedule is at.
STATES = {
    "active": ("▶", gettext_lazy("Active"), "successful"),
    "late": ("◷", gettext_lazy("Late"), "warn"),
    "failing": ("✕", gettext_lazy("Failing"), "failed"),
    "broken": ("✕", gettext_lazy("Broken"), "failed"),
    "paused": ("‖", gettext_lazy("Paused"), "warn"),
    "ended": ("✓", gettext_lazy("Ended"), "cancelled"),
    "retired": ("✓", gettext_lazy("Retired"), "cancelled"),
}
# Of the bars, each with the height of its shape: what is no success is not told by colour alone.
HEIGHTS = {"successful": 10, "failed": 20, "cancelled": 6, "waiting": 3, "missed": 14}
BAR_WIDTH = 8


class NextRun(NamedTuple):
    """An occurrence to come: by the clock of its schedule, for everybody, and what is special."""

    at: datetime
    shown: str
    mark: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownSchedule:
    """A schedule as a template shows it: its row, how it is, and its newest occurrences."""

    row: Schedule
    url: str
    state: SafeString
    # None for a rule that makes no sense.
    rule: Rule | None
    next_at: datetime | None
    is_unplanned: bool
    # Without what is still to come.
    runs: Sequence[RunRow]
    last_at: datetime | None
    last_job: RunRow | None
    last_job_url: str

    @property
    def words(self) -> str:
        """What the cron expression means; empty for an interval, or where there are no words."""
        cron = self.rule.parsed_cron if self.rule is not None else None
        return cron_in_words(cron) if cron is not None else ""

    @property
    def next_in_zone(self) -> str:
        """The next run by the schedule's own clock."""
        if self.next_at is None or self.rule is None:
            return ""
        return in_zone(self.rule, self.next_at)

    @property
    def missed(self) -> int:
        """How many of the newest occurrences had no job."""
        return sum(run.outcome in ("missed", "failed") for run in self.runs)

    @property
    def chart(self) -> SafeString:
        """The newest occurrences as bars, the oldest first."""
        return draw_runs(self.runs)


def draw_schedules(model_admin: PageAdmin, request: HttpRequest) -> HttpResponse:
    """Return the page of all schedules, a hundred at a time, by their names."""
    after = request.GET.get("after", "").replace("\0", "")
    most = schedule_pages.MAX_SCHEDULES
    found = rows_of(Schedule).order_by("name")
    rows = list(found.filter(name__gt=after)[: most + 1])
    names = [row.name for row in rows[:most]]
    with job_cursor() as cursor:
        runs = schedule_pages.list_runs(cursor, names)
    skipped = skipped_ahead(names)
    context = {
        "title": _("Schedules"),
        "schedules": [
            _shown(model_admin, row, runs[row.name], skipped.get(row.name, ()))
            for row in rows[:most]
        ],
        "after": rows[most - 1].name if len(rows) > most else "",
        "is_first": not after,
        "may_control": may(request.user, Verb.CONTROL_SCHEDULES),
        "do_url": model_admin.url("pgjobs_schedule_do"),
        "add_url": model_admin.url("pgjobs_schedule_add"),
        "here": request.get_full_path(),
    }
    return model_admin.render_page(request, "schedules.html", context)


def draw_schedule(model_admin: PageAdmin, request: HttpRequest, row: Schedule) -> HttpResponse:
    """Return the page of one schedule: what it is, what is to come and what has been."""
    with job_cursor() as cursor:
        runs = schedule_pages.list_runs(cursor, [row.name])[row.name]
    skipped = skipped_ahead([row.name]).get(row.name, [])
    shown = _shown(model_admin, row, runs, skipped)
    may_control = may(request.user, Verb.CONTROL_SCHEDULES)
    context = {
        "title": _("Schedule %(name)s") % {"name": row.name},
        "steps": [schedules_step(model_admin)],
        "schedule": shown,
        "upcoming": _next_runs(row, shown.rule, skipped),
        "has_skipped": bool(skipped),
        "runs": [(run, result_of(run), _job_url(model_admin, run)) for run in shown.runs],
        "args": json_html(row.args),
        "kwargs": json_html(row.kwargs),
        "changed": _changed(row),
        "missed": POLICIES.get(row.missed, row.missed),
        "overlap": POLICIES.get(row.overlap, row.overlap),
        "may_control": may_control,
        "may_enqueue": may_control and may(request.user, Verb.ENQUEUE),
        "run_url": model_admin.url("pgjobs_schedule_run"),
        "do_url": model_admin.url("pgjobs_schedule_do"),
        "backfill_url": model_admin.url("pgjobs_schedule_backfill"),
        "change_url": model_admin.url("pgjobs_schedule_change", quote(row.name)),
        "history_url": model_admin.url("pgjobs_schedule_history", quote(row.name)),
        "jobs_url": search_address(model_admin.url("pgjobs_job_changelist"), "schedule", row.name),
        "here": request.get_full_path(),
    }
    return model_admin.render_page(request, "schedule.html", context)


def schedules_step(model_admin: PageAdmin) -> dict[str, str]:
    """Return the step of the breadcrumbs that leads back to the list."""
    return step(model_admin, _("Schedules"), "pgjobs_schedule_changelist")


def in_zone(rule: Rule, instant: datetime) -> str:
    """Return an instant by the clock of a schedule, with the name of its time zone."""
    local = instant.astimezone(rule.zone)
    shown = f"{local:%Y-%m-%d %H:%M:%S %Z}"
    return shown if shown.endswith(f" {rule.timezone}") else f"{shown} ({rule.timezone})"


def result_of(run: RunRow) -> SafeString:
    """Draw how an occurrence went: the status of its job, or why there is none."""
    if run.status is not None:
        return status_badge(run.status)
    kind = _kind_of(run)
    icon = {"failed": "✕", "missed": "◷"}.get(kind, "●")
    outcome = run.outcome
    label = OccurrenceOutcome(outcome).label if outcome in OccurrenceOutcome.values else outcome
    return format_html(
        '<span class="pgjobs-status pgjobs-{}"><span aria-hidden="true">{}</span> {}</span>',
        {"failed": "failed", "missed": "warn"}.get(kind, "cancelled"),
        icon,
        label,
    )


def draw_runs(runs: Sequence[RunRow]) -> SafeString:
    """Draw occurrences, the newest first, as bars from the oldest to the newest."""
    if not runs:
        return SafeString("–")
    kinds = [_kind_of(run) for run in reversed(runs)]
    bars = format_html_join(
        "",
        '<rect class="pgjobs-bar-{}" x="{}" y="{}" width="{}" height="{}"/>',
        (
            (kind, place * BAR_WIDTH, 20 - HEIGHTS[kind], BAR_WIDTH - 2, HEIGHTS[kind])
            for place, kind in enumerate(kinds)
        ),
    )
    return format_html(
        '<svg class="pgjobs-outcomes" role="img" aria-label="{}" width="{}" height="20" '
        'viewBox="0 0 {} 20">{}</svg>',
        _counted(runs),
        len(runs) * BAR_WIDTH,
        len(runs) * BAR_WIDTH,
        bars,
    )


def _counted(runs: Iterable[RunRow]) -> str:
    words = Counter(
        str(JobStatus(run.status).label)
        if run.status in JobStatus.values
        else str(OccurrenceOutcome(run.outcome).label)
        for run in runs
    )
    return ", ".join(f"{word}: {count}" for word, count in words.most_common())


def _kind_of(run: RunRow) -> str:
    if run.status is None:
        return {"missed": "missed", "failed": "failed", "skipped": "missed"}.get(
            run.outcome, "waiting"
        )
    return run.status if run.status in HEIGHTS else "waiting"


def _is_skipped_ahead(run: RunRow) -> bool:
    """Is it still to come, and has a row only because somebody skipped it?"""
    is_skipped = run.outcome == OccurrenceOutcome.SKIPPED and run.job_id is None
    return is_skipped and run.scheduled_for > now_aware()


def _last_at(row: Schedule, last_job: RunRow | None) -> datetime | None:
    """Return when a job was enqueued last, by itself or by hand."""
    by_hand = None if last_job is None else last_job.scheduled_for
    return max(filter(None, (row.last_at and aware(row.last_at), by_hand)), default=None)


def _shown(
    model_admin: PageAdmin, row: Schedule, runs: Sequence[RunRow], skipped: Sequence[datetime]
) -> ShownSchedule:
    try:
        rule = rule_of(row)
    except ValueError:
        rule = None
    state = state_of(row)
    runs = [run for run in runs if not _is_skipped_ahead(run)]
    is_to_run = state in ("active", "failing", "late")
    icon, word, style = STATES[state]
    last_job = next((run for run in runs if run.job_id is not None), None)
    return ShownSchedule(
        row=row,
        url=schedule_address(model_admin, row.name),
        state=format_html(
            '<span class="pgjobs-status pgjobs-{}"><span aria-hidden="true">{}</span> {}</span>',
            style,
            icon,
            word,
        ),
        rule=rule,
        next_at=next_kept(row, skipped) if is_to_run and is_planned(row) else None,
        is_unplanned=is_to_run and state != "late" and not is_planned(row),
        runs=runs,
        last_at=_last_at(row, last_job),
        last_job=last_job,
        last_job_url=_job_url(model_admin, last_job) if last_job is not None else "",
    )


def _job_url(model_admin: PageAdmin, run: RunRow) -> str:
    """Return the address of the job of an occurrence, "" if there is none any more."""
    return model_admin.url("pgjobs_job_change", run.job_id) if run.status is not None else ""


def _next_runs(row: Schedule, rule: Rule | None, skipped: Iterable[datetime]) -> Sequence[NextRun]:
    """Return what is to come, with what somebody skipped of it."""
    if rule is None or row.retired_at is not None:
        return []
    kept = [next_run(rule, each) for each in control.upcoming(row, SHOWN_NEXT)]
    left_out = [NextRun(each, in_zone(rule, each), _("skipped")) for each in skipped]
    return sorted(kept + left_out)[:SHOWN_NEXT]


def next_run(rule: Rule, planned: Planned) -> NextRun:
    """Return an occurrence to come as pages show it."""
    return NextRun(planned.at, in_zone(rule, planned.at), MARKS[planned.mark])


def _changed(row: Schedule) -> list[str]:
    """Return the names of the columns that a person changed, of those that there are."""
    return [str(each.verbose_name) for each in row._meta.fields if each.name in row.changed_fields]
