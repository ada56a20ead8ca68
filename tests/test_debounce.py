"""The window of a coalescing enqueue: each one puts the job off, but never beyond max_wait."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from tests.factories import get_job
from tests.test_merge import sync

pytestmark = pytest.mark.django_db


def waits(job_id: str) -> tuple[float | None, float | None]:
    """Return seconds from the enqueue to the due time, and from the newest merge to it."""
    job = get_job(job_id)
    assert job.due_at == job.run_after
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXTRACT(EPOCH FROM %s - clock_timestamp())", [job.due_at])
        left = cursor.fetchone()[0]
    if job.due_at is None:
        return None, None
    return (job.due_at - job.enqueued_at).total_seconds(), float(left)


def age(job_id: str, seconds: float) -> None:
    """Let a job have been enqueued earlier."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgjobs_job SET enqueued_at = enqueued_at - make_interval(secs => %s),"
            " run_after = run_after - make_interval(secs => %s),"
            " due_at = due_at - make_interval(secs => %s) WHERE id = %s",
            [seconds, seconds, seconds, int(job_id)],
        )


@pytest.mark.parametrize("conflict", ["merge", "replace"])
def test_each_enqueue_puts_the_job_off_within_the_window(conflict: str) -> None:
    """S4.6: a burst of edits is one job, soon after the last of them."""
    later = sync.using(run_after=timedelta(seconds=50), on_conflict=conflict)
    job = later.enqueue(1, ["a"])
    age(job.id, 30)
    later.enqueue(1, ["b"])
    from_start, left = waits(job.id)
    assert from_start is not None
    assert left is not None
    assert 79 < from_start < 100
    assert 20 < left <= 50


@pytest.mark.parametrize("max_wait", [60, timedelta(seconds=60)], ids=["seconds", "timedelta"])
@pytest.mark.parametrize("conflict", ["merge", "replace"])
def test_it_is_not_put_off_beyond_max_wait(conflict: str, max_wait: Any) -> None:
    """Edits that never end cannot keep a job from running."""
    later = sync.using(run_after=timedelta(seconds=50), max_wait=max_wait, on_conflict=conflict)
    job = later.enqueue(1)
    assert waits(job.id)[0] == 50
    age(job.id, 30)
    later.enqueue(1)
    assert waits(job.id)[0] == 60
    age(job.id, 40)
    later.enqueue(1)
    assert get_job(job.id).due_at is None


def test_one_that_is_due_already_waits_no_longer_than_max_wait() -> None:
    job = sync.enqueue(1)
    later = sync.using(run_after=timedelta(hours=1), max_wait=60)
    later.enqueue(1)
    assert waits(job.id)[0] == 60
    age(job.id, 100)
    later.enqueue(1)
    assert get_job(job.id).due_at is None


def test_an_enqueue_without_run_after_makes_it_due_now() -> None:
    job = sync.using(run_after=timedelta(hours=1), max_wait=7200).enqueue(1)
    sync.using(max_wait=7200).enqueue(1)
    assert (get_job(job.id).due_at, get_job(job.id).run_after) == (None, None)
