"""Each form of the admin that acts at a time names the zone in which the server reads it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from django import forms
from django.utils import timezone, translation

from django_pgjobs.admin.bulk.forms import BulkTimeForm
from django_pgjobs.admin.job_page.actions import WhenForm
from django_pgjobs.admin.job_page.copy_form import CopyForm
from django_pgjobs.admin.queues.forms import PauseForm, PauseRowForm
from django_pgjobs.admin.schedules.forms import BackfillForm, ScheduleForm
from django_pgjobs.admin.schedules.preview import RuleForm
from django_pgjobs.admin.workflows.listing import WorkflowForm
from django_pgjobs.models import Job
from django_pgjobs.mutes import MuteForm

# What the form of a schedule sends while it is filled in; a filter, whose list shows such times.
SILENT = {RuleForm, WorkflowForm}
TIMES = (forms.DateTimeField, forms.SplitDateTimeField)


def all_forms() -> list[forms.Form]:
    """Return a form of each kind."""
    plain = (BackfillForm, BulkTimeForm, MuteForm, PauseForm, PauseRowForm, WhenForm)
    return [*(form() for form in plain), CopyForm(job=Job(), task=None)]


def subclasses(form: Any) -> Iterator[Any]:
    """Yield the forms of the admin that ask for a time.

    Not those of the filters: they are made for one request, and some may still be there.
    """
    for below in form.__subclasses__():
        fields = getattr(below, "base_fields", {}).values()
        asks = any(isinstance(field, TIMES) for field in fields)
        is_declared = hasattr(sys.modules[below.__module__], below.__name__)
        if asks and is_declared and below.__module__.startswith("django_pgjobs.admin."):
            yield below
        yield from subclasses(below)


def test_no_form_is_forgotten_here() -> None:
    named = {ScheduleForm, *map(type, all_forms())}
    # The others are kinds of those.
    asking = {each for each in subclasses(forms.BaseForm) if not issubclass(each, tuple(named))}
    assert asking == SILENT


@pytest.mark.parametrize("form", all_forms(), ids=lambda form: type(form).__name__)
def test_the_form_names_the_zone_that_is_active_when_it_is_drawn(form: forms.Form) -> None:
    """It is not that of whose browser it is."""
    with timezone.override("Asia/Tokyo"):
        assert form.as_p().count("Time zone: Asia/Tokyo.") == 1
        with translation.override("de"):
            assert form.as_p().count("Zeitzone: Asia/Tokyo.") == 1


@pytest.mark.django_db
def test_the_bounds_of_a_schedule_are_not_in_its_own_zone_and_say_so() -> None:
    with timezone.override("Asia/Tokyo"):
        assert ScheduleForm().as_p().count("Time zone: Asia/Tokyo.") == 2
