"""Claims of the first jobs of each lane and no more."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection as django_connection
from django.db import transaction

from django_pgjobs.controls import ConcurrencyLimit, Pause, QueueSettings, RateLimit
from django_pgjobs.queries import claims
from django_pgjobs.queries.claims import Depth, Ready, Segment
from django_pgjobs.queries.connection import OwnConnection
from tests.factories import make_job, make_jobs, make_running_job, make_worker
from tests.worker.keyed import KEYED, keyed_claim, make_keyed
from tests.worker.support import DEFAULT, ids

ALL = [Segment(KEYED)]

both = pytest.mark.parametrize("depth", [Depth.FIRSTS, Depth.HEAD], ids=lambda depth: depth.name)


def claim(
    own: OwnConnection, worker: int, max_jobs: int = 10, *, depth: Depth, **others: Any
) -> list[int]:
    """Claim of the lanes of the default queue, down to a depth."""
    given: dict[str, Any] = {"segments": ALL, "lanes": [], "takes_tokens": False} | others
    return ids(keyed_claim(own, worker, max_jobs, depth=depth, **given))


@both
@pytest.mark.django_db(transaction=True)
def test_each_lane_gives_its_first_job(own: OwnConnection, worker: int, depth: Depth) -> None:
    jobs = [make_keyed(3, f"shop:{number}", 2) for number in range(6)]
    assert claim(own, worker, 4, depth=depth) == [of_key[0] for of_key in jobs[:4]]
    rest = [Segment.behind(KEYED, "shop:3\n"), Segment(KEYED, "", "shop:3\n")]
    assert claim(own, worker, 4, segments=rest, depth=depth) == [
        *(of_key[1] for of_key in jobs[:2]),
        *(of_key[0] for of_key in jobs[4:]),
    ]


@both
@pytest.mark.django_db(transaction=True)
def test_it_claims_what_the_whole_statement_does(
    own: OwnConnection, worker: int, depth: Depth
) -> None:
    other = make_worker()
    for number in range(120):
        make_keyed(3, f"shop:{number}", 1 + number % 3)
        if number % 4 == 0:
            make_running_job(other, concurrency_key=f"shop:{number}")
    most = 99 if depth is Depth.HEAD else 100
    firsts = claim(own, worker, most, depth=depth)
    with own.cursor() as cursor:
        cursor.execute(
            "UPDATE public.pgjobs_job_live SET status = 'ready' WHERE id = ANY ($1)",
            [firsts],
        )
    assert len(firsts) == most
    assert ids(keyed_claim(own, worker, most)) == firsts


@pytest.mark.django_db(transaction=True)
def test_a_lane_gives_a_fiftieth_of_a_large_batch_for_each_weight(
    own: OwnConnection, worker: int
) -> None:
    ConcurrencyLimit.objects.create(pattern="heavy", max_running=50, weight=3)
    heavy, light = make_keyed(20, "heavy"), make_keyed(20, "light", 50)
    assert claim(own, worker, 100, depth=Depth.FIRSTS) == heavy[:6] + light[:2]


@both
@pytest.mark.django_db(transaction=True)
def test_no_key_exceeds_its_limit(own: OwnConnection, worker: int, depth: Depth) -> None:
    make_running_job(make_worker(), concurrency_key="shop:1")
    jobs = make_keyed(9, "shop:1", 3)
    taken = [job for _ in range(3) for job in claim(own, worker, 200, depth=depth)]
    assert taken == jobs[:2]


@both
@pytest.mark.django_db(transaction=True)
def test_a_job_with_a_smaller_limit_than_the_first_waits(
    own: OwnConnection, worker: int, depth: Depth
) -> None:
    first = make_job(concurrency_key="shop:1", concurrency_limit=4, skips_waiting=True)
    make_job(concurrency_key="shop:1", concurrency_limit=1, skips_waiting=True)
    assert claim(own, worker, 200, depth=depth) == [first]


@both
@pytest.mark.django_db(transaction=True)
def test_a_head_that_waits_for_its_retry_blocks_its_key(
    own: OwnConnection, worker: int, depth: Depth
) -> None:
    head = make_job(concurrency_key="shop:1")
    make_job(concurrency_key="shop:1")
    with own.cursor() as cursor:
        cursor.execute(
            "UPDATE public.pgjobs_job SET due_at = now() + interval '1 hour' WHERE id = $1", [head]
        )
    assert claim(own, worker, depth=depth) == []


@both
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("kind", "name"),
    [("queue", "default"), ("task", "tests.tasks.add"), ("key", "shop:1"), ("key", "shop:*")],
)
def test_nothing_paused_is_claimed(
    own: OwnConnection, worker: int, depth: Depth, kind: str, name: str
) -> None:
    jobs = make_keyed(2, "shop:1", 9)
    pause = Pause.objects.create(kind=kind, name=name)
    assert claim(own, worker, depth=depth) == []
    pause.delete()
    assert claim(own, worker, depth=depth) == jobs[:1]


@both
@pytest.mark.django_db(transaction=True)
def test_what_has_to_be_counted_is_left_alone(
    own: OwnConnection, worker: int, depth: Depth
) -> None:
    """A limit of a queue or of a rate may be younger than the worker's last scan."""
    RateLimit.objects.create(name="api", count=100, period=3600)
    make_jobs(2, rate_limit_keys="api")
    job = make_job(concurrency_key="shop:1")
    settings = QueueSettings.objects.create(queue_name="default", max_running=9)
    assert claim(own, worker, depth=depth) == []
    settings.delete()
    assert claim(own, worker, depth=depth) == [job]


