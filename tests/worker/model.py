"""A model of control in plain Python: which jobs may start, given everything else.

It says the same as `list_heads.sql`, `choosing.py` and `docs`, without SQL, lanes or batches: it
looks at all jobs for each answer. All jobs of a key have the same options, as those of a task do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

# Why a job that is ready cannot be claimed yet.
PLANNED = "planned for later from the start"
PUT_OFF = "put off after an attempt"
BLOCKED = "blocked by another job"


@dataclass
class ModelJob:
    """A job, as far as it matters to control; *status* is "done" for all that have finished."""

    id: int
    key: str | None = None
    limit: int | None = None
    skips: bool = False
    queue: str = "default"
    priority: int = 0
    task_path: str = "tests.tasks.add"
    is_async: bool = False
    rate: str | None = None
    cost: int = 1
    status: str = "ready"
    waits: str = ""
    is_asked_to_end: bool = False
    losses: int = 0

    def __str__(self) -> str:
        return f"job {self.id} of {self.key} in {self.queue}"


@dataclass
class Model:
    """All jobs, and the rows that control them."""

    jobs: dict[int, ModelJob] = field(default_factory=dict)
    # Pattern of keys -> how many at a time.
    limits: dict[str, int] = field(default_factory=dict)
    # Queue -> (how many at a time or None, boost).
    queues: dict[str, tuple[int | None, int]] = field(default_factory=dict)
    # Kind and name, as in the table.
    pauses: set[tuple[str, str]] = field(default_factory=set)
    # Key of a rate limit -> what is left, and what it holds when it is full.
    tokens: dict[str, int] = field(default_factory=dict)
    bursts: dict[str, int] = field(default_factory=dict)

    def of(self, status: str) -> list[ModelJob]:
        """Return the jobs that have a status."""
        return [job for job in self.jobs.values() if job.status == status]

    def startable(
        self,
        *,
        unknown: Iterable[str] = (),
        caps: Mapping[str, int] | None = None,
        rooms: Sequence[int] = (1, 1),
    ) -> list[ModelJob]:
        """Return the jobs that may start now, each by itself, at a worker like this."""
        return [
            job
            for job in self.of("ready")
            if job.task_path not in unknown
            and (caps or {}).get(job.queue, 1) > 0
            and rooms[job.is_async] > 0
            and not self.obstacle(job)
        ]

    def rank(self, job: ModelJob) -> int:
        """Return the number by which jobs come first: the higher the sooner."""
        return job.priority + self.queues.get(job.queue, (None, 0))[1]

    def obstacle(self, job: ModelJob) -> str:
        """Return why a job may not start now; empty if it may."""
        if job.status != "ready":
            return f"it is {job.status}"
        return (
            job.waits
            or self._pause_of(job)
            or self._full_queue_of(job)
            or self._full_key_of(job)
            or self._older_job_of(job)
            or self._used_up_rate_of(job)
        )

    def start(self, job: ModelJob) -> None:
        """Let a job run."""
        job.status = "running"
        if job.rate is not None:
            self.tokens[job.rate] -= job.cost

    def return_job(self, job: ModelJob, waits: str = "") -> None:
        """Let a job that ran be ready again; one that was to be cancelled has ended."""
        job.status = "done" if job.is_asked_to_end else "ready"
        job.waits = waits

    def limit_of(self, job: ModelJob) -> int:
        """Return how many jobs of the key of a job may run at a time."""
        assert job.key is not None
        if job.key in self.limits:
            return self.limits[job.key]
        for pattern in sorted(self.limits, key=len, reverse=True):
            if "*" in pattern and matches(pattern, job.key):
                return self.limits[pattern]
        return job.limit or 1

    def _pause_of(self, job: ModelJob) -> str:
        for kind, name in self.pauses:
            if (
                (kind == "queue" and name == job.queue)
                or (kind == "task" and name == job.task_path)
                or (kind == "key" and job.key is not None and matches(name, job.key))
            ):
                return f"{kind} {name} is paused"
        return ""

    def _full_queue_of(self, job: ModelJob) -> str:
        most = self.queues.get(job.queue, (None, 0))[0]
        running = sum(other.queue == job.queue for other in self.of("running"))
        return f"{running} of {most} run in {job.queue}" if most and running >= most else ""

    def _full_key_of(self, job: ModelJob) -> str:
        if job.key is None:
            return ""
        running = [other.id for other in self.of("running") if other.key == job.key]
        most = self.limit_of(job)
        return f"of {most} of {job.key} run {running}" if len(running) >= most else ""

    def _older_job_of(self, job: ModelJob) -> str:
        if job.key is None or job.skips or self.limit_of(job) > 1:
            return ""
        for other in self.of("ready"):
            is_in_line = other.waits in ("", PUT_OFF)
            if other.key == job.key and other.id < job.id and is_in_line:
                return f"{other} comes first"
        return ""

    def _used_up_rate_of(self, job: ModelJob) -> str:
        if job.rate is None or self.tokens[job.rate] >= job.cost:
            return ""
        return f"{job.rate} has {self.tokens[job.rate]} left"


def matches(pattern: str, key: str) -> bool:
    """Is *key* what *pattern* stands for? An asterisk is any text, nothing else is special."""
    parts = [re.escape(part) for part in pattern.split("*")]
    return re.fullmatch(".*".join(parts), key) is not None
