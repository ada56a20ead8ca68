"""What the roles of one worker process share."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from django_pgjobs.queries.claims import Lane, ReadyPlace
from django_pgjobs.worker.attempt import Attempt

# The roles that keep a connection of their own while their process has jobs.
CONNECTED_ROLES = ("pump", "upkeep", "lease")


@dataclass(frozen=True, kw_only=True)
class Options:
    """How one worker process is to behave; durations are seconds."""

    database: str
    backends: tuple[str, ...]
    queues: tuple[str, ...] | None = None
    excluded_queues: tuple[str, ...] = ()
    # The most slots that the jobs of a queue may take here.
    queue_slots: Mapping[str, int] = field(default_factory=dict)
    concurrency: int
    async_concurrency: int
    lease: float
    poll_interval: float
    shutdown_timeout: float
    timeout_grace: float
    retention: float | None
    failed_retention: float | None
    max_attempts: int
    max_losses: int
    max_payload_bytes: int
    listen: bool
    unknown_fails: bool
    ageing: float | None = None
    drain: bool = False
    # Does it enqueue what schedules are due?
    schedules: bool = False
    # Most jobs of one claim, and most that are claimed ahead of free slots.
    claim_limit: int | None = None
    max_jobs: int | None = None
    max_time: float | None = None
    max_memory_mib: int | None = None
    name: str = ""
    # Where it tells its health over HTTP, and the file that it touches while it is live.
    health_port: int | None = None
    health_host: str = "127.0.0.1"
    health_file: str = ""

    @property
    def serving(self) -> tuple[object, ...]:
        """What workers have in common that serve the same jobs."""
        queues = None if self.queues is None else sorted(self.queues)
        return sorted(self.backends), queues, sorted(self.excluded_queues)

    def serves(self, lane: Lane | ReadyPlace) -> bool:
        """Does the worker run the jobs of this backend and queue?"""
        if lane.backend not in self.backends or lane.queue_name in self.excluded_queues:
            return False
        return self.queues is None or lane.queue_name in self.queues

    def count_connections(self, jobs_database: str) -> int:
        """Return how many connections a process opens to the worker's database.

        Those of threads that run jobs go to *jobs_database*, which may be behind a pooler.
        """
        threads = self.concurrency if jobs_database == self.database else 0
        return len(CONNECTED_ROLES) + threads


@dataclass
class WorkerState:
    """The worker's identity and the attempts it holds, from claim to stored outcome.

    `held` is the truth about what this process owns: a job that the table says it runs and that is
    not here was claimed without an answer.
    """

    options: Options
    name: str
    worker_id: int = 0
    held: dict[int, Attempt] = field(default_factory=dict)
    # Tasks whose jobs are not for this worker: only those over HTTP may run them, or only others.
    paths_of_others: frozenset[str] = frozenset()
    # Jobs that have ended here and stay running in the table: the server refuses their outcome for
    # now, or they may have killed this worker. The pump adds them.
    unwritable: set[int] = field(default_factory=set)
    # Tasks of which no more jobs are claimed, because so many of their outcomes are refused.
    refused_paths: set[str] = field(default_factory=set)
    stopping: bool = False
    # Somebody asked the worker, by its row in the table, to claim nothing for now.
    quiet: bool = False
    # From when on, by time.monotonic(), the lease may soon be over: then it claims nothing.
    danger_at: float = math.inf
    finished_jobs: int = 0
    # Held by the pump from sending a claim until its jobs are in `held`, and by the upkeep while
    # it returns what is not held.
    claiming: threading.Lock = field(default_factory=threading.Lock)

    def holds(self, attempt: Attempt) -> bool:
        """Is the attempt held, and not settled?"""
        return self.held.get(attempt.id) is attempt

    def let_go(self, attempt: Attempt) -> None:
        """Note that the attempt's outcome is settled; a later attempt of the job stays held."""
        if self.holds(attempt):
            del self.held[attempt.id]
