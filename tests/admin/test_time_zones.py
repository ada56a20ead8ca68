"""Each form of the admin that asks for a time names the zone in which the server reads it."""

from __future__ import annotations

import pytest
from django import forms
from django.utils import timezone, translation

from django_pgjobs.admin.bulk.forms import BulkTimeForm
from django_pgjobs.admin.job_page.actions import WhenForm
from django_pgjobs.admin.job_page.copy_form import CopyForm
from django_pgjobs.admin.overview.muting import MuteForm
from django_pgjobs.admin.queues.forms import PauseForm, PauseRowForm
from django_pgjobs.admin.schedules.forms import BackfillForm, ScheduleForm
from django_pgjobs.models import Job


def all_forms() -> list[forms.Form]:
    """Return a form of each kind."""
    plain = (BackfillForm, BulkTimeForm, MuteForm, PauseForm, PauseRowForm, WhenForm)
    return [*(form() for form in plain), CopyForm(job=Job(), task=None)]


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
