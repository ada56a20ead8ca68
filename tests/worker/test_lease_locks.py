"""Locks of other people on what is no part of a lease cost nobody his own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_pgjobs.models import Stack
from django_pgjobs.queries import stacks
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.process.building import build_connections
from tests import tasks
from tests.factories import get_job, get_worker, make_running_job, make_worker
from tests.helpers import wait_until
from tests.worker.keeping import Keep
from tests.worker.support import StartThread, make_options

pytestmark = pytest.mark.django_db(transaction=True)


@contextlib.contextmanager
def locked(*tables: str) -> Iterator[None]:
    """Let nobody else read or write these tables, as VACUUM FULL or a project's migration."""
    with contextlib.closing(OwnConnection("default", "test")) as other:
        session = other.open()
        # Or the server would end it, and free the tables, after a minute.
        session.execute("SET idle_in_transaction_session_timeout = 0")
        session.execute("BEGIN")
        for table in tables:
            session.execute(f"LOCK TABLE public.{table}")
        yield
        session.execute("ROLLBACK")


@pytest.mark.slow
def test_locked_statistics_and_stacks_keep_nobody_from_lease_and_rescue(keep: Keep) -> None:
    """Or a lock on what only shows something lets jobs run twice."""
    job = make_running_job(make_worker(lease_seconds=-1))
    with locked("pgjobs_statistic", "pgjobs_statistic_sum", "pgjobs_stack", "pgjobs_queue_sample"):
        own = build_connections(make_options(lease=3.0))["lease"]
        kept = keep(own, lease=3.0)
        wait_until(lambda: get_job(job.id).status == "ready")
        first = get_worker(kept.state.worker_id).heartbeat_at
        wait_until(lambda: get_worker(kept.state.worker_id).heartbeat_at > first)
    assert [each.id for each in kept.rescued] == [job.id]
    assert kept.dangers == 0


def test_locked_statistics_keep_nobody_from_running_jobs(start_thread: StartThread) -> None:
    """Outcomes of all kinds are written: they travel with the next claim."""
    start_thread()
    with locked("pgjobs_statistic", "pgjobs_statistic_sum", "pgjobs_queue_sample"):
        good, bad = tasks.add.enqueue(1, 2), tasks.fail.enqueue()
        wait_until(lambda: get_job(good.id).status == "successful")
        wait_until(lambda: get_job(bad.id).status == "failed")
        assert len(get_job(bad.id).errors) == 3


def test_a_locked_question_is_passed_over(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    for real in (stacks.list_wanted, stacks.write_stack):

        def note(*given: Any, real: Callable[..., Any] = real) -> Any:
            result = real(*given)
            done.append(real.__name__)
            return result

        monkeypatch.setattr(stacks, real.__name__, note)
    kept = keep(lease=3600.0)
    # Once in a turn; the next turn is taken when somebody wakes the keeper.
    wait_until(lambda: done == ["list_wanted"])
    job = make_running_job(kept.state.worker_id)
    with contextlib.closing(OwnConnection("default", "test")) as other:
        Stack.objects.create(job_id=job.id, claim=job.claim, worker_id=kept.state.worker_id)
        session = other.open()
        session.execute("BEGIN")
        session.execute("SELECT FROM public.pgjobs_stack FOR UPDATE")
        kept.keeper.wake()
        wait_until(lambda: "write_stack" in done)
        assert Stack.objects.get().written_at is None
        session.execute("ROLLBACK")
    kept.keeper.wake()
    wait_until(lambda: Stack.objects.get().written_at is not None)


@pytest.mark.parametrize(("lease", "timeout"), [(10.0, "500ms"), (60.0, "3s"), (3600.0, "10s")])
def test_the_keeper_waits_for_locks_for_a_small_part_of_its_lease(
    lease: float, timeout: str
) -> None:
    """Far below the time after which a renewal without an answer is cut."""
    own = build_connections(make_options(lease=lease))["lease"]
    with contextlib.closing(own), own.cursor() as cursor:
        cursor.execute("SHOW lock_timeout")
        assert cursor.fetchall() == [(timeout,)]