@pytest.mark.django_db(transaction=True)
def test_a_task_that_the_worker_does_not_know_is_passed_over(
    own: OwnConnection, worker: int
) -> None:
    make_job("tests.tasks.echo", concurrency_key="shop:1", concurrency_limit=2)
    job = make_job(concurrency_key="shop:1", concurrency_limit=2)
    unknown = ["tests.tasks.echo"]
    assert claim(own, worker, unknown_paths=unknown, depth=Depth.HEAD) == []
    assert claim(own, worker, unknown_paths=unknown, depth=Depth.FIRSTS) == [job]


@pytest.mark.django_db(transaction=True)
def test_a_first_job_that_somebody_has_locked_is_not_waited_for(
    own: OwnConnection, worker: int
) -> None:
    first, second, other = *make_keyed(2, "shop:1", 2), *make_keyed(1, "shop:2")
    with transaction.atomic(), django_connection.cursor() as cursor:
        cursor.execute("SELECT FROM pgjobs_job WHERE id = %s FOR UPDATE", [first])
        assert claim(own, worker, depth=Depth.HEAD) == [other]
        assert claim(own, worker, depth=Depth.FIRSTS) == [second]
    assert claim(own, worker, depth=Depth.HEAD) == [first]


@both
@pytest.mark.parametrize(
    "asked",
    [
        {"floors": {DEFAULT: claims.HEAD}},
        {"caps": {"default": 1}},
        {"takes_tokens": True},
    ],
    ids=lambda asked: next(iter(asked)),
)
def test_what_a_claim_of_first_jobs_leaves_out_cannot_be_asked_of_it(
    depth: Depth, asked: dict[str, Any]
) -> None:
    cursor: Any = None
    taker = claims.Taker(
        worker_id=1, worker_name="", unknown_paths=[], detailed=False, detailed_paths=[]
    )
    given = {"floors": {}, "caps": {}, "takes_tokens": False} | asked
    with pytest.raises(ValueError, match="without floors, caps and tokens"):
        claims.send_keyed_claim(
            cursor, segments=ALL, boosts={}, max_jobs=1, taker=taker, depth=depth, **given
        )


@pytest.mark.django_db(transaction=True)
def test_a_scan_tells_whether_lanes_give_their_heads(own: OwnConnection) -> None:
    make_keyed(1, "shop:1")

    def gives_heads() -> bool:
        [[row]] = own.round_trip([claims.send_lane_listing])
        return Ready._make(row).gives_heads

    assert gives_heads()
    pause = Pause.objects.create(kind="task", name="tests.tasks.add")
    assert not gives_heads()
    Pause.objects.filter(pk=pause.pk).update(resume_at=pause.paused_at)
    ConcurrencyLimit.objects.create(pattern="shop:*", max_running=5)
    assert gives_heads()
    ConcurrencyLimit.objects.update(weight=2)
    assert not gives_heads()
