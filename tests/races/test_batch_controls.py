"""Random trees that people cancel, retry, requeue and delete beside workers.

At rest the tables say what the rules say: every number, what was made of each result, what gathers
has read, and as many callbacks as ends. Then all that is left is retried until nothing has failed.
PGJOBS_MODEL_SEEDS, such as "2000-2400", says which trees.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from django.db import connection, transaction
from psycopg.errors import SerializationFailure

from django_pgjobs import workflow
from django_pgjobs.choosing import Rooms
from django_pgjobs.exceptions import BatchOpen, JobError, UnknownBatch
from django_pgjobs.models import Batch, Job
from django_pgjobs.queries import batches, claims
from django_pgjobs.queries.claims import HEAD, ClaimedRow, Taker
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.claiming.outcome_statements import resolution, writings
from django_pgjobs.worker.running.calling import make_attempt
from django_pgjobs.worker.running.outcome import Kind, Outcome
from tests import tasks
from tests.factories import make_worker
from tests.helpers import wait_until
from tests.races.controlled import Controlled
from tests.races.support import DjangoThread
from tests.races.test_batch_model import OPTIONS, RESULTS, deadlocks
from tests.worker.support import DEFAULT

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.race]

FIRST, _, LAST = os.environ.get("PGJOBS_MODEL_SEEDS", "1-6").partition("-")
SEEDS = range(int(FIRST), int(LAST or FIRST) + 1)
TABLES = ("batch", "batch_edge", "batch_change", "batch_page", "batch_key")
UNFINISHED = """
SELECT FROM pgjobs_batch_change UNION ALL SELECT FROM pgjobs_job_live
UNION ALL SELECT FROM pgjobs_batch WHERE tree_completed_at IS NULL LIMIT 1
"""


class Worker(threading.Thread):
    """Claims, finishes and settles as the pump does; notes what each success came to."""

    def __init__(self, seed: int, stop: threading.Event, results: list[tuple[int, str]]) -> None:
        super().__init__(daemon=True)
        self._random = random.Random(seed)
        self._stop_asked = stop
        self._results = results
        self._own = OwnConnection("default", "test")
        self.fails = True
        self.errors: list[BaseException] = []

    def run(self) -> None:
        try:
            worker_id, held, left = make_worker(), list[ClaimedRow](), set[int]()
            while not self._stop_asked.is_set():
                with contextlib.suppress(SerializationFailure):
                    held, left = self._turn(worker_id, held, left)
                if not held:
                    time.sleep(self._random.random() * 0.01)
        except BaseException as error:
            self.errors.append(error)
        finally:
            self._own.close()
            connection.close()

    def _turn(
        self, worker_id: int, held: list[ClaimedRow], left: set[int]
    ) -> tuple[list[ClaimedRow], set[int]]:
        ending = [(make_attempt(row, OPTIONS), self._outcome(row)) for row in held]
        sends = [writing.send for writing in writings(ending)]
        finishes = len(sends)
        if ending:
            sends.append(resolution(ending))
        taker = Taker(
            worker_id=worker_id,
            worker_name="model",
            passed_over_paths=[],
            detailed=False,
            detailed_paths=[],
        )
        most = self._random.choice([1, 2, 5])
        rooms, floors = Rooms(most, most), {DEFAULT: HEAD}
        place = len(sends)
        sends.append(
            partial(claims.send_claim, floors=floors, rooms=rooms, max_jobs=most, taker=taker)
        )
        if not held or self._random.random() < 0.1:
            [rows] = self._own.round_trip([batches.send_changed])
            left |= {batch_id for (batch_id,) in rows}
        touched = left | {row.batch_id for row in held if row.batch_id is not None}
        if touched:
            sends.append(partial(batches.send_settlement, ids=touched))
        asked_at = time.monotonic()
        with self._noted(ending):
            answers = self._own.round_trip(sends)
        done = {row[0] for answer in answers[:finishes] for row in answer}
        for attempt, _outcome in ending:
            assert attempt.id in done, f"the end of job {attempt.id} was lost"
        missed = {row[0] for row in answers[-1] if row[1] is True} if touched else set()
        return claims.claimed_rows(answers[place], asked_at), missed

    @contextlib.contextmanager
    def _noted(self, ending: list[tuple[Attempt, Outcome]]) -> Iterator[None]:
        """Note results before anybody can see them; forget them if they are rolled back."""
        came = [(attempt.id, end.result) for attempt, end in ending if end.kind is Kind.DONE]
        self._results += came
        try:
            yield
        except BaseException:
            for each in came:
                self._results.remove(each)
            raise

    def _outcome(self, row: ClaimedRow) -> Outcome:
        if self.fails and self._random.random() < 0.18:
            return Outcome(self._random.choice([Kind.FAIL, Kind.FAIL, Kind.CANCEL]))
        args = json.loads(row.args)
        if isinstance(args, list):
            return Outcome(Kind.DONE, result=self._random.choice(RESULTS))
        # What gathers says what it has read.
        with self._own.cursor() as cursor:
            cursor.execute(
                "SELECT batch_id, result::text FROM public.pgjobs_job_finished"
                " WHERE status = 'successful' AND batch_id = ANY ($1::bigint[]) ORDER BY id",
                [args["results_of"]],
            )
            return Outcome(Kind.DONE, result=json.dumps([list(row) for row in cursor.fetchall()]))


def make_tree(rng: random.Random) -> list[Batch]:
    """Open a random tree; return what is to be sealed."""
    policies = [None, None, "continue", "cancel branch", "cancel workflow"]
    with workflow("controls", seal=False, on_failed_job=rng.choice(policies[1:])) as root:
        made, parts = [root], [root]
        for number in range(rng.randint(1, 6)):
            kind = rng.choice(["each", "each_item", "gather", "then", "join", "part"])
            above = rng.choice(made)
            options: dict[str, Any] = {"on_failed_job": rng.choice(policies)}
            if kind == "part":
                parts.append(rng.choice(parts).batch(f"part {number}", **options))
                made.append(parts[-1])
            elif kind == "join":
                two = rng.sample([each for each in made if each.flow_id == root.pk], k=1)
                two += [each for each in made if each.flow_id == root.pk and each not in two][:1]
                how = rng.choice(["each", "each_item", "gather", "then"])
                made.append(getattr(root.join(*two), how)(tasks.echo.s()))
            elif kind in ("gather", "then"):
                how = rng.choice(["cancel", "run"])
                made.append(getattr(above, kind)(tasks.echo.s(), after_failure=how))
            else:
                options["skip_none"] = rng.random() < 0.5
                made.append(getattr(above, kind)(tasks.echo.s(), **options))
        for batch in made:
            for event in ("success", "failure", "complete"):
                getattr(batch, f"on_{event}")(tasks.echo.s(event))
        for part in parts:
            part.add(*(tasks.echo.s(number) for number in range(rng.randint(0, 4))))
    return parts


def act(seed: int, roots: list[int], requeued: set[int]) -> None:
    """Do something to the trees now and then."""
    rng = random.Random(seed)
    for _ in range(rng.randint(4, 16)):
        time.sleep(rng.random() * 0.04)
        root_id = rng.choice(roots)
        ids = list(Batch.objects.filter(root_id=root_id).values_list("pk", flat=True))
        what = rng.choice([cancel, retry, cancel_job, requeue, delete])
        expected = (BatchOpen, JobError, UnknownBatch, ZeroDivisionError, Job.DoesNotExist)
        if ids:
            target = root_id if rng.random() < 0.5 else rng.choice(ids)
            with contextlib.suppress(Batch.DoesNotExist, *expected):
                what(rng, Batch.objects.get(pk=target), ids, requeued)


def cancel(rng: random.Random, batch: Batch, ids: list[int], requeued: set[int]) -> None:
    with transaction.atomic() if rng.random() < 0.5 else contextlib.nullcontext():
        batch.cancel()
        end_now_and_then(rng)


def retry(rng: random.Random, batch: Batch, ids: list[int], requeued: set[int]) -> None:
    with transaction.atomic() if rng.random() < 0.5 else contextlib.nullcontext():
        batch.retry(cancelled=rng.random() < 0.5)
        end_now_and_then(rng)


def end_now_and_then(rng: random.Random) -> None:
    """Keep the transaction for a moment; roll it back, if there is one."""
    if connection.in_atomic_block:
        time.sleep(rng.random() * 0.02)
        if rng.random() < 0.3:
            raise ZeroDivisionError


def cancel_job(rng: random.Random, batch: Batch, ids: list[int], requeued: set[int]) -> None:
    for job in Job.objects.unfinished().filter(batch_id__in=ids)[:1]:
        job.cancel()


def requeue(rng: random.Random, batch: Batch, ids: list[int], requeued: set[int]) -> None:
    found = list(Job.objects.finished().filter(batch_id__in=ids).values_list("pk", flat=True))
    if found:
        job = Job.objects.get(pk=rng.choice(found))
        requeued.add(job.pk)
        job.requeue()


def delete(rng: random.Random, batch: Batch, ids: list[int], requeued: set[int]) -> None:
    if batch.parent_id is None and rng.random() < 0.3:
        batch.delete()


def wait_for_rest(workers: list[Worker]) -> None:
    wait_until(lambda: is_at_rest() or any(worker.errors for worker in workers))
    assert [error for worker in workers for error in worker.errors] == []


def is_at_rest() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(UNFINISHED)
        return cursor.fetchone() is None


def delete_all(**which: Any) -> None:
    """Delete trees, also those of which a deletion met what somebody had locked."""
    wait_until(lambda: all(is_deleted(root) for root in Batch.objects.filter(parent=None, **which)))


def is_deleted(root: Batch) -> bool:
    with contextlib.suppress(BatchOpen):
        root.delete()
    return not Batch.objects.filter(pk=root.pk).exists()


def retry_all(rng: random.Random, workers: list[Worker]) -> None:
    """Retry and delete until nothing has failed."""
    for _ in range(8):
        for root in Batch.objects.filter(parent=None, deleting_at=None).order_by("?"):
            with contextlib.suppress(JobError, BatchOpen):
                if rng.random() < 0.1:
                    root.delete()
                else:
                    root.retry(cancelled=True)
        wait_for_rest(workers)
        if not Batch.objects.filter(tree_failed=True, deleting_at=None).exists():
            return
    raise AssertionError("something fails again and again")


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_people_do_every_tree_ends_as_the_rules_say(seed: int) -> None:
    rng, stop, before = random.Random(seed), threading.Event(), deadlocks()
    results: list[tuple[int, str]] = []
    requeued: set[int] = set()
    trees = [make_tree(rng) for _ in range(rng.randint(1, 4))]
    roots = [tree[0].pk for tree in trees]
    workers = [Worker(seed * 10 + number, stop, results) for number in range(rng.randint(1, 3))]
    for worker in workers:
        worker.start()
    try:
        people = [
            DjangoThread(partial(act, seed * 10 + number, roots, requeued))
            for number in range(rng.randint(1, 3))
        ]
        for part in rng.sample([part for tree in trees for part in tree], sum(map(len, trees))):
            time.sleep(rng.random() * 0.05)
            with contextlib.suppress(UnknownBatch, Batch.DoesNotExist):
                part.seal()
        for person in people:
            person.result()
        wait_for_rest(workers)
        delete_all(deleting_at__isnull=False)
        Controlled(results, requeued).check()
        for worker in workers:
            worker.fails = False
        retry_all(rng, workers)
        delete_all(deleting_at__isnull=False)
        Controlled(results, requeued).check()
        delete_all()
    finally:
        stop.set()
        for worker in workers:
            worker.join(10)
    assert deadlocks() == before
    for table in TABLES:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT count(*) FROM pgjobs_{table}")
            assert cursor.fetchone() == (0,), table
