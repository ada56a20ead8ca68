"""A lease keeper without the rest of its worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.jobs import Rescued
from django_pgjobs.worker.process.leases import LeaseKeeper
from django_pgjobs.worker.state import WorkerState
from tests.factories import make_worker
from tests.worker.support import make_options


class Kept:
    """A lease keeper with what it told its worker."""

    def __init__(self, connection: Any, **options: Any) -> None:
        self.state = WorkerState(make_options(**options), "test:1")
        self.state.worker_id = make_worker(lease_seconds=self.state.options.lease)
        self.dangers = 0
        self.stops = 0
        self.changes: list[bool] = []
        self.crashed: list[str] = []
        self.rescued: list[Rescued] = []
        self.keeper = LeaseKeeper(
            self.state,
            connection,
            register=self._register,
            on_rescued=self.rescued.extend,
            on_danger=self._note_danger,
            on_change=self._note_quiet,
            on_stop=self._note_stop,
            on_crash=self.crashed.append,
        )

    def _register(self, own: OwnConnection) -> None:
        with own.cursor() as cursor:
            cursor.execute(
                "INSERT INTO public.pgjobs_worker (name, host, pid, version, lease_expires_at,"
                " backends, slots, task_paths, excluded_queues, started_at, heartbeat_at, lost,"
                " listening)"
                " VALUES ('test:1', 'test', 1, '0', now() + '60 s', '{default}', 1, '{}', '{}',"
                " now(), now(), FALSE, FALSE) RETURNING id"
            )
            [(self.state.worker_id,)] = cursor.fetchall()

    def _note_danger(self) -> None:
        self.dangers += 1

    def _note_quiet(self) -> None:
        self.changes.append(self.state.quiet)

    def _note_stop(self) -> None:
        self.stops += 1


Keep = Callable[..., Kept]
