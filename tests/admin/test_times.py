"""Times that a person gives in a form or an address, up to the ends of the calendar.

Issue 13, point 14: the server refuses offsets of 16 hours and more, which Python has up to 24.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client
from django.test.utils import override_settings
from django.urls import reverse
from django.utils import translation

from django_pgjobs.bulk.selection import Selection
from django_pgjobs.models import Job, Pause
from django_pgjobs.values.moments import duration, duration_in_words
from tests import tasks
from tests.admin.bulk_support import address, confirm
from tests.factories import get_job, make_job
from tests.test_admin import NOW, page

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.9994, "999 ms"),
        (0.9996, "1.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min"),
        (119.9, "1 min 59 s"),
    ],
)
def test_a_length_of_time_is_told_in_the_larger_unit_as_soon_as_it_is_one(
    seconds: float, text: str
) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.02, "20 ms"), (1.0, "1 s"), (23.74, "23,7 s"), (119.6, "120 s"), (121.0, "2 min")],
)
def test_a_length_of_time_in_a_sentence_is_in_its_language(seconds: float, text: str) -> None:
    with translation.override("de"):
        assert duration_in_words(seconds) == text


TIMES: dict[str, datetime | None] = {
    "2040-01-01T00:00+23:59": datetime(2039, 12, 31, 0, 1, tzinfo=UTC),
    "2040-01-01T00:00-23:59": datetime(2040, 1, 1, 23, 59, tzinfo=UTC),
    "2040-01-01T00:00:00.5+16:00": datetime(2039, 12, 31, 8, 0, 0, 500_000, tzinfo=UTC),
    "0001-01-01T00:00": None,
    "0001-01-01T00:00+23:59": None,
    "9999-12-31T23:59": None,
    "9999-12-31T23:59-23:59": None,
    "2040-01-01T00:00+99:99": None,
    "infinity": None,
    "-infinity": None,
    "20400-01-01T00:00": None,
    "\0": None,
}
COPY = {"args": "[1, 2]", "kwargs": "{}", "queue_name": "default", "priority": "0"}


@pytest.mark.parametrize("text", TIMES)
def test_a_time_in_a_form_is_taken_as_it_is_or_refused_in_the_form(
    admin_client: Client, text: str
) -> None:
    wanted = TIMES[text]
    ready, failed, more = make_job(), make_job(status="failed", finished_at=NOW), make_job()
    old = Job.objects.get(pk=ready).run_after
    for job_id, name in ((ready, "postpone"), (failed, "requeue_at")):
        answer = admin_client.post(page("job", "do", job_id, name), {"at": text}, follow=True)
        assert answer.status_code == 200
        assert get_job(job_id).run_after == (wanted or old)
    answer = confirm(admin_client, address("postpone", Selection.ids([more])), when="at", at=text)
    assert answer.status_code in (200, 302)
    assert get_job(more).run_after == wanted
    copied = Job.objects.count()
    where = page("job", "copy", make_job(tasks.add.module_path))
    assert admin_client.post(where, COPY | {"run_after": text}).status_code in (200, 302)
    assert Job.objects.count() == copied + (2 if wanted else 1)
    if wanted:
        assert Job.objects.latest("id").run_after == wanted
    given = {"kind": "queue", "name": "a", "until": text}
    assert admin_client.post(reverse("admin:pgjobs_queue_pause"), given).status_code in (200, 302)
    assert [row.resume_at for row in Pause.objects.all()] == ([wanted] if wanted else [])


@pytest.mark.parametrize("text", TIMES)
def test_a_time_in_the_address_of_a_list_is_no_error(admin_client: Client, text: str) -> None:
    make_job(status="failed", finished_at=NOW)
    day, _, clock = text.partition("T")
    queries: list[dict[str, Any]] = [
        {"tab": "failed", "after": f"{text}~5"},
        {"tab": "failed", "before": f"{text}~5"},
        {"enqueued_at__range__gte_0": day, "enqueued_at__range__gte_1": clock},
        {"enqueued_at__range__lte_0": day, "enqueued_at__range__lte_1": clock},
        {"enqueued_at__range__lte_0": day},
    ]
    for query in queries:
        answer = admin_client.get(reverse("admin:pgjobs_job_changelist"), query)
        assert answer.status_code in (200, 302)


@pytest.mark.parametrize(
    ("zone", "text"), [("Europe/Berlin", "14:30:07 CEST"), ("UTC", "12:30:07 UTC")]
)
def test_times_are_to_the_second_and_say_their_zone(
    admin_client: Client, zone: str, text: str
) -> None:
    moment = datetime(2026, 7, 1, 12, 30, 7, tzinfo=UTC)
    columns = {"finished_at": moment, "enqueued_at": moment, "last_attempted_at": moment}
    job_id = make_job(status="failed", **columns)
    with override_settings(TIME_ZONE=zone):
        listed = admin_client.get(reverse("admin:pgjobs_job_changelist")).content.decode()
        shown = admin_client.get(page("job", "change", job_id)).content.decode()
    assert f'title="July 1, 2026 {text}"' in listed
    assert f'title="July 1, 2026 {text}"' in shown
    assert f">July 1, 2026 {text.split()[0]}</time>" in shown
