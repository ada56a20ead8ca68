"""Occurrences whose task has a unique key: which job is theirs, and which was there."""

from __future__ import annotations

import pytest
from django.utils import timezone

from django_pgjobs.models import Job, Occurrence
from django_pgjobs.schedules.firing import fire_due
from tests.schedules import tasks
from tests.schedules.support import HOUR, MINUTE, fire, let_be_due, make_schedule, outcomes

pytestmark = pytest.mark.django_db

ONE = tasks.one_at_a_time.module_path


def test_a_unique_key_joins_the_job_that_is_there() -> None:
    known = int(tasks.one_at_a_time.enqueue().id)
    row = make_schedule(task_path=ONE)
    let_be_due(row)
    fire(row)
    occurrence = Occurrence.objects.get()
    assert (occurrence.outcome, occurrence.job_id) == ("joined", known)
    assert Job.objects.get().schedule is None
    assert row.last_job_id == known


@pytest.mark.parametrize("count", [1, 2])
def test_a_job_that_others_enqueue_during_the_turn_is_not_the_schedules_own(count: int) -> None:
    known = int(tasks.one_at_a_time.enqueue().id)
    Job.objects.update(enqueued_at=timezone.now() + MINUTE)
    for row in [make_schedule(f"s{number}", task_path=ONE) for number in range(count)]:
        let_be_due(row)
    fire_due()
    found = Occurrence.objects.values_list("outcome", "job_id")
    assert list(found) == count * [("joined", known)]
    assert Job.objects.get().schedule is None


def test_of_two_that_are_due_together_one_makes_the_job_of_a_unique_key() -> None:
    for row in [make_schedule(name, task_path=ONE) for name in ("first", "second")]:
        let_be_due(row)
    fire_due()
    job = Job.objects.get()
    found = Occurrence.objects.values_list("schedule", "job_id").order_by("outcome")
    assert found[0] == (job.schedule, job.pk)
    assert sorted(outcomes("first") + outcomes("second")) == ["enqueued", "joined"]


def test_a_job_that_was_joined_is_no_earlier_one_that_overlaps() -> None:
    tasks.one_at_a_time.enqueue()
    let_be_due(make_schedule(task_path=ONE, overlap="skip", missed="all"), HOUR)
    fire_due()
    assert outcomes() == ["joined", "joined"]
