"""A schedule in the browser: its times are seen while they are typed, and it is run once."""

from __future__ import annotations

import pytest

from django_pgjobs.models import Job, Schedule
from tests.browser.pages import named
from tests.browser.test_journeys import OpenWindow, follow, press, wait_for
from tests.schedules import tasks

pytestmark = pytest.mark.django_db(transaction=True)

REMIND = tasks.remind.module_path


def test_a_schedule_is_made_changed_and_run(open_window: OpenWindow) -> None:
    window = open_window()
    window.goto(named("pgjobs_schedule_add"))
    window.get_by_label("Name:", exact=True).fill("nightly")
    window.get_by_label("Task:", exact=True).fill(REMIND)
    window.get_by_label("Positional arguments:").fill('["week"]')
    # What is wrong is said before anything is sent, and still when the form comes back.
    window.get_by_label("Cron:").fill("30 2 * *")
    wait_for(window, "wrong number of fields")
    window.get_by_label("Time zone:").fill("")
    press(window, "Save")
    wait_for(window, "This field is required.")
    wait_for(window, "wrong number of fields")
    window.get_by_label("Cron:").fill("30 2 * * *")
    window.get_by_label("Time zone:").fill("Europe/Berlin")
    window.locator("#id_starts_at_0").fill("2027-03-27")
    window.locator("#id_starts_at_1").fill("00:00:00")
    wait_for(window, "2027-03-28 03:00:00 CEST (Europe/Berlin)")
    wait_for(window, "the clock is put forward over its time")
    window.locator("#id_skipped_time").select_option("never")
    wait_for(window, "2027-04-01 02:30:00 CEST (Europe/Berlin)")
    assert window.get_by_text("2027-03-28").count() == 0
    press(window, "Save")
    wait_for(window, "Schedule nightly")
    assert Schedule.objects.get().skipped_time == "never"
    follow(window, "Run now with other arguments")
    window.get_by_label("Positional arguments").fill('["week", 1, 2]')
    press(window, "Run now")
    wait_for(window, "Please correct what is wrong below.")
    window.get_by_label("Positional arguments").fill('["month"]')
    press(window, "Run now")
    wait_for(window, "Enqueued as job")
    assert Job.objects.get().args == ["month"]
    assert Schedule.objects.get().args == ["week"]
