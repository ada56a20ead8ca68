"""`on_failure`: a task that is enqueued when a job fails for good, with its end and once."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from django.db.models import Value

from django_pgjobs import Discard, Task, cancel, requeue, task
from django_pgjobs.compat import TASKS_PACKAGE, InvalidTask
from django_pgjobs.models import Job
from django_pgjobs.queries import jobs as queries
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.claiming.outcome_statements import writings
from django_pgjobs.worker.running.calling import run_in_thread
from django_pgjobs.worker.running.outcome import Kind
from tests.factories import get_job, make_job, make_running_job, make_worker
from tests.worker.support import Bench, write

pytestmark = pytest.mark.django_db(transaction=True)

told: list[tuple[int, str]] = []


@task(queue_name="alerts", priority=5)
def tell(job_id: int, error: str) -> None:
    """Note what failed."""
    told.append((job_id, error))


@task
def take_nothing() -> None:
    """Take no arguments."""


@task
def tell_channel(job_id: int, error: str, *, channel: Any) -> None:
    """Take an argument of its own."""


@task(max_attempts=2, backoff=[0], on_failure=tell)
def charge(text: str = "no such card") -> None:
    """Fail."""
    raise ValueError(text)


@task(on_failure="tests.worker.test_on_failure.tell")
def give_up() -> None:
    """Fail at once."""
    raise Discard("not wanted")


@task(on_failure=tell)
def succeed() -> None:
    """Return."""


def test_a_failure_without_a_text_is_told_by_its_name(bench: Bench) -> None:
    charge.using(max_attempts=1).enqueue("")
    bench.run()
    [handler] = handlers()
    assert handler.args[1] == "builtins.ValueError"


def handlers() -> list[Job]:
    """Return the jobs that tell of failures."""
    return list(Job.objects.filter(task_path=tell.module_path).order_by("pk"))


def test_a_failure_is_told_with_its_end(bench: Bench) -> None:
    """Not at the first attempt, and where and as urgently as the other task says."""
    job = charge.using(correlation_id="order-17").enqueue()
    assert bench.run().kind is Kind.RETRY
    assert handlers() == []
    assert bench.run().kind is Kind.FAIL
    [handler] = handlers()
    assert handler.args == [int(job.id), "builtins.ValueError: no such card"]
    assert (handler.queue_name, handler.priority, handler.backend) == ("alerts", 5, "default")
    assert (handler.status, handler.correlation_id) == ("ready", "order-17")
    assert handler.on_failure is None


@pytest.mark.slow
def test_it_runs_as_any_job(bench: Bench, drain: Any) -> None:
    told.clear()
    job = give_up.enqueue()
    drain()
    assert told == [(int(job.id), "django_pgjobs.exceptions.Discard: not wanted")]


def test_a_failure_that_another_attempt_owns_is_not_told(bench: Bench) -> None:
    """The write has no effect, and with it nothing is enqueued."""
    job = charge.using(max_attempts=1).enqueue()
    attempt = bench.claim()
    outcome = run_in_thread(attempt, bench.options)
    Job.objects.filter(pk=job.id).update(claim=7)
    assert writings([(attempt, outcome)])
    assert write(bench.connection, (attempt, outcome)) == set()
    assert handlers() == []


def test_an_outcome_that_is_sent_twice_is_told_once(bench: Bench) -> None:
    charge.using(max_attempts=1).enqueue()
    attempt = bench.claim()
    outcome = run_in_thread(attempt, bench.options)
    write(bench.connection, (attempt, outcome))
    write(bench.connection, (attempt, outcome))
    assert len(handlers()) == 1


def test_each_final_failure_is_told(bench: Bench) -> None:
    job = charge.using(max_attempts=1).enqueue()
    bench.run()
    Job.objects.filter(task_path=tell.module_path, queue_name="alerts").update(priority=-5)
    assert requeue(job.id)
    assert bench.run().kind is Kind.FAIL
    assert [handler.args[0] for handler in handlers()] == [int(job.id)] * 2


def test_a_job_that_fails_with_its_worker_is_told(own: OwnConnection) -> None:
    lost = make_worker(lease_seconds=-1)
    to_tell = {"task_path": tell.module_path, "queue_name": "alerts"}
    job = make_running_job(lost, max_losses=1, on_failure=to_tell)
    other = make_running_job(make_worker(lease_seconds=-1), on_failure=to_tell)
    with own.cursor() as cursor:
        queries.rescue_jobs(cursor, max_jobs=9, default_max_losses=3)
    assert (get_job(job.id).status, get_job(other.id).status) == ("failed", "ready")
    [handler] = handlers()
    assert handler.args[0] == job.id
    assert handler.args[1].startswith("django_pgjobs.exceptions.WorkerLost: worker lost")


def test_what_ends_otherwise_is_not_told(bench: Bench) -> None:
    cancel(charge.enqueue().id)
    succeed.enqueue()
    assert bench.run().kind is Kind.DONE
    assert handlers() == []


def test_a_raw_row_names_a_task_and_nothing_else(bench: Bench) -> None:
    make_job("tests.tasks.add", args=["x"], on_failure={"task_path": "shop.tasks.tell"})
    while Job.objects.filter(status="ready", task_path="tests.tasks.add").exists():
        Job.objects.filter(status="ready").update(due_at=None, max_attempts=1)
        bench.run()
    handler = Job.objects.get(task_path="shop.tasks.tell")
    assert (handler.queue_name, handler.priority, handler.backend) == ("default", 0, "default")


def test_all_ways_to_enqueue_say_who_is_told() -> None:
    unique = charge.using(unique_key="{text}")
    charge.enqueue_many([("a",)])
    unique.enqueue_many([("b",)])
    unique.using(unique_until="claimed").enqueue("c")
    unique.using(on_conflict="replace").enqueue("d")
    charge.enqueue_from(Job.objects.all()[:1], text=Value("e"))
    unique.enqueue_from(Job.objects.all()[:1], text=Value("f"))
    give_up.enqueue()
    found = Job.objects.values_list("on_failure", flat=True)
    expected = {
        "task_path": tell.module_path, "queue_name": "alerts", "backend": "default", "priority": 5,
        "is_async": False,
    }  # fmt: skip
    assert list(found) == [expected] * 7


@pytest.mark.parametrize("given", [5, "no path", print])
def test_what_is_no_task_is_refused(given: Any) -> None:
    with pytest.raises(InvalidTask, match="expected on_failure to be a task"):
        charge.using(on_failure=given)


def test_a_task_that_cannot_be_told_is_refused_where_it_is_named() -> None:
    with pytest.raises(InvalidTask, match=r"succeed expected on_failure to be a task that takes"):
        succeed.using(on_failure=take_nothing)
    with pytest.raises(InvalidTask, match=r"takes a job's id and a text: .*cannot be called"):
        task(on_failure=take_nothing)(succeed.func)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("tests.worker.test_on_failure.take_nothing", "cannot be called with the arguments given"),
        ("tests.worker.test_on_failure.told", "to be the path of a task"),
        ("tests.worker.nowhere.tell", "cannot be imported: ModuleNotFoundError: No module named"),
    ],
)
def test_what_could_not_be_told_is_refused_at_the_enqueue(given: str, message: str) -> None:
    with pytest.raises(InvalidTask, match=rf"charge option on_failure='{given}'.*{message}"):
        charge.using(on_failure=given).enqueue()
    assert Job.objects.count() == 0


def test_it_has_to_be_a_task_that_workers_run(settings: Any) -> None:
    """Else its jobs would wait for ever."""
    dummy = {"BACKEND": f"{TASKS_PACKAGE}.backends.dummy.DummyBackend", "QUEUES": []}
    settings.TASKS = {**settings.TASKS, "dummy": dummy}
    with pytest.raises(InvalidTask, match=r"on_failure of .*succeed .* whose backend is 'dummy'"):
        succeed.using(on_failure=tell.using(backend="dummy")).enqueue()
    moved = Task(func=tell.func, priority=0, queue_name="default", backend="default")
    with (
        mock.patch.object(tell.func, "__module__", "__main__"),
        pytest.raises(InvalidTask, match=r"option on_failure: .*in the program that was started"),
    ):
        succeed.using(on_failure=moved).enqueue()
    assert not Job.objects.exists()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (tell.s(5), "arguments by name"),
        (tell.s(channel="ops"), "takes a job's id and a text"),
        (take_nothing.s(), "takes a job's id and a text"),
        (tell, None),
        (5, "a task, the dotted path of one, or a call"),
        (Task, "a task, the dotted path of one, or a call"),
    ],
)
def test_what_cannot_be_told_is_refused_where_it_is_declared(call: Any, said: str | None) -> None:
    if said is None:
        assert charge.using(on_failure=call).on_failure is call
        return
    with pytest.raises(InvalidTask, match=said):
        charge.using(on_failure=call)


@pytest.mark.parametrize("channel", [object(), "x" * 2_000_000])
def test_arguments_that_cannot_be_stored_are_refused(channel: object) -> None:
    with pytest.raises(InvalidTask, match="arguments that can be stored"):
        charge.using(on_failure=tell_channel.s(channel=channel))


def test_arguments_of_a_call_are_stored() -> None:
    given = charge.using(on_failure=tell_channel.s(channel={"a": [1]}))
    assert hash(given) == hash(charge)
    job = Job.objects.get(pk=given.enqueue().id)
    assert job.on_failure is not None
    assert job.on_failure["kwargs"] == {"channel": {"a": [1]}}
