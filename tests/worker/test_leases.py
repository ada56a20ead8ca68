"""The lease keeper: renews, notices what it lost, and rescues what others lost."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from django.db import connection

from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.process import leases
from tests.factories import (
    count_jobs,
    get_job,
    get_worker,
    make_jobs,
    make_running_job,
    make_worker,
)
from tests.helpers import wait_until
from tests.worker.keeping import Keep

pytestmark = pytest.mark.django_db(transaction=True)


class BrokenConnection:
    """A connection to a server that is down until `works`."""

    def __init__(self, own: OwnConnection) -> None:
        self.own = own
        self.works = False
        self.calls = 0

    @contextlib.contextmanager
    def cursor(self) -> Iterator[Any]:
        self.calls += 1
        if not self.works:
            raise psycopg.OperationalError("the server is down")
        with self.own.cursor() as cursor:
            yield cursor

    def close_if_broken(self) -> None:
        self.own.close_if_broken()

    def close(self) -> None:
        self.own.close()


def expire(worker_id: int) -> None:
    """Let the lease of a worker be over."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgjobs_worker SET lease_expires_at = now() - interval '1 s' WHERE id = %s",
            [worker_id],
        )


@pytest.mark.slow
def test_the_lease_is_renewed_every_third_of_it(keep: Keep) -> None:
    """S2.20."""
    kept = keep(lease=2.0)
    first = get_worker(kept.state.worker_id)
    wait_until(
        lambda: (
            get_worker(kept.state.worker_id).heartbeat_at.timestamp()
            > first.lease_expires_at.timestamp()
        ),
        message="the worker does not outlive its first lease",
    )
    assert kept.dangers == 0


def test_the_keeper_says_goodbye_at_the_end(keep: Keep) -> None:
    kept = keep()
    kept.keeper.stop()
    assert kept.keeper.join(15)
    row = get_worker(kept.state.worker_id)
    assert row.ended_at is not None
    assert not row.lost


