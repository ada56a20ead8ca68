"""Web processes, workers of both kinds and the database are killed while a tree streams by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from django.db import connection

from django_pgjobs import workflow
from django_pgjobs.models import Batch, Job
from tests.clients import tasks
from tests.clients.support import RemoteWorker
from tests.clients.web import WebProcesses
from tests.factories import make_token
from tests.helpers import TEST_SECONDS, WorkerProcess, wait_until
from tests.http_proxy import HttpProxy
from tests.models import Effect
from tests.servers import PrivateCluster

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.django_db(transaction=True)]

JOBS = 600
SLOTS = {"python": 4, "node": 8}


class Site:
    """Two web servers behind a proxy, a worker of each kind, and what may happen to them."""

    def __init__(self, start: Callable[..., WorkerProcess], cluster: PrivateCluster) -> None:
        self._start = start
        self._cluster = cluster
        pgjobs = {"HTTP_HEARTBEAT_SECONDS": 1.0}
        self.web = {kind: WebProcesses(kind, pgjobs=pgjobs) for kind in ("gunicorn", "uvicorn")}
        self.proxy = HttpProxy([each.backend for each in self.web.values()], "/pgjobs/api/")
        self._token = make_token(verbs=["work"], queues=[tasks.QUEUE])
        self.remote = {language: self._start_remote(language) for language in SLOTS}
        self._local = self._start_local()

    def _start_remote(self, language: str) -> RemoteWorker:
        slots = SLOTS[language]
        return RemoteWorker(language, self.proxy.url, self._token, name=language, slots=slots)

    def _start_local(self) -> WorkerProcess:
        settings = {"PGJOBS": {"TASK_MODULES": [tasks.__name__]}}
        return self._start("-c", "3", "--lease-seconds", "1", settings=settings)

    def kill_remote(self, language: str) -> None:
        """End a program that has jobs, and start another one."""
        self.remote.pop(language).close()
        self.remote[language] = self._start_remote(language)

    def kill_local(self) -> None:
        """End a worker of ours, and start another one."""
        self._local.kill()
        self._local = self._start_local()

    def restart_web(self, kind: str) -> None:
        """End all processes of a web server; the other one answers meanwhile."""
        self.web[kind].kill()
        self.web[kind].start()

    def kill_database(self) -> None:
        """End the server in the middle of everything."""
        connection.close()
        self._cluster.kill()
        self._cluster.start()

    def situation(self) -> str:
        """Say how things stand."""
        rows = Job.objects.values_list("task_path", "status", "attempts", "note")
        logs = [f"{name}:\n{each.output()[-3000:]}" for name, each in self.remote.items()]
        logs += [f"{name}:\n{each.log()[-3000:]}" for name, each in self.web.items()]
        return "\n".join([f"{count} {row}" for row, count in Counter(rows).items()] + logs)

    def close(self) -> None:
        """Leave nothing behind."""
        for remote in self.remote.values():
            remote.close()
        self.proxy.close()
        for web in self.web.values():
            web.close()


@pytest.fixture
def site(
    private_database: PrivateCluster, start_worker: Callable[..., WorkerProcess]
) -> Iterator[Site]:
    site = Site(start_worker, private_database)
    yield site
    site.close()


def open_tree() -> Batch:
    """Open a workflow of jobs here, each with one elsewhere, each with one here."""
    with workflow("tree") as tree:
        converted = tree.each(tasks.convert.s())
        converted.each(tasks.record.using(priority=10).s())
        tree.on_complete(tasks.tell.s())
        tree.add_many(tasks.begin, [(number,) for number in range(JOBS)])
    return Batch.objects.get(pk=tree.pk)


@pytest.mark.time_limit(2 * TEST_SECONDS)
def test_a_tree_completes_exactly_once_whoever_is_killed(site: Site) -> None:
    """S2.2, S2.6, S2.34: nothing is lost, nothing is done twice."""
    tree = open_tree()
    faults: list[Callable[[], None]] = [
        site.web["gunicorn"].kill_child,
        lambda: site.kill_remote("python"),
        lambda: site.restart_web("uvicorn"),
        site.kill_database,
        lambda: site.kill_remote("node"),
        site.kill_local,
        site.web["uvicorn"].kill_child,
        lambda: site.restart_web("gunicorn"),
        lambda: site.proxy.lose("/claim", times=3),
        lambda: site.proxy.lose("/results", times=3),
        site.kill_database,
    ]
    for number, fault in enumerate(faults, 1):
        share = JOBS * number // (len(faults) + 2)
        wait_until(lambda share=share: Effect.objects.count() >= share, message=site.situation)
        fault()
    wait_until(
        lambda: Effect.objects.filter(key="complete").exists(),
        timeout=TEST_SECONDS / 2,
        message=site.situation,
    )
    effects = Counter(Effect.objects.values_list("key", flat=True))
    wanted = [f"{number}: {number * number}" for number in range(JOBS)]
    assert effects == Counter([*wanted, "complete"])
    jobs = Counter(Job.objects.values_list("task_path", "status"))
    paths = {task.module_path: JOBS for task in (tasks.begin, tasks.convert, tasks.record)}
    paths[tasks.tell.module_path] = 1
    assert jobs == {(path, "successful"): count for path, count in paths.items()}
    tree.refresh_from_db()
    assert tree.tree_completed_at and not tree.tree_failed
    converted = Job.objects.filter(task_path=tasks.convert.module_path)
    # Both languages did some of it, and some of it was lost.
    last = Counter(
        names[-1].split(":")[0] for names in converted.values_list("worker_ids", flat=True)
    )
    assert set(last) == set(SLOTS), last
    assert converted.filter(lost_count__gt=0).exists()
    for remote in site.remote.values():
        assert remote.stop() == 0, remote.output()
