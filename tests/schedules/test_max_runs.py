"""`max_runs` counts jobs: what got none does not end a schedule."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from django_pgjobs.models import Occurrence, Schedule
from django_pgjobs.schedules.control import skip_next
from tests.schedules.support import HOUR, fire, jobs_of, let_be_due, make_schedule, outcomes

pytestmark = pytest.mark.django_db


def test_one_that_a_person_skips_is_no_run() -> None:
    row = make_schedule(max_runs=1)
    instant = let_be_due(row)
    Occurrence.objects.create(schedule=row.name, scheduled_for=instant, outcome="skipped")
    fire(row)
    assert row.next_at == instant + HOUR
    skip_next(row.name)
    assert not jobs_of()


def test_one_that_fails_is_no_run() -> None:
    row = make_schedule(max_runs=1, args=[1, 2, 3])
    instant = let_be_due(row)
    fire(row)
    assert (outcomes(), row.next_at) == (["failed"], instant + HOUR)


@pytest.mark.parametrize(
    ("overlap", "expected"),
    [("skip", ["enqueued", "skipped"]), ("cancel", ["skipped", "enqueued"])],
)
def test_one_that_an_overlap_leaves_out_is_no_run(overlap: str, expected: list[str]) -> None:
    row = make_schedule(max_runs=2, overlap=overlap, missed="all")
    let_be_due(row, HOUR)
    fire(row)
    assert (outcomes(), row.runs) == (expected, 1)
    assert row.next_at is not None


@pytest.mark.parametrize("overlap", ["allow", "skip", "queue", "cancel"])
def test_it_ends_with_its_last_job(overlap: str) -> None:
    row = make_schedule(max_runs=1, overlap=overlap, missed="all")
    let_be_due(row, 3 * HOUR)
    fire(row)
    assert (len(jobs_of()), row.runs, row.next_at) == (1, 1, None)


def test_those_after_one_that_failed_follow_in_the_next_turn() -> None:
    row = make_schedule(max_runs=2, missed="all")
    first = let_be_due(row, 3 * HOUR)
    rows: list[dict[str, Any]] = [{"scheduled_for": first}, {"scheduled_for": first + HOUR}]
    for each in rows:
        Occurrence.objects.create(schedule=row.name, outcome="failed", **each)
    fire(row)
    assert row.next_at == first + 2 * HOUR
    fire(row)
    assert [job.scheduled_for for job in jobs_of()] == [first + 2 * HOUR, first + 3 * HOUR]
    assert row.next_at is None


def test_one_that_has_had_as_many_runs_as_the_column_holds_goes_on() -> None:
    row = make_schedule(every=1.0, missed="all")
    Schedule.objects.update(runs=2**31 - 2)
    let_be_due(row, timedelta(seconds=5))
    fire(row)
    assert (row.runs, row.error) == (2**31 - 1, "")
    assert set(outcomes()) == {"enqueued"}


def test_one_that_has_had_more_runs_than_it_may_ends() -> None:
    row = make_schedule(every=60.0)
    Schedule.objects.update(runs=5, max_runs=3)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgjobs_schedule SET next_at = %s", [timezone.now() - timedelta(minutes=5)]
        )
    fire(row)
    assert (outcomes(), row.next_at, row.error) == ([], None, "")
