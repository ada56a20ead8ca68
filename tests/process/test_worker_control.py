"""Quieting and stopping real workers by their rows, alone and under a supervisor."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from tests import tasks as common
from tests.factories import get_job
from tests.helpers import WorkerProcess, wait_until
from tests.process import tasks
from tests.process.support import Journal, children_of, fetch_rows, wait_for_status

pytestmark = [pytest.mark.process, pytest.mark.django_db(transaction=True)]

Start = Callable[..., WorkerProcess]

# Longer than any test: what happens soon does not happen at a heartbeat.
LONG_LEASE = ("--lease-seconds", "3600")


@pytest.fixture
def order(transactional_db: None) -> Callable[[str], None]:
    """Send what the buttons of the page Workers send: `order("stop 17")`."""
    client = Client()
    client.force_login(User.objects.create_superuser("chief"))

    def send(text: str) -> None:
        address = reverse("admin:pgjobs_worker_control")
        assert client.post(address, {"do": text, "confirmed": "1"}).status_code == 302

    return send


def live_workers() -> dict[int, int]:
    """Return id -> process id of the workers that have not said goodbye."""
    return dict(fetch_rows("SELECT id, pid FROM pgjobs_worker WHERE ended_at IS NULL"))


def test_a_worker_is_quieted_resumed_and_stopped_from_the_admin(
    start: Start, journal: Journal, order: Callable[[str], None]
) -> None:
    worker = start("-c", "2", *LONG_LEASE)
    [worker_id] = live_workers()
    job = tasks.pass_gate.enqueue(journal.folder, "job")
    journal.wait_for("start job 1")
    order(f"quiet {worker_id}")
    worker.wait_for_output("quiet   no new jobs")
    waiting = common.add.enqueue(1, 2)
    assert worker.is_running
    order("resume all")
    wait_for_status(waiting, "successful", worker=worker)
    order(f"stop {worker_id}")
    worker.wait_for_output("asked to stop in the table: no new jobs; waiting for 1")
    journal.open_gate()
    assert worker.wait() == 0
    assert (get_job(job.id).status, get_job(job.id).attempts) == ("successful", 1)
    assert live_workers() == {}


def test_a_worker_that_does_not_listen_obeys_at_its_heartbeat(
    start: Start, order: Callable[[str], None]
) -> None:
    worker = start("--no-listen", "--lease-seconds", "1")
    order("stop all")
    assert worker.wait() == 0


@pytest.mark.parametrize("flags", [(), ("--max-jobs", "1000")], ids=["plain", "with a limit"])
def test_a_supervisor_does_not_replace_a_child_that_was_asked_to_stop(
    start: Start, order: Callable[[str], None], flags: tuple[str, ...]
) -> None:
    """Those with a limit are replaced when they reach it; this is not that."""
    worker = start("--processes", "2", "-c", "1", *LONG_LEASE, *flags, wait=False)
    wait_until(lambda: len(live_workers()) == 2, message=worker.output)
    wait_until(lambda: worker.output().count("ready   worker=") == 2)
    first, second = sorted(live_workers())
    order(f"stop {first}")
    worker.wait_for_output("was asked to stop and is not started again")
    assert list(live_workers()) == [second]
    wait_until(lambda: len(children_of(worker)) == 1)
    wait_for_status(common.add.enqueue(1, 2), "successful", worker=worker)
    order(f"stop {second}")
    assert worker.wait() == 0
    assert live_workers() == {}
