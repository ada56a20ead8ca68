"""Many schedules that are due at once: how they are enqueued, and what is on time then."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_pgjobs.models import Job, Occurrence
from django_pgjobs.schedules import firing
from django_pgjobs.schedules.firing import fire_due
from tests.factories import make_jobs
from tests.schedules.support import fire, jobs_of, let_be_due, make_schedule, outcomes

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("overlap", ["skip", "cancel", "allow"])
def test_those_that_nothing_overlaps_are_enqueued_together(
    overlap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [make_schedule(f"s{number}", overlap=overlap) for number in range(5)]
    let_be_due(rows[0])
    fire_due()
    Occurrence.objects.all().delete()
    for row in rows:
        let_be_due(row)
    one_by_one = []
    enqueue = firing.enqueue_occurrence

    def count(row: Any, *given: Any) -> Any:
        one_by_one.append(row.name)
        return enqueue(row, *given)

    monkeypatch.setattr(firing, "enqueue_occurrence", count)
    fire_due()
    assert one_by_one == ([] if overlap == "allow" else ["s0"])
    assert outcomes("s0") == (["skipped"] if overlap == "skip" else ["enqueued"])
    assert {outcome for row in rows[1:] for outcome in outcomes(row.name)} == {"enqueued"}
    assert len(jobs_of("s4")) == 1


def test_what_waited_for_its_turn_among_many_is_on_time() -> None:
    row = make_schedule(missed="skip")
    instant = let_be_due(row)
    late = instant + timedelta(minutes=5)
    fire_due(now=late, since=instant + timedelta(seconds=30))
    assert [job.scheduled_for for job in jobs_of()] == [instant]


def test_but_not_for_ever() -> None:
    row = make_schedule(missed="skip")
    instant = let_be_due(row)
    fire_due(now=instant + timedelta(minutes=30), since=instant)
    assert outcomes() == ["missed"]


@pytest.mark.slow
def test_many_older_jobs_are_cancelled_a_page_at_a_time(
    django_assert_max_num_queries: Any,
) -> None:
    row = make_schedule(overlap="cancel")
    make_jobs(2_500, schedule=row.name)
    for left in (1_500 + 1, 501 + 1, 1):
        let_be_due(row)
        Occurrence.objects.all().delete()
        with django_assert_max_num_queries(40):
            fire(row)
        assert Job.objects.filter(status="ready").count() == left
