"""Thousands of random steps: what is claimed is what a model in plain Python lets start.

After each claim every claimed job may start by the model, one after the other, and a claim of
one job takes one of the highest priority there is. Nothing that may start is left out: when a
claim and the next one find nothing, the model finds nothing either. (One claim alone may take
less than it could: a lane gives no more than its share of a batch, which others may not use up,
and those that a key or a queue holds back have taken places in the list of what may start.)
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Any

import pytest
from django.db import connection as django_connection
from psycopg import sql

from django_pgjobs import cancel, requeue, reschedule
from django_pgjobs.models import ConcurrencyLimit, Pause, QueueSettings, RateLimit
from django_pgjobs.queries import jobs
from django_pgjobs.queries.claims import ClaimedRow, Group, Segment
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.running.calling import make_attempt
from django_pgjobs.worker.running.outcome import Kind, Outcome
from tests.factories import count_jobs, make_job, make_worker
from tests.worker.keyed import keyed_claim
from tests.worker.model import BLOCKED, PLANNED, PUT_OFF, Model, ModelJob
from tests.worker.support import make_options, write

pytestmark = pytest.mark.django_db(transaction=True)

STEPS = 600
HOUR = 3600.0
LATER = timedelta(hours=1)
LATER_IN_SQL = sql.SQL("clock_timestamp() + interval '1 hour'")
QUEUES = ("default", "mail", "slow")
TASKS = ("tests.tasks.add", "tests.tasks.echo")
# Key -> its jobs' limit, do they skip waiting ones, the key of their rate limit, its cost.
KEYS: dict[str | None, tuple[int | None, bool, str | None, int]] = {
    None: (None, False, None, 1),
    "one:1": (None, False, None, 1),
    "one:2": (1, False, None, 1),
    "one:%": (1, False, "api:a", 1),
    "skip:1": (1, True, None, 1),
    "many:1": (3, False, None, 1),
    "many:2": (5, True, "api:b", 2),
}
PATTERNS = ("one:1", "one:*", "*", "many:*", "many:2", "s*p:1")
PAUSES = (
    *(("queue", queue) for queue in QUEUES),
    *(("task", path) for path in TASKS),
    *(("key", pattern) for pattern in ("one:1", "many:*", "one:_", "one:%")),
)


class Drive:
    """Does each step both to the database and to the model."""

    def __init__(self, own: OwnConnection, seed: int) -> None:
        self._own = own
        self._random = random.Random(seed)
        self.model = Model(tokens={"api:a": 3, "api:b": 4}, bursts={"api:a": 3, "api:b": 4})
        RateLimit.objects.create(name="api", count=3, period=HOUR, burst=3)
        RateLimit.objects.create(name="api:b", count=4, period=HOUR, burst=4)
        self._workers = {make_worker(lease_seconds=HOUR): {} for _ in range(2)}
        self._rows: dict[int, ClaimedRow] = {}
        self.steps: deque[str] = deque(maxlen=25)

    def take_step(self) -> None:
        """Do something at random."""
        weights = {
            self.enqueue: 10,
            self.claim: 14,
            self.finish: 14,
            self.let_time_pass: 5,
            self.cancel: 2,
            self.requeue: 1,
            self.reschedule: 2,
            self.pause_or_resume: 3,
            self.change_limit: 3,
            self.change_queue: 2,
            self.lose_worker: 1,
        }
        [step] = self._random.choices(list(weights), list(weights.values()))
        step()

    # Steps

    def enqueue(self) -> None:
        key = self._random.choice(list(KEYS))
        limit, skips, rate, cost = KEYS[key]
        for _ in range(self._random.randint(1, 4)):
            job = ModelJob(
                id=0,
                key=key,
                limit=limit,
                skips=skips,
                queue=self._random.choice(QUEUES),
                priority=self._random.choice([-5, 0, 0, 0, 5]),
                task_path=self._random.choice(TASKS),
                is_async=self._random.choice([False, True]),
                rate=rate,
                cost=cost,
                waits=self._random.choice(["", "", "", PLANNED, BLOCKED]),
            )
            job.id = self._insert(job)
            self.model.jobs[job.id] = job
            self._note(f"enqueue {job}")

    def claim(self) -> None:
        worker_id = self._random.choice(list(self._workers))
        wanted = self._random.choice([1, 1, 2, 3, 10, 60])
        unknown = self._random.choice([(), (), (TASKS[1],)])
        caps = self._random.choice([{}, {}, {"default": 1}, {"mail": 0, "slow": 2}])
        rooms = self._random.choice([(wanted, wanted), (wanted, 0), (0, wanted), (1, wanted)])
        in_vain = 0
        while in_vain < 2:
            rows = keyed_claim(
                self._own,
                worker_id,
                wanted,
                passed_over_paths=unknown,
                caps=caps,
                segments=self._random.choice([None, self._segments()]),
                rooms=rooms,
            )
            ids = [row.id for row in rows]
            self._note(f"claim {wanted} of {rooms} without {unknown} within {caps}: {ids}")
            self._check(rows, wanted, unknown, caps, rooms)
            in_vain = 0 if rows else in_vain + 1
            if rows and (caps or self._random.random() < 0.6):
                return
        left = self.model.startable(unknown=unknown, caps=caps, rooms=rooms)
        assert not left, f"left out: {left}"

    def finish(self) -> None:
        for job in self._some("running", 5):
            kind, delay, waits = self._random.choice(
                [
                    (Kind.DONE, None, ""),
                    (Kind.DONE, None, ""),
                    (Kind.FAIL, None, ""),
                    (Kind.RETRY, HOUR, PUT_OFF),
                    (Kind.RETRY, 0.0, ""),
                    (Kind.SNOOZE, HOUR, PUT_OFF),
                    (Kind.RELEASE, None, ""),
                ]
            )
            self._note(f"{kind.value} {job} {waits}")
            attempt = make_attempt(self._rows.pop(job.id), make_options())
            assert write(self._own, (attempt, Outcome(kind, delay=delay))) == {job.id}
            if kind in (Kind.DONE, Kind.FAIL):
                job.status = "done"
            else:
                self.model.return_job(job, waits)
                # Its task is none, whatever its row said.
                job.is_async = False

    def let_time_pass(self) -> None:
        """Some jobs are due, others are not blocked any more, a token has come back."""
        for job in self._some("ready", 6, waits=True):
            self._note(f"the time of {job} has come")
            self._execute(
                "UPDATE pgjobs_job SET hold = NULL, due_at = CASE WHEN due_at IS NOT NULL"
                " THEN clock_timestamp() END WHERE id = %s",
                job.id,
            )
            job.waits = ""
        with self._own.cursor() as cursor:
            jobs.send_promotion(cursor, max_jobs=1_000)
        rate = self._random.choice(list(self.model.tokens))
        self._note(f"a token of {rate} comes back")
        self._execute(
            "UPDATE pgjobs_rate_state SET taken_since ="
            " ARRAY(SELECT since - 1 FROM unnest(taken_since) AS since) WHERE key = %s",
            rate,
        )
        self.model.tokens[rate] = min(self.model.tokens[rate] + 1, self.model.bursts[rate])

    def cancel(self) -> None:
        for job in self._some(self._random.choice(["ready", "running"]), 1):
            self._note(f"cancel {job}")
            assert cancel(job.id)
            job.is_asked_to_end = True
            if job.status == "ready":
                job.status = "done"

    def requeue(self) -> None:
        for job in self._some("done", 1):
            self._note(f"requeue {job}")
            assert requeue(job.id)
            job.status, job.waits, job.is_asked_to_end, job.losses = "ready", "", False, 0

    def reschedule(self) -> None:
        for job in self._some("ready", 1):
            if job.waits != BLOCKED:
                job.waits = self._random.choice(["", PLANNED])
                self._note(f"reschedule {job} {job.waits}")
                assert reschedule(job.id, LATER if job.waits else None)

    def pause_or_resume(self) -> None:
        target = self._random.choice([*PAUSES, *self.model.pauses, *self.model.pauses])
        self._note(f"pause or resume {target}")
        self.model.pauses ^= {target}
        if target in self.model.pauses:
            Pause.objects.create(kind=target[0], name=target[1])
        else:
            Pause.objects.get(kind=target[0], name=target[1]).delete()

    def change_limit(self) -> None:
        pattern, most = self._random.choice(PATTERNS), self._random.choice([0, 0, 1, 2, 4])
        self._note(f"limit of {pattern}: {most}")
        ConcurrencyLimit.objects.filter(pattern=pattern).delete()
        self.model.limits.pop(pattern, None)
        if most:
            weight = self._random.choice([1, 1, 3])
            ConcurrencyLimit.objects.create(pattern=pattern, max_running=most, weight=weight)
            self.model.limits[pattern] = most

    def change_queue(self) -> None:
        queue, most = self._random.choice(QUEUES), self._random.choice([None, None, 1, 3])
        boost = self._random.choice([0, 0, 7, -7])
        self._note(f"queue {queue}: at most {most}, boost {boost}")
        QueueSettings.objects.update_or_create(
            queue_name=queue, defaults={"max_running": most, "boost": boost}
        )
        self.model.queues[queue] = (most, boost)

    def lose_worker(self) -> None:
        lost = self._random.choice(list(self._workers))
        held = self._workers.pop(lost)
        self._workers[make_worker(lease_seconds=HOUR)] = {}
        self._execute(
            "UPDATE pgjobs_worker SET lease_expires_at = clock_timestamp() - interval '1 s'"
            " WHERE id = %s",
            lost,
        )
        self._note(f"worker {lost} is lost with {[job for job in held if job in self._rows]}")
        with self._own.cursor() as cursor:
            rescued = jobs.rescue_jobs(cursor, max_jobs=1_000, default_max_losses=1_000_000)
        for row in rescued:
            job = self.model.jobs[row.id]
            del self._rows[row.id]
            is_put_off = job.losses > 0 or len(rescued) > 1
            self.model.return_job(job, PUT_OFF if is_put_off and job.status else "")
            job.losses += 1
            # The pause after such a loss is short: a slow machine could see its end.
            self._execute(
                "UPDATE pgjobs_job SET due_at = due_at + interval '1 hour' WHERE id = %s", row.id
            )

    def drain(self) -> None:
        """Take all controls away and run what is left."""
        for table in (Pause, ConcurrencyLimit, QueueSettings):
            table.objects.all().delete()
        self.model.pauses, self.model.limits, self.model.queues = set(), {}, {}
        while self.model.of("ready") or self.model.of("running"):
            self._note("drain")
            self.claim()
            self.finish()
            self.let_time_pass()

    # Helpers

    def _check(
        self,
        rows: list[ClaimedRow],
        wanted: int,
        unknown: tuple[str, ...] = (),
        caps: Mapping[str, int] = MappingProxyType({}),
        rooms: tuple[int, int] = (1, 1),
    ) -> None:
        assert len(rows) <= wanted
        for kind, room in enumerate(rooms):
            assert sum(row.is_async == kind for row in rows) <= room
        startable = self.model.startable(unknown=unknown, caps=caps, rooms=rooms)
        best = max(startable, key=self.model.rank, default=None)
        for row in sorted(rows, key=lambda row: row.id):
            job = self.model.jobs[row.id]
            obstacle = self.model.obstacle(job)
            assert not obstacle, f"claimed {job}, but {obstacle}"
            assert row.task_path not in unknown
            self.model.start(job)
            self._rows[row.id] = row
            assert wanted > 1 or best is None or self.model.rank(job) >= self.model.rank(best), (
                f"claimed {job} before {best}"
            )
        for queue, most in caps.items():
            assert sum(row.queue_name == queue for row in rows) <= most

    def _segments(self) -> list[Segment]:
        """Return all groups that have jobs with keys, each from another lane on."""
        model = self.model
        found = {
            (-model.rank(job), Group("default", job.queue, -job.priority, job.is_async))
            for job in model.of("ready")
            if job.key and not job.waits
        }
        segments = []
        for _, group in sorted(found):
            after = self._random.choice([f"{key}\n" for key in KEYS if key])
            segments += [Segment.behind(group, after), Segment(group, "", after)]
        return segments

    def _some(self, status: str, most: int, *, waits: bool = False) -> list[ModelJob]:
        found = [job for job in self.model.of(status) if job.waits or not waits]
        return self._random.sample(found, min(len(found), self._random.randint(1, most)))

    def _insert(self, job: ModelJob) -> int:
        columns: dict[str, Any] = {}
        if job.waits == PLANNED:
            columns["run_after"] = LATER_IN_SQL
        if job.waits == BLOCKED:
            columns["hold"] = "dependencies"
        return make_job(
            job.task_path,
            concurrency_key=job.key,
            concurrency_limit=job.limit,
            skips_waiting=job.skips,
            queue_name=job.queue,
            priority=job.priority,
            is_async=job.is_async,
            rate_limit_keys=job.rate,
            rate_cost=job.cost,
            **columns,
        )

    def _execute(self, query: str, *params: object) -> None:
        with django_connection.cursor() as cursor:
            cursor.execute(query, params)

    def _note(self, text: str) -> None:
        self.steps.append(text)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_what_is_claimed_is_what_the_model_lets_start(own: OwnConnection, seed: int) -> None:
    """S1.9-S1.15: four histories, each other than the last."""
    drive = Drive(own, seed)
    try:
        for _ in range(STEPS):
            drive.take_step()
        drive.drain()
    except BaseException as error:
        error.add_note("\n".join([f"seed {seed}, the last steps:", *drive.steps]))
        raise
    finished = count_jobs() - count_jobs(status="ready") - count_jobs(status="running")
    assert finished == len(drive.model.of("done")) == len(drive.model.jobs)
