"""Claims of jobs with keys that meet each other, and changes that are not committed (S4.21)."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection, transaction
from psycopg.errors import DeadlockDetected, SerializationFailure

from django_pgjobs import cancel, pause, reschedule
from django_pgjobs.choosing import Rooms
from django_pgjobs.models import Job, QueueSettings, RateLimit
from django_pgjobs.queries import claims
from django_pgjobs.queries.claims import ClaimedRow, Group, Scope, Segment, Taker
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.sends import Question
from django_pgjobs.worker.claiming.keyed_claim import KeyedClaim
from django_pgjobs.worker.running.calling import make_attempt
from django_pgjobs.worker.running.outcome import Kind, Outcome
from tests import tasks
from tests.factories import count_jobs, make_job, make_worker
from tests.process.history import Event, find_crowds, find_disorder, find_lost
from tests.races.support import DjangoThread, open_transaction, wait_until_role_is_blocked
from tests.worker.keyed import KEYED, keyed_claim
from tests.worker.support import ids, make_options, write

pytestmark = [pytest.mark.race, pytest.mark.django_db(transaction=True)]

OpenOwn = Callable[[], OwnConnection]

ISOLATION = "default_transaction_isolation"
QUEUES = ("default", "mail")
PRIORITIES = range(5)


class Claimant(threading.Thread):
    """Claims and finishes jobs until all have ended, and keeps an account of it."""

    def __init__(
        self, own: OwnConnection, history: list[Event], everybody_is_here: threading.Barrier
    ) -> None:
        super().__init__(daemon=True)
        self._own = own
        self._history = history
        self._everybody_is_here = everybody_is_here
        self._worker_id = make_worker()
        self._random = random.Random(self._worker_id)
        self._options = make_options()
        self.error: BaseException | None = None
        self.claimed = 0
        self.start()

    def run(self) -> None:
        try:
            self._own.open()
            self._everybody_is_here.wait(15)
            while find_lost(list(self._history)):
                self._take_turn()
        except BaseException as error:
            self.error = error

    def _take_turn(self) -> None:
        rows: list[ClaimedRow] = self._repeat(self._claim)
        self.claimed += len(rows)
        self._note("begin", rows)
        returned = [row for row in rows if self._random.random() < 0.1]
        ended = [row for row in rows if row not in returned]
        self._note("fail", returned)
        self._note("end", ended)
        batch = [(make_attempt(row, self._options), Outcome(Kind.RELEASE)) for row in returned]
        batch += [(make_attempt(row, self._options), Outcome(Kind.DONE)) for row in ended]
        if batch:
            assert len(self._repeat(lambda: write(self._own, *batch))) == len(batch)

    def _claim(self) -> list[ClaimedRow]:
        """Claim of all there is, or of one queue and priority."""
        wanted = self._random.choice([1, 2, 5, 10])
        if self._random.random() < 0.5:
            return keyed_claim(self._own, self._worker_id, wanted)
        queue, priority = self._random.choice(QUEUES), self._random.choice(PRIORITIES)
        segments = [Segment(Group("default", queue, -priority))]
        return keyed_claim(self._own, self._worker_id, wanted, segments=segments, lanes=[])

    def _repeat(self, action: Callable) -> object:
        """Do as the pump with a turn that another worker crossed."""
        while True:
            try:
                return action()
            except (SerializationFailure, DeadlockDetected):
                continue

    def _note(self, kind: str, rows: list[ClaimedRow]) -> None:
        for row in rows:
            self._history.append(Event(kind, (row.lane or "").strip(), row.id, 0.0, self.ident))


@pytest.mark.slow
@pytest.mark.parametrize("threads", [2, 4])
def test_claims_at_the_same_time_keep_the_limit_and_the_order_of_each_key(
    open_own: OpenOwn, threads: int
) -> None:
    """Never one more than the limit, nothing lost, nothing given out twice."""
    history: list[Event] = []
    for number in range(240):
        key, limit = [("one:1", None), ("one:2", None), ("three:1", 3), ("three:2", 3)][number % 4]
        job = make_job(
            concurrency_key=key,
            concurrency_limit=limit,
            queue_name=QUEUES[number % 3 % 2],
            priority=PRIORITIES[number % 5],
        )
        history.append(Event("wait", key, job))
    barrier = threading.Barrier(threads)
    claimants = [Claimant(open_own(), history, barrier) for _ in range(threads)]
    for claimant in claimants:
        claimant.join(30)
        assert not claimant.is_alive()
        assert claimant.error is None
    ordered = [event for event in history if event.key.startswith("one")]
    assert find_disorder(ordered) == []
    assert find_crowds(ordered) == []
    assert find_crowds([event for event in history if event not in ordered], 3) == []
    assert find_lost(history) == []
    assert count_jobs(status="successful") == 240
    assert min(claimant.claimed for claimant in claimants) > 0, "all had their turns"


@pytest.mark.slow
def test_claims_at_the_same_time_keep_the_limit_of_a_queue(open_own: OpenOwn) -> None:
    """S1.15: jobs with keys and without count together."""
    QueueSettings.objects.create(queue_name="default", max_running=3)
    history: list[Event] = []
    for number in range(120):
        key = ["", "shop:1", "shop:2"][number % 3]
        job = make_job(concurrency_key=key or None, concurrency_limit=9)
        history.append(Event("wait", key, job))
    barrier = threading.Barrier(4)
    claimants = [Claimant(open_own(), history, barrier) for _ in range(4)]
    for claimant in claimants:
        claimant.join(30)
        assert not claimant.is_alive()
        assert claimant.error is None
    assert find_crowds(history, 3, group=lambda event: "default") == []
    assert find_lost(history) == []


@pytest.mark.parametrize(("end", "left"), [("COMMIT", 1), ("ROLLBACK", 3)])
@pytest.mark.parametrize("limit", ["key", "queue"])
def test_a_claim_that_is_not_committed_counts(
    open_own: OpenOwn, limit: str, end: str, left: int
) -> None:
    """Who comes in between claims nothing, whatever becomes of the other one."""
    if limit == "queue":
        QueueSettings.objects.create(queue_name="default", max_running=3)
    for _ in range(5):
        make_job(concurrency_key="shop:1", concurrency_limit=3 if limit == "key" else 9)
    first, second = open_own(), open_own()
    workers = [make_worker(), make_worker()]
    keyed_claim(second, workers[1], 0)  # so that the row to hold is there
    with open_transaction(first) as end_it:
        assert len(keyed_claim(first, workers[0], 2)) == 2
        assert keyed_claim(second, workers[1]) == []
        end_it(end)
    assert len(keyed_claim(second, workers[1])) == left
    assert count_jobs(status="running") == 3


SYNC = tasks.add.using(concurrency_key="shop:1", unique_key="sync:{a}", on_conflict="replace")


@pytest.fixture
def shop() -> list[int]:
    """Two jobs of one key, in order, and one of a key whose lane follows."""
    first, second = (int(SYNC.enqueue(number, 2).id) for number in (1, 2))
    return [first, second, make_job(concurrency_key="shop:2")]


def replace(job_id: int) -> None:
    """Enqueue what the first job of the shop does, with other arguments."""
    assert int(SYNC.enqueue(1, 7).id) == job_id


@pytest.mark.parametrize(
    ("change", "next_one"),
    [
        (cancel, 1),
        (lambda job: reschedule(job, timedelta(hours=1)), 1),
        (lambda job: reschedule(job, None), 0),
        (replace, 0),
    ],
    ids=["cancel", "later", "now", "replace"],
)
@pytest.mark.parametrize("commits", [True, False])
def test_a_head_that_somebody_is_changing_holds_up_its_key_and_no_other(
    own: OwnConnection, shop: list[int], change: Callable, next_one: int, commits: bool
) -> None:
    """Even a claim of a single job finds that of the other key."""
    worker = make_worker()
    with transaction.atomic():
        change(shop[0])
        assert ids(keyed_claim(own, worker, 1)) == shop[2:]
        assert keyed_claim(own, worker) == []
        transaction.set_rollback(not commits)
    expected = shop[next_one if commits else 0]
    assert ids(keyed_claim(own, worker)) == [expected]


def test_a_job_that_waits_at_a_lock_does_not_hold_up_those_of_its_key_behind_it(
    own: OwnConnection,
) -> None:
    """With a limit of more than one there is no order to keep."""
    first, second = (make_job(concurrency_key="shop:1", concurrency_limit=2) for _ in range(2))
    worker = make_worker()
    with transaction.atomic():
        cancel(first)
        assert ids(keyed_claim(own, worker, 1)) == [second]
        transaction.set_rollback(True)
    assert ids(keyed_claim(own, worker)) == [first]


@pytest.mark.parametrize(
    "change",
    [
        lambda job: Job.objects.filter(pk=job).update(concurrency_key="shop:2"),
        lambda job: pause(task="tests.tasks.echo"),
        cancel,
    ],
    ids=["key", "pause", "cancel"],
)
def test_what_changed_since_it_was_listed_is_not_claimed_and_costs_no_token(
    open_own: OpenOwn, change: Callable
) -> None:
    """Only the first jobs of each lane are locked while the worker chooses."""
    own = open_own()
    own.round_trip([claims.send_hold])  # makes the row that is held, if a flush took it
    RateLimit.objects.create(name="mail", count=11, period=100.0, burst=2)
    key = {"concurrency_key": "shop:1", "concurrency_limit": 2, "rate_limit_keys": "mail"}
    first = make_job(**key)
    second = make_job("tests.tasks.echo", **key)
    segments = [Segment(Group("default", "default", 0))]
    scope = Scope(floors={}, segments=segments, boosts={}, slots={}, rooms=Rooms(2, 2), max_jobs=2)
    taker = Taker(
        worker_id=make_worker(),
        worker_name="test:1",
        passed_over_paths=[],
        detailed=False,
        detailed_paths=[],
    )
    claim = KeyedClaim(scope, taker)

    def choose(rows: list) -> None:
        claim.choose(rows)
        assert [job.id for job in claim.chosen] == [first, second]
        DjangoThread(lambda: change(second)).result()

    question = Question(claim.send_heads, choose)
    sends = [claims.send_hold, question, claim.send_chosen, claim.send_spending]
    assert ids(claims.claimed_rows(own.round_trip(sends)[2], 0.0)) == [first]
    with connection.cursor() as cursor:
        cursor.execute("SELECT taken_since FROM pgjobs_rate_state WHERE key = 'mail'")
        assert cursor.fetchall() == [([1],)]


@pytest.mark.parametrize("isolation", [None, "repeatable read", "serializable"])
def test_a_claim_that_waits_sees_what_the_one_before_it_claimed(
    open_own: OpenOwn, isolation: str | None
) -> None:
    """Its snapshot is younger than the commit that it waited for, also if a pooler's sessions have
    another *isolation* by the role.
    """
    first, second = open_own(), open_own()
    if isolation:
        second.open().execute("SELECT set_config(%s, %s, FALSE)", [ISOLATION, isolation])
        second.is_direct = False
    keyed_claim(first, make_worker())  # makes the row that is held, if a flush took it
    limited = {"concurrency_key": "shop:1", "concurrency_limit": 3}
    others = [make_job(queue_name="mail", **limited) for _ in range(2)]
    jobs = [make_job(**limited) for _ in range(3)]
    worker_id, segments = make_worker(), [Segment(KEYED)]
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT FROM pgjobs_keyed_claim FOR UPDATE")
        waiter = DjangoThread(lambda: keyed_claim(second, worker_id, segments=segments, waits=True))
        wait_until_role_is_blocked(second.role)
        Job.objects.filter(pk__in=others).update(status="running")
    assert ids(waiter.result()) == jobs[:1]


def test_a_turn_that_was_waited_for_says_how_long(open_own: OpenOwn) -> None:
    own = open_own()
    own.round_trip([claims.send_hold])  # makes the row that is held, if a flush took it
    sent = time.monotonic()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT FROM pgjobs_keyed_claim FOR UPDATE")
        waiter = DjangoThread(
            lambda: own.round_trip([lambda cursor: claims.send_hold(cursor, waits=True)])
        )
        wait_until_role_is_blocked(own.role)
        blocked = time.monotonic()
        cursor.execute("SELECT count(*) FROM generate_series(1, 100000)")
        shortest = time.monotonic() - blocked
    [[(_, waited)]] = waiter.result()
    assert shortest < waited < time.monotonic() - sent
