"""Remote tasks: workers of ours leave their jobs alone, wherever they lie."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from django_pgjobs import task
from django_pgjobs.compat import InvalidTask
from django_pgjobs.control.explain import explain
from django_pgjobs.declaring import registry
from django_pgjobs.declaring.remote import is_remote, remote_queues
from django_pgjobs.management.arguments import queue_slots
from django_pgjobs.management.starting import excluded_queues
from django_pgjobs.models import Job
from django_pgjobs.testing import run_jobs
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.claiming.filling import split
from django_pgjobs.worker.running.outcome import Kind, Outcome
from tests.factories import get_job, make_job, make_worker
from tests.helpers import wait_until
from tests.http import tasks
from tests.tasks import add
from tests.worker.support import StartThread, make_attempt_of


def test_a_task_says_that_it_is_remote() -> None:
    assert is_remote(tasks.resize)
    assert is_remote(tasks.resize.using(queue_name="another"))
    assert not is_remote(add)
    assert not is_remote(None)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("remote", 1, "expected remote to be True or False, got 1"),
        ("takes_context", True, "takes_context=True contradicts remote=True"),
        ("atomic", True, "atomic=True contradicts remote=True"),
    ],
)
def test_what_contradicts_it_is_refused(option: str, value: Any, said: str) -> None:
    def body(context: Any) -> None:
        """Do nothing."""

    with pytest.raises(InvalidTask, match=said):
        task(**{"remote": True, option: value})(body)


def test_the_queues_of_remote_tasks_alone_are_left_out_unless_they_are_named() -> None:
    assert {"node", "python"} <= set(remote_queues())
    assert not {"default", "pgjobs"} & set(remote_queues())

    def excluded(queues: str, *names: str) -> tuple[str, ...]:
        return excluded_queues(queue_slots(queues), names)

    assert excluded("node,python") == ()
    assert {"x", "node", "python"} <= set(excluded("*", "x"))
    assert "node" not in excluded("node:2,*")
    assert excluded("*", "node").count("node") == 1


@pytest.mark.django_db
def test_in_tests_the_body_stands_in() -> None:
    job_id = int(tasks.resize.enqueue(3, 4).id)
    assert run_jobs() == 1
    assert get_job(job_id).result == 12


def test_one_that_slips_through_goes_back() -> None:
    attempt = make_attempt_of(1, tasks.resize.module_path)
    ended: list[tuple[Attempt, Outcome]] = []
    ready = split([attempt], lambda *entry: ended.append(entry), on_next=lambda: None)
    assert ready == []
    [(_, outcome)] = ended
    assert (outcome.kind, outcome.status, outcome.delay) == (Kind.UNKNOWN, None, 5.0)


@pytest.mark.process
def test_a_worker_never_runs_one_though_it_is_in_its_queue(start_worker: Any) -> None:
    remote = int(tasks.resize.using(priority=100).enqueue(3).id)
    shared = int(tasks.resize.using(queue_name="default", priority=100).enqueue(3).id)
    local = int(add.enqueue(1, 2).id)
    modules = {"PGJOBS": {"TASK_MODULES": ["tests.http.tasks"]}}
    start_worker("--drain", "--queues=default,node", settings=modules).wait()
    assert get_job(local).status == "successful"
    for job_id in (remote, shared):
        job = get_job(job_id)
        assert (job.status, job.attempts, job.claim) == ("ready", 0, 0)


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_one_whose_module_is_loaded_late_is_claimed_once(
    start_thread: StartThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_found", {})
    start_thread()
    module = ModuleType("loaded_late")
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def resize() -> None:
        """Stand in for what another program does."""

    resize.__module__, resize.__qualname__ = module.__name__, "resize"
    late = module.resize = task(remote=True)(resize)  # type: ignore[attr-defined]
    job_id = make_job(late.module_path, priority=5)
    wait_until(lambda: get_job(job_id).due_at)
    claim = get_job(job_id).claim
    Job.objects.filter(id=job_id).update(due_at=None)
    local = make_job()
    wait_until(lambda: get_job(local).status == "successful")
    assert get_job(job_id).claim == claim


@pytest.mark.django_db
def test_explain_tells_that_no_worker_over_http_takes_it() -> None:
    job = tasks.resize.enqueue(3)

    def code() -> str:
        return explain(job).reasons[0].code

    assert code() == "no_remote_worker"
    make_worker(task_paths=["tests.tasks.add"])
    assert code() == "no_remote_worker"
    make_worker(task_paths=[tasks.resize.module_path], queues=["node"], token_id=1)
    assert code() == "next_look"
    # Nobody knows when such a program asks.
    assert str(explain(job).reasons[0]).endswith("takes it when it next asks for jobs.")
