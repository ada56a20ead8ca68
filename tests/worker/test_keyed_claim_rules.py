"""What else decides about jobs with keys: pauses, unknown tasks, queue limits, slots, boosts."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection as django_connection
from django.db import transaction

from django_pgjobs.models.control import Pause, QueueSettings
from django_pgjobs.queries.claims import Lane, Segment
from django_pgjobs.queries.connection import OwnConnection
from tests.factories import make_job, make_jobs, make_running_job, make_worker
from tests.worker.keyed import KEYED, keyed_claim, make_keyed
from tests.worker.support import ids

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(
    ("kind", "name"),
    [("queue", "default"), ("task", "tests.tasks.add"), ("key", "shop:1"), ("key", "shop:*")],
)
def test_nothing_paused_is_claimed(own: OwnConnection, worker: int, kind: str, name: str) -> None:
    """S1.15."""
    make_keyed(2, "shop:1", 9)
    other = make_job("tests.tasks.echo", concurrency_key="other", queue_name="other")
    pause = Pause.objects.create(kind=kind, name=name)
    assert ids(keyed_claim(own, worker)) == [other]
    pause.delete()
    assert len(keyed_claim(own, worker)) == 2


def test_a_queue_that_was_paused_after_the_scan_is_left_alone(
    own: OwnConnection, worker: int
) -> None:
    make_jobs(2)
    make_keyed(2, "shop:1", 5)
    pause = Pause.objects.create(kind="queue", name="default")
    places: dict[str, Any] = {
        "segments": [Segment(KEYED)],
        "lanes": [Lane("default", "default")],
    }
    assert keyed_claim(own, worker, **places) == []
    pause.delete()
    assert len(keyed_claim(own, worker, **places)) == 4


def test_a_pause_ends_by_itself(own: OwnConnection, worker: int) -> None:
    make_keyed(2, "shop:1", 9)
    pause = Pause.objects.create(kind="queue", name="default")
    Pause.objects.filter(pk=pause.pk).update(resume_at=pause.paused_at)
    assert len(keyed_claim(own, worker)) == 2


def test_a_paused_task_at_the_head_of_an_ordered_key_keeps_its_place(
    own: OwnConnection, worker: int
) -> None:
    make_job(concurrency_key="shop:1")
    make_job("tests.tasks.echo", concurrency_key="shop:1")
    Pause.objects.create(kind="task", name="tests.tasks.add")
    assert keyed_claim(own, worker) == []


def test_tasks_that_the_worker_does_not_have_are_left_to_others(
    own: OwnConnection, worker: int
) -> None:
    """G14."""
    make_keyed(1, "a", task_path="no.such")
    make_job("no.such")
    known = make_keyed(1, "b")
    assert ids(keyed_claim(own, worker, passed_over_paths=["no.such"])) == known


def test_a_queue_has_a_limit_over_all_workers(own: OwnConnection, worker: int) -> None:
    QueueSettings.objects.create(queue_name="default", max_running=3)
    make_running_job()
    make_keyed(5, "shop:1", 9)
    make_jobs(5)
    other = make_jobs(4, queue_name="other")
    rows = keyed_claim(own, worker, 20)
    assert sum(row.queue_name == "default" for row in rows) == 2
    assert set(other) <= set(ids(rows))


def test_a_limited_queue_is_left_alone_by_who_is_not_in_turn(
    own: OwnConnection, worker: int
) -> None:
    keyed_claim(own, worker)
    QueueSettings.objects.create(queue_name="default", max_running=3)
    make_jobs(5)
    with transaction.atomic(), django_connection.cursor() as cursor:
        cursor.execute("SELECT FROM pgjobs_keyed_claim FOR UPDATE")
        assert keyed_claim(own, worker) == []


def test_a_worker_takes_no_more_of_a_queue_than_it_has_slots_for(
    own: OwnConnection, worker: int
) -> None:
    make_jobs(5, queue_name="slow")
    make_keyed(5, "shop:1", 9, queue_name="slow")
    fast = make_jobs(3)
    rows = keyed_claim(own, worker, 20, caps={"slow": 4})
    assert sum(row.queue_name == "slow" for row in rows) == 4
    assert set(fast) <= set(ids(rows))


def test_a_boost_lifts_a_queue_without_touching_its_rows(own: OwnConnection, worker: int) -> None:
    """S4.19, S5.15: types first, by the queue they have of their own."""
    plain = make_jobs(3, priority=5)
    keyed = make_keyed(3, "shop:1", 9, queue_name="prices")
    QueueSettings.objects.create(queue_name="prices", boost=10)
    assert set(ids(keyed_claim(own, worker, 3))) == set(keyed)
    assert ids(keyed_claim(own, worker, 3)) == plain


def test_a_worker_whose_lease_ran_out_claims_nothing(own: OwnConnection) -> None:
    make_keyed(2, "shop:1", 9)
    make_jobs(2)
    assert keyed_claim(own, make_worker(lease_seconds=-1)) == []