@pytest.mark.parametrize("loss", ["expired", "deleted"])
def test_a_worker_that_lost_its_lease_enters_anew_and_gives_up_its_jobs(
    keep: Keep, loss: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Under another id, so that nothing of before can be written."""
    kept = keep()
    wait_until(lambda: kept.keeper.is_leader)
    old = kept.state.worker_id
    if loss == "expired":
        expire(old)
    else:
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM pgjobs_worker WHERE id = %s", [old])
    kept.keeper.wake()
    wait_until(lambda: kept.state.worker_id != old)
    assert kept.dangers == 1
    assert get_worker(kept.state.worker_id).ended_at is None
    assert "lost its lease" in caplog.text


def test_a_worker_that_lost_its_lease_gives_up_its_jobs_before_it_can_enter_anew(
    keep: Keep,
) -> None:
    """They may run elsewhere by now, however long the server refuses its row."""
    kept = keep()
    wait_until(lambda: kept.keeper.is_leader)

    def refuse(own: OwnConnection) -> None:
        raise psycopg.errors.RaiseException("the row is refused")

    kept.keeper._register = refuse
    expire(kept.state.worker_id)
    kept.keeper.wake()
    wait_until(lambda: kept.keeper.is_failing)
    assert kept.dangers >= 1


def test_a_lease_that_is_entered_anew_counts_from_before_that(keep: Keep) -> None:
    """The answer may come late, and the server has counted meanwhile."""
    kept = keep()
    wait_until(lambda: kept.keeper.is_leader)
    asked: list[float] = []
    counted: list[float] = []

    def register(own: OwnConnection) -> None:
        asked.append(time.monotonic())
        kept._register(own)

    kept.keeper._register = register
    kept.keeper._on_change = lambda: counted.append(kept.keeper.renewed_at)
    expire(kept.state.worker_id)
    kept.keeper.wake()
    wait_until(lambda: counted)
    assert counted <= asked


@pytest.mark.slow
def test_two_missed_renewals_are_a_danger_that_is_told_once(
    keep: Keep, own: OwnConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S2.21: a worker that cannot renew twice in a row interrupts its own jobs, once."""
    monkeypatch.setattr(leases, "RETRY_SECONDS", 0.05)
    broken = BrokenConnection(own)
    kept = keep(broken, lease=3.0)
    wait_until(lambda: broken.calls > 3)
    assert kept.dangers == 0
    wait_until(lambda: kept.dangers == 1)
    assert get_worker(kept.state.worker_id).ended_at is None
    seen = broken.calls
    wait_until(lambda: broken.calls > seen + 2)
    assert kept.dangers == 1
    old = kept.state.worker_id
    broken.works = True
    wait_until(lambda: kept.keeper.is_leader or kept.state.worker_id != old)


def test_a_keeper_never_gives_up_while_the_server_is_down(
    keep: Keep, own: OwnConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker goes on."""
    monkeypatch.setattr(leases, "RETRY_SECONDS", 0.01)
    broken = BrokenConnection(own)
    kept = keep(broken)
    wait_until(lambda: broken.calls > 20)
    broken.works = True
    wait_until(lambda: kept.keeper.is_leader)
    assert not kept.crashed


@pytest.mark.parametrize(
    ("module", "name", "said"),
    [
        (leases.workers, "renew_lease", "lease not renewed: gone"),
        (leases.workers, "cut_leases", "lease renewed, but those of others not cut: gone"),
        (leases.jobs, "rescue_jobs", "lease renewed, but lost workers not looked after: gone"),
    ],
)
def test_the_keeper_says_what_a_lost_connection_has_stopped(
    keep: Keep,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    module: Any,
    name: str,
    said: str,
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise psycopg.OperationalError("gone")

    make_running_job(make_worker(lease_seconds=-1))
    monkeypatch.setattr(module, name, fail)
    keep()
    wait_until(lambda: said in caplog.text, message=caplog.text)
    assert caplog.text.count("lease not renewed") == caplog.text.count(said) * (
        name == "renew_lease"
    )


def test_the_earliest_lease_of_another_worker_wakes_the_keeper(keep: Keep) -> None:
    """S2.32: the rescue comes when the lease ends, though the next renewal is 20 minutes away."""
    dead = make_worker(lease_seconds=0.7)
    job = make_running_job(dead)
    keep(lease=3600.0)
    wait_until(lambda: get_job(job.id).status == "ready")
    wait_until(lambda: get_worker(dead).lost)


def test_a_worker_that_starts_after_everybody_died_rescues_at_once(keep: Keep) -> None:
    """Also when every worker was down."""
    jobs = [make_running_job(make_worker(lease_seconds=-1)).id for _ in range(3)]
    keep()
    wait_until(lambda: {get_job(job).status for job in jobs} == {"ready"})


def test_a_renewal_tells_what_is_asked_of_the_worker_when_that_changes(keep: Keep) -> None:
    kept = keep(lease=3600.0)
    wait_until(lambda: kept.keeper.is_leader)

    def renew(change: str) -> None:
        before = get_worker(kept.state.worker_id).heartbeat_at
        with connection.cursor() as cursor:
            cursor.execute(
                f"UPDATE pgjobs_worker SET {change} WHERE id = %s", [kept.state.worker_id]
            )
        kept.keeper.wake()
        wait_until(lambda: get_worker(kept.state.worker_id).heartbeat_at > before)

    renew("quiet_requested_at = now()")
    renew("listening = FALSE")
    wait_until(lambda: kept.changes == [True])
    renew("quiet_requested_at = NULL")
    wait_until(lambda: kept.changes == [True, False])
    assert kept.stops == 0
    renew("stop_requested_at = now()")
    wait_until(lambda: kept.stops == 1)


def test_only_the_leader_looks_for_jobs_of_vanished_workers_but_any_sees_an_expired_lease(
    keep: Keep,
) -> None:
    make_worker()  # the leader: it is older, and does nothing here
    job = make_running_job(make_worker(lease_seconds=-1))
    kept = keep()
    wait_until(lambda: get_job(job.id).status == "ready")
    assert not kept.keeper.is_leader


def test_more_than_a_page_is_rescued_in_one_look(
    keep: Keep, caplog: pytest.LogCaptureFixture
) -> None:
    """River 1318."""
    caplog.set_level(logging.CRITICAL, logger="django_pgjobs.worker.process.leases")
    for rows in (1_001, 500):
        dead = make_worker(lease_seconds=-1)
        make_jobs(rows, status="running", worker_id=dead, claim=1, attempts=1, worker_ids=["d"])
    kept = keep(lease=3600.0)
    wait_until(lambda: count_jobs(status="running") == 0)
    assert count_jobs(status="ready", lost_count=1) == 1_501
    assert kept.dangers == 0


@pytest.fixture
def rescues(own: OwnConnection, monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """When the answer of each statement that rescues jobs was due; pages have ten jobs."""
    found: list[float | None] = []
    rescue_jobs = leases.jobs.rescue_jobs

    def note(cursor: Any, **options: Any) -> list[Any]:
        found.append(own.answer_due)
        return rescue_jobs(cursor, **options)

    monkeypatch.setattr(leases, "RESCUE_BATCH", 10)
    monkeypatch.setattr(leases.jobs, "rescue_jobs", note)
    return found


def make_lost_jobs(count: int) -> None:
    dead = make_worker(lease_seconds=-1)
    make_jobs(count, status="running", worker_id=dead, claim=1, attempts=1, worker_ids=["d"])


def test_each_page_of_a_rescue_has_its_own_deadline(
    keep: Keep, rescues: list[float | None]
) -> None:
    """Or many pages that are answered at once look like one that is not answered at all."""
    make_lost_jobs(35)
    keep(lease=3600.0)
    wait_until(lambda: count_jobs(status="running") == 0)
    dues = [due for due in rescues if due is not None]
    assert len(dues) == len(set(dues)) == len(rescues) >= 4


@pytest.mark.slow
def test_a_long_rescue_does_not_keep_the_lease_from_being_renewed(
    keep: Keep, rescues: list[float | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page takes as long as may pass between two renewals, so each is followed by one."""
    make_lost_jobs(35)
    lease = 2.4
    done: list[str] = []
    rescue_jobs, renew_lease = leases.jobs.rescue_jobs, leases.workers.renew_lease

    def rescue_slowly(cursor: Any, **options: Any) -> list[Any]:
        done.append("rescue")
        time.sleep(lease / 3)
        return rescue_jobs(cursor, **options)

    def renew(cursor: Any, *arguments: Any, **options: Any) -> Any:
        done.append("renewal")
        return renew_lease(cursor, *arguments, **options)

    monkeypatch.setattr(leases.jobs, "rescue_jobs", rescue_slowly)
    monkeypatch.setattr(leases.workers, "renew_lease", renew)
    keep(lease=lease)
    wait_until(lambda: count_jobs(status="running") == 0)
    assert done.count("rescue") >= 4
    assert ("rescue", "rescue") not in pairwise(done)


def test_a_worker_that_renews_after_it_was_in_danger_may_claim_again(
    keep: Keep, own: OwnConnection
) -> None:
    broken = BrokenConnection(own)
    kept = keep(broken, lease=1.0)
    wait_until(lambda: time.monotonic() >= kept.state.danger_at)
    kept.keeper.check_danger()
    assert (kept.dangers, kept.changes) == (1, [])
    broken.works = True
    wait_until(lambda: kept.changes)
    assert time.monotonic() < kept.state.danger_at
