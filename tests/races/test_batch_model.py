"""Random trees, with workers that are cut off, and who adds and seals beside them: W1 to W4, W7.

Then the tables say what the rules say: every count, every job that was made of a result, and every
callback once.
"""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable
from functools import partial

import psycopg
import pytest
from django.db import connection, transaction
from psycopg.errors import SerializationFailure

from django_pgjobs import BatchSealed, workflow
from django_pgjobs.choosing import Rooms
from django_pgjobs.models import Batch, Job
from django_pgjobs.queries import batches, claims, jobs
from django_pgjobs.queries.claims import HEAD, ClaimedRow, Taker
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.claiming.outcome_statements import resolution, writings
from django_pgjobs.worker.running.calling import make_attempt
from django_pgjobs.worker.running.outcome import Kind, Outcome
from tests import tasks
from tests.factories import make_worker
from tests.helpers import connect, wait_until
from tests.races.support import DjangoThread
from tests.worker.support import DEFAULT, make_options

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.race]

ADDERS, WORKERS, TREES = 3, 4, 12
RESULTS = ("", "7", "[1,1,1]", "[]", '{"a":5}', "[null,2]")
OPTIONS = make_options()


class Phase:
    """In the second one nothing fails any more."""

    is_second = False


def outcome_of(row: ClaimedRow) -> Outcome:
    """Return how a job ends, the same each time."""
    if Phase.is_second:
        return Outcome(Kind.DONE, result=RESULTS[row.id % len(RESULTS)])
    number = zlib.crc32(f"{row.id} {row.args}".encode())
    if number % 100 < 5:
        return Outcome(Kind.FAIL)
    if number % 100 < 8:
        return Outcome(Kind.CANCEL)
    return Outcome(Kind.DONE, result=RESULTS[number // 100 % len(RESULTS)])


class Worker(threading.Thread):
    """Claims, finishes and settles as the pump does; it is cut off now and then."""

    def __init__(self, seed: int, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._random = random.Random(seed)
        self._stop_asked = stop
        self.own = OwnConnection("default", "test")
        self.errors: list[BaseException] = []
        self.cuts = 0

    def run(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self.errors.append(error)
        finally:
            self.own.close()
            connection.close()

    def _run(self) -> None:
        worker_id, held, left = make_worker(), list[ClaimedRow](), set[int]()
        while not self._stop_asked.is_set():
            cutting = self._random.random() < 0.04
            cutter = threading.Timer(self._random.random() * 0.004, self.own.cut)
            if cutting:
                cutter.start()
            try:
                held, left = self._turn(worker_id, held, left)
            except SerializationFailure:
                pass
            except psycopg.OperationalError:
                self.cuts += 1
                if cutting:
                    cutter.join()
                # As after a crash: what it held is for the rescue.
                self.own.close()
                self._lose(worker_id)
                worker_id, held, left = make_worker(), [], set()
            if cutting:
                cutter.join()
            if not held:
                time.sleep(self._random.random() * 0.02)

    def _turn(
        self, worker_id: int, held: list[ClaimedRow], left: set[int]
    ) -> tuple[list[ClaimedRow], set[int]]:
        ending = [(make_attempt(row, OPTIONS), outcome_of(row)) for row in held]
        self._random.shuffle(ending)
        sends = [writing.send for writing in writings(ending)]
        if ending:
            sends.append(resolution(ending))
        taker = Taker(
            worker_id=worker_id,
            worker_name="model",
            passed_over_paths=[],
            detailed=False,
            detailed_paths=[],
        )
        most = self._random.choice([1, 2, 5, 20])
        place = len(sends)
        rooms, floors = Rooms(most, most), {DEFAULT: HEAD}
        claim = partial(claims.send_claim, floors=floors, rooms=rooms, max_jobs=most, taker=taker)
        sends.append(claim)
        if not held or self._random.random() < 0.05:
            [rows] = self.own.round_trip([batches.send_changed])
            left |= {batch_id for (batch_id,) in rows}
        touched = left | {row.batch_id for row in held if row.batch_id is not None}
        if touched:
            sends.append(partial(batches.send_settlement, ids=touched))
        asked_at = time.monotonic()
        answers = self.own.round_trip(sends)
        missed = {row[0] for row in answers[-1] if row[1] is True} if touched else set()
        return claims.claimed_rows(answers[place], asked_at), missed

    def _lose(self, worker_id: int) -> None:
        while True:
            # Another one may move a row in between.
            with contextlib.suppress(SerializationFailure), self.own.cursor() as cursor:
                cursor.execute("DELETE FROM public.pgjobs_worker WHERE id = $1", [worker_id])
                jobs.rescue_jobs(cursor, max_jobs=1000, default_max_losses=1000)
                cursor.execute(
                    "UPDATE public.pgjobs_job_live SET due_at = NULL WHERE due_at IS NOT NULL"
                )
                break


def add_trees(seed: int) -> None:
    """Open trees, add to them in transactions of which some are rolled back, and seal them."""
    rng = random.Random(seed)
    for _ in range(TREES):
        with workflow("model", seal=False) as root:
            make_tree(rng, root)
        other = DjangoThread(partial(add_now_and_then, seed, root.pk, 2))
        add_now_and_then(rng.random(), root.pk, rng.randint(0, 3))
        with transaction.atomic():
            if rng.random() < 0.3:
                root.add(tasks.echo.s("last"))
            root.seal()
            time.sleep(rng.random() * 0.02)
        with pytest.raises(BatchSealed):
            root.add(tasks.echo.s("too late"))
        other.result()


def make_tree(rng: random.Random, root: Batch) -> None:
    made = [root]
    for _ in range(rng.randint(0, 5)):
        kind = rng.choice(["each", "each_item", "gather", "then", "join", "part"])
        above = rng.choice(made)
        if kind == "join":
            two = sorted(rng.sample(made, min(2, len(made))), key=lambda batch: batch.pk)
            how = rng.choice(["each", "gather", "then"])
            made.append(getattr(root.join(*two), how)(tasks.echo.s()))
        elif kind == "part":
            part = root.batch("part")
            part.add(*(tasks.echo.s(number) for number in range(rng.randint(0, 3))))
            part.seal()
        elif kind in ("gather", "then"):
            how = rng.choice(["cancel", "run"])
            made.append(getattr(above, kind)(tasks.echo.s(), after_failure=how))
        else:
            is_strict = rng.random() < 0.5
            made.append(getattr(above, kind)(tasks.echo.s(), skip_none=is_strict))
    for event in ("success", "failure", "complete"):
        getattr(rng.choice(made), f"on_{event}")(tasks.echo.s(event))
        getattr(root, f"on_{event}")(tasks.echo.s(event))


def add_now_and_then(seed: float, batch_id: int, times: int) -> None:
    rng = random.Random(seed)
    batch = Batch.objects.get(pk=batch_id)
    for _ in range(times):
        with contextlib.suppress(ZeroDivisionError, BatchSealed), transaction.atomic():
            batch.add_many(tasks.echo, [(number,) for number in range(rng.randint(1, 12))])
            time.sleep(rng.random() * 0.02)
            if rng.random() < 0.15:
                raise ZeroDivisionError


def retry_trees(seed: int) -> None:
    """Retry all trees, in another order than others do."""
    roots = list(Batch.objects.filter(parent=None))
    random.Random(seed).shuffle(roots)
    for root in roots:
        root.retry(cancelled=True)


def forget_half(open_again: Callable[..., None]) -> Callable[..., None]:
    """Return a function that leaves the counting to workers half of the time."""
    rng = random.Random(1)
    return lambda cursor, ids: open_again(cursor, ids) if rng.random() < 0.5 else None


# What the rules say


class Rules:
    """All batches and jobs, and what is wrong with them."""

    def __init__(self) -> None:
        self.batches = {batch.pk: batch for batch in Batch.objects.all()}
        self.jobs: dict[int | None, list[Job]] = {}
        for job in Job.objects.order_by("pk"):
            self.jobs.setdefault(job.batch_id, []).append(job)
        self.edges: dict[int, list[int]] = {}
        with connection.cursor() as cursor:
            cursor.execute("SELECT batch_id, waits_for FROM pgjobs_batch_edge ORDER BY 1, 2")
            for batch_id, waits_for in cursor.fetchall():
                self.edges.setdefault(batch_id, []).append(waits_for)

    def of(self, batch: Batch, *statuses: str) -> list[Job]:
        """Return the jobs of a batch that ended so."""
        return [job for job in self.jobs.get(batch.pk, []) if job.status in statuses]

    def has_failed(self, batch: Batch) -> bool:
        """Has a job of the tree failed or been cancelled?"""
        below = [other for other in self.batches.values() if other.parent_id == batch.pk]
        return bool(self.of(batch, "failed", "cancelled")) or any(map(self.has_failed, below))

    def fails_below(self, batch: Batch) -> bool:
        """Does it carry a failure down to what follows it?"""
        parts = [
            other
            for other in self.batches.values()
            if other.parent_id == batch.pk and other.follows is None
        ]
        own = bool(self.of(batch, "failed", "cancelled")) or any(map(self.has_failed, parts))
        return own or (self.fails_above(batch) and not batch.runs_after_failure)

    def fails_above(self, batch: Batch) -> bool:
        """Has something failed that it follows?"""
        above = self.edges.get(batch.pk, [])
        return any(self.fails_below(self.batches[each]) for each in above)

    def expected(self, batch: Batch) -> Counter[tuple[int, str]]:
        """Return source and arguments of the jobs that were to be made of what it follows."""
        above = self.edges[batch.pk]
        if batch.follows in ("gather", "completion"):
            if self.fails_above(batch) and not batch.runs_after_failure:
                return Counter()
            args = {"results_of": above, "more": []} if batch.follows == "gather" else []
            return Counter([(0, json.dumps(args))])
        made: Counter[tuple[int, str]] = Counter()
        for each in above:
            for job in self.of(self.batches[each], "successful"):
                is_list = batch.follows == "each item" and isinstance(job.result, list)
                values = job.result if is_list else [job.result]
                if batch.follows == "each item" and job.result is None:
                    values = []
                if batch.skips_none:
                    values = [value for value in values if value is not None]
                made.update((job.pk, json.dumps([value])) for value in values)
        return made

    def calls(self, batch: Batch) -> Counter[str]:
        """Return the callbacks that were to be enqueued."""
        skipped = (
            batch.follows in ("gather", "completion")
            and self.fails_above(batch)
            and not batch.runs_after_failure
        )
        event = "failure" if self.has_failed(batch) or skipped else "success"
        return Counter(
            call["event"] for call in batch.callbacks if call["event"] in ("complete", event)
        )

    def check_calls(self, batch: Batch, called: Counter[str]) -> None:
        """Fail unless each completion has called back."""
        if not Phase.is_second:
            assert batch.completions == 1, batch
            assert called == self.calls(batch), batch
            return
        times = Counter(call["event"] for call in batch.callbacks)
        assert called["complete"] == times["complete"] * batch.completions, batch
        for event in ("success", "failure"):
            assert times[event] or not called[event], batch
        assert called["success"] >= self.calls(batch)["success"], batch

    def check_made(self, batch: Batch) -> None:
        """Fail unless its jobs are those of what it follows."""
        found = self.jobs.get(batch.pk, [])
        made = Counter((job.source_id, json.dumps(job.args)) for job in found)
        expected = self.expected(batch)
        if Phase.is_second and batch.follows in ("gather", "completion"):
            # Once more for each time that what it follows was complete again.
            assert made.keys() == expected.keys(), batch
            return
        assert not expected - made, batch
        # What runs again when what it gathers has changed leaves the jobs of its result before.
        again = {
            job.pk
            for above in self.edges[batch.pk]
            for job in self.jobs.get(above, ())
            if Phase.is_second and job.source_id == 0
        }
        assert {source for source, _args in made - expected} <= again, batch

    def check(self) -> None:
        """Fail with the first batch that is not as it should be."""
        called: dict[int, Counter[str]] = {}
        for job in self.jobs.get(None, []):
            called.setdefault(job.args[0], Counter())[job.args[1]] += 1
        for batch in self.batches.values():
            counts = batch.successful, batch.failed, batch.cancelled
            assert counts == tuple(
                len(self.of(batch, status)) for status in ("successful", "failed", "cancelled")
            ), batch
            assert batch.jobs == sum(counts) == len(self.jobs.get(batch.pk, [])), batch
            assert batch.completed_at and batch.tree_completed_at, batch
            assert (batch.open_predecessors, batch.open_parts, batch.open_children) == (0, 0, 0)
            self.check_calls(batch, called.get(batch.pk, Counter()))
            if batch.follows is not None:
                self.check_made(batch)
            for each in self.edges.get(batch.pk, []):
                assert self.batches[each].completed_at <= batch.completed_at


def deadlocks() -> int:
    with connect() as observer:
        row = observer.execute(
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
    assert row is not None
    return int(row[0])


def is_over() -> bool:
    return not (
        Batch.objects.filter(tree_completed_at=None).exists() or Job.objects.unfinished().exists()
    )


@pytest.mark.slow
def test_every_tree_ends_as_the_rules_say(
    in_thread: Callable[..., DjangoThread], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, stop = deadlocks(), threading.Event()
    workers = [Worker(seed, stop) for seed in range(WORKERS)]
    for worker in workers:
        worker.start()
    try:
        adders = [in_thread(partial(add_trees, seed)) for seed in range(ADDERS)]
        for adder in adders:
            adder.join(60)
            adder.result()
        wait_until(is_over, timeout=60)
        Rules().check()
        # W10.
        Phase.is_second = True
        of_failed = Batch.objects.filter(tree_failed=True).values_list("pk", flat=True)
        failed = Batch.objects.filter(pk__in=list(of_failed))
        monkeypatch.setattr(batches, "open_again", forget_half(batches.open_again))
        retriers = [in_thread(partial(retry_trees, seed)) for seed in range(ADDERS)]
        for retrier in retriers:
            retrier.join(60)
            retrier.result()
        wait_until(is_over, timeout=60)
        Rules().check()
        assert not Batch.objects.filter(tree_failed=True).exists()
        assert failed.exists() and not failed.filter(completions=1).exists()
    finally:
        Phase.is_second = False
        stop.set()
        for worker in workers:
            worker.join(10)
    assert [error for worker in workers for error in worker.errors] == []
    assert deadlocks() == before
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pgjobs_batch_change")
        assert cursor.fetchone() == (0,)
    assert sum(worker.cuts for worker in workers) > 0
