"""When a schedule would be due: drawn in its form, while somebody fills that in."""

from __future__ import annotations

from itertools import islice
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from django_pgjobs.admin.pages import PageAdmin
from django_pgjobs.admin.refusals import in_words
from django_pgjobs.admin.schedules.drawing import next_run
from django_pgjobs.admin.schedules.forms import read_dates
from django_pgjobs.models import Schedule
from django_pgjobs.occurrences.planning import occurrences
from django_pgjobs.permissions import Verb, require
from django_pgjobs.schedules.plans import rule_of
from django_pgjobs.values.moments import now_aware

SHOWN = 5
URL_NAME = "pgjobs_schedule_preview"


class RuleForm(forms.Form):
    """What says when a schedule is due, as its form sends it."""

    cron = forms.CharField(required=False, empty_value=None)
    every = forms.FloatField(required=False)
    timezone = forms.CharField(required=False)
    skipped_time = forms.CharField(required=False, empty_value=None)
    repeated_time = forms.CharField(required=False, empty_value=None)
    starts_at = forms.SplitDateTimeField(required=False)
    ends_at = forms.SplitDateTimeField(required=False)
    except_dates = forms.CharField(required=False)

    def clean_timezone(self) -> str:
        return self.cleaned_data["timezone"] or timezone.get_default_timezone_name()

    def clean_except_dates(self) -> list[str]:
        return read_dates(self.cleaned_data["except_dates"])


def draw_field(model_admin: PageAdmin, row: Schedule | None) -> SafeString:
    """Return what a form shows at first; its script asks for what comes later."""
    is_new = row is None or row._state.adding
    text = "" if is_new or row is None else _draw(row)
    return format_html(
        '<div id="pgjobs-preview" data-pgjobs-source="{}" role="status">{}</div>',
        model_admin.url(URL_NAME),
        text,
    )


def draw_preview(request: HttpRequest) -> HttpResponse:
    """Return the next occurrences of a rule that nobody has saved, or what is wrong with it."""
    require(request, Verb.CONTROL_SCHEDULES)
    form = RuleForm(request.GET)
    if form.is_valid():
        data = form.cleaned_data
        # Nothing to say before somebody has said when.
        is_empty = data["cron"] is None and data["every"] is None
        return HttpResponse("" if is_empty else _draw(Schedule(**data)))
    problems = [error for errors in form.errors.values() for error in errors]
    return HttpResponse(_render(problem=" ".join(map(str, problems))))


def _draw(row: Schedule) -> SafeString:
    try:
        rule = rule_of(row)
        planned = list(islice(occurrences(rule, now_aware()), SHOWN))
    except ValueError as error:
        return _render(problem=in_words(error))
    return _render(upcoming=[next_run(rule, each) for each in planned])


def _render(**context: Any) -> SafeString:
    return render_to_string("admin/pgjobs/schedule_preview.html", context)
