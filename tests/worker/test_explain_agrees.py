"""Random situations: a job can start, says explain(), if and only if a claim takes it."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
from psycopg import sql

from django_pgjobs import pause
from django_pgjobs.control.explain import explain
from django_pgjobs.models import Job
from django_pgjobs.models.control import ConcurrencyLimit, QueueSettings, RateLimit
from django_pgjobs.queries.connection import OwnConnection
from tests.factories import make_job, make_running_job, make_worker, use_rate
from tests.worker.keyed import keyed_claim

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

LATER = sql.SQL("clock_timestamp() + interval '1 hour'")
TASKS = ["tests.tasks.add", "tests.tasks.echo"]
QUEUES = ["default", "mail"]
KEYS = [None, None, "shop:1", "shop:2", "shop_1", "user:1"]
# One cost for each, so that no job takes what an older one of the same key could not.
RATES = {
    None: 1,
    "fast:1": 1,
    "slow:1": 2,
    "slow:2": 2,
    "tiny": 5,
    "missing:1": 1,
    "fast:1\nslow:1": 2,
}
WAITS = [
    {},
    {},
    {},
    {"run_after": LATER},
    {"due_at": LATER, "note": "retry after Mishap"},
    {"hold": "dependencies"},
    {"hold": "predecessor failed"},
]


def make_situation(dice: random.Random) -> None:
    """Fill the tables: limits, pauses, running jobs and waiting ones."""
    RateLimit.objects.create(name="fast", count=100, period=1, burst=50)
    RateLimit.objects.create(name="slow", count=10, period=1000, burst=4)
    RateLimit.objects.create(name="tiny", count=10, period=1000, burst=2)
    for rate in ("fast:1", "slow:1", "slow:2", "tiny"):
        use_rate(rate, ago=dice.choice([100_000, -100_000]))
    for pattern in dice.sample(["shop:*", "shop:1", "*", "*:1"], dice.randrange(3)):
        ConcurrencyLimit.objects.create(pattern=pattern, max_running=dice.randint(1, 3))
    for queue in dice.sample(QUEUES, dice.randrange(3)):
        max_running, boost = dice.choice([None, 1, 3]), dice.choice([0, 50])
        QueueSettings.objects.create(queue_name=queue, max_running=max_running, boost=boost)
    targets = [{"queue": "mail"}, {"task": TASKS[1]}, {"key": "shop:*"}, {"key": "user:1"}]
    for target in dice.sample(targets, dice.choice([0, 0, 1, 2])):
        pause(**target, until=dice.choice([None, timedelta(hours=1)]))
    other = make_worker()
    for _ in range(dice.randrange(4)):
        make_running_job(other, queue_name=dice.choice(QUEUES), concurrency_key=dice.choice(KEYS))
    for _ in range(dice.randint(1, 14)):
        make_waiting_job(dice)


def make_waiting_job(dice: random.Random) -> None:
    key, rate = dice.choice(KEYS), dice.choice([None, None, *RATES])
    make_job(
        dice.choice(TASKS),
        queue_name=dice.choice(QUEUES),
        priority=dice.choice([0, 0, 10]),
        concurrency_key=key,
        concurrency_limit=dice.choice([None, None, 2]) if key else None,
        skips_waiting=dice.choice([False, False, True]),
        is_async=dice.choice([False, False, True]),
        rate_limit_keys=rate,
        rate_cost=RATES[rate],
        **dice.choice(WAITS),
    )


def ready_ids() -> list[int]:
    return list(Job.objects.filter(status="ready").values_list("id", flat=True))


@pytest.mark.parametrize("seed", range(120))
def test_a_claim_takes_what_can_start_and_nothing_else(own: OwnConnection, seed: int) -> None:
    """Claims go on until one takes nothing: then nothing may be said to be able to start."""
    make_situation(random.Random(seed))
    worker = make_worker()
    for _ in range(20):
        said = {job_id: explain(job_id) for job_id in ready_ids()}
        taken = {row.id for row in keyed_claim(own, worker, 1000)}
        for job_id in taken:
            assert said[job_id].is_ready_to_run, str(said[job_id])
        if not taken:
            assert not [str(found) for found in said.values() if found.is_ready_to_run]
            return
    pytest.fail("the claims do not end")


@pytest.mark.parametrize("seed", range(120))
def test_a_job_alone_is_taken_if_and_only_if_it_can_start(own: OwnConnection, seed: int) -> None:
    """All others that could compete with it are blocked."""
    dice = random.Random(1_000 + seed)
    make_situation(dice)
    chosen = dice.choice(ready_ids())
    others = Job.objects.filter(status="ready", due_at=None).exclude(pk=chosen)
    others.update(hold="dependencies")
    found = explain(chosen)
    taken = [row.id for row in keyed_claim(own, make_worker(), 1000)]
    assert taken == ([chosen] if found.is_ready_to_run else []), str(found)


def test_a_lane_is_judged_by_its_first_job_whatever_the_others_ask_for(own: OwnConnection) -> None:
    """Jobs with the same keys of tasks with other options."""
    make_job(concurrency_key="shop:1", due_at=LATER, note="retry after Mishap")
    make_job(concurrency_key="shop:1")
    skipping = make_job(concurrency_key="shop:1", skips_waiting=True)
    running = [make_running_job(concurrency_key="shop:2").id for _ in range(2)]
    make_job(concurrency_key="shop:2", concurrency_limit=2)
    roomy = make_job(concurrency_key="shop:2", concurrency_limit=9)
    make_job(concurrency_key="shop:3", concurrency_limit=2)
    narrow = make_job(concurrency_key="shop:3")
    make_running_job(concurrency_key="shop:3")
    assert not explain(narrow).is_ready_to_run
    taken = keyed_claim(own, make_worker(task_paths=["tests.tasks.add"]))
    assert [row.lane for row in taken] == ["shop:3\n"]
    assert narrow not in [row.id for row in taken]
    assert explain(skipping).reasons[0].code == "key_order"
    assert (explain(roomy).reasons[0].code, explain(roomy).reasons[0].refs) == (
        "key_full",
        tuple(running),
    )
