"""Unique keys after the enqueue: requeue, retry, and rows that are not of our making."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from django.db import connection, transaction
from psycopg import sql

from django_pgjobs import DuplicateJob, cancel, requeue
from django_pgjobs.models import Job
from tests.factories import count_jobs, get_job, make_job
from tests.test_unique import (
    UNIQUE,
    end_job,
    give_back,
    push,
    push_latest,
    start_job,
)

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("until", ["finished", "claimed"])
def test_a_requeue_that_meets_a_twin_says_so(until: str) -> None:
    """No IntegrityError, and the transaction goes on."""
    unique = push.using(unique_until=until)
    first = unique.enqueue(1, fields=["a"])
    start_job(first.id)
    end_job(first.id, "failed")
    second = unique.enqueue(1)
    assert second.id != first.id
    with transaction.atomic():
        if until == "finished":
            before = get_job(first.id)
            with pytest.raises(
                DuplicateJob, match=rf"{first.id} cannot be requeued: job {second.id} "
            ):
                requeue(first)
            assert get_job(first.id) == before
            cancel(second)
        assert requeue(first)
    assert (get_job(first.id).status, get_job(first.id).kwargs) == ("ready", {"fields": ["a"]})
    assert count_jobs(id=int(first.id)) == 1


def test_a_requeue_keeps_every_column_that_is_not_of_an_attempt() -> None:
    job_id = make_job(
        enqueued_at=datetime(2020, 1, 2, tzinfo=UTC), claim=4, attempts=2, lost_count=1, priority=5,
        status="ready", queue_name="q", backend="b", args=[1e16], kwargs={"b": 1, "a": 2},
        correlation_id="c", tags=["t"], metadata={"m": 1}, errors=[{"message": "x"}], result=[1],
        progress=[2], worker_ids=["w"], note="n", timeout=2.5, max_attempts=9, worker_id=3,
        started_at=sql.SQL("now()"), last_attempted_at=sql.SQL("now()"),
        finished_at=sql.SQL("now()"), cancel_requested_at=sql.SQL("now()"), concurrency_key="k",
        concurrency_limit=3, skips_waiting=True, rate_limit_keys="r", rate_cost=2, unique_key="u",
        unique_until_claimed=True, merged_count=8, run_after=datetime(2020, 1, 3, tzinfo=UTC),
        subject="shop.order:1", max_losses=2, interruptions=3,
        is_declared=True, expires_at=datetime(2999, 1, 1, tzinfo=UTC), ready_at=sql.SQL("now()"),
        on_failure={"task_path": "t"}, batch_id=17, source_id=18, is_async=True,
        schedule="s", scheduled_for=datetime(2020, 1, 4, tzinfo=UTC),
    )  # fmt: skip
    # Not inserted as failed: the server computes the lane of a job where it waits.
    Job.objects.filter(pk=job_id).update(status="failed")
    before = vars(get_job(job_id))
    assert requeue(job_id)
    after = vars(get_job(job_id))
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {
        "claim", "attempts", "lost_count", "status", "result", "progress", "worker_ids", "note",
        "worker_id", "started_at", "last_attempted_at", "finished_at", "cancel_requested_at",
        "run_after", "ready_at", "interruptions",
    }  # fmt: skip
    assert (after["claim"], after["attempts"], after["run_after"]) == (5, 0, None)
    untouched = {"id", "due_at", "hold", "waits_for"}
    fresh = vars(get_job(make_job()))
    assert {n for n in before if before[n] == fresh[n]} <= untouched | {"task_path"}


def test_a_retry_meets_no_twin() -> None:
    """A job leaves the index at its claim for good, or not before its end."""
    first = push_latest.enqueue(1)
    for _ in range(3):
        start_job(first.id)
        second = push_latest.enqueue(1)
        give_back(first.id)
        assert push_latest.enqueue(1).id == second.id
    end_job(first.id)
    assert requeue(first)
    assert push_latest.enqueue(1).id == second.id
    kept = push.enqueue(1)
    for _ in range(3):
        start_job(kept.id)
        give_back(kept.id)
        assert push.enqueue(1).id == kept.id


def test_a_job_that_python_cannot_read_is_given_back_all_the_same() -> None:
    digits = "1" * 5_000
    job_id = make_job(push.module_path, unique_key="push:1", args=sql.SQL(f"'[{digits}]'::json"))
    twin = push.enqueue(1)
    assert (twin.id, twin.args) == (str(job_id), [])


def test_values_are_stored_as_they_were_sent() -> None:
    """Not as `jsonb` would."""
    value = {"z": 1e16, "a": -0.0, "ä": 10**30}
    for unique in UNIQUE:
        job_id = unique.enqueue(1, fields=value).id
        with connection.cursor() as cursor:
            cursor.execute("SELECT kwargs::text FROM pgjobs_job WHERE id = %s", [int(job_id)])
            assert cursor.fetchall() == [(json.dumps({"fields": value}, separators=(",", ":")),)]


def test_a_role_needs_no_more_than_the_live_partition() -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "CREATE ROLE pgjobs_test_unique; GRANT USAGE ON SCHEMA public TO pgjobs_test_unique;"
            "GRANT USAGE ON SEQUENCE pgjobs_job_id_seq TO pgjobs_test_unique;"
            "GRANT SELECT ON pgjobs_worker TO pgjobs_test_unique;"
            "GRANT INSERT, SELECT, UPDATE ON pgjobs_job_live TO pgjobs_test_unique;"
            "SET LOCAL ROLE pgjobs_test_unique"
        )
        for unique in (*UNIQUE[:2], push_latest):
            assert unique.enqueue(1).id == unique.enqueue(1).id
        transaction.set_rollback(True)
