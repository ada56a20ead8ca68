"""Who waits for jobs over HTTP is woken, and looks when nobody can wake it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.db.models.functions import Now

from django_pgjobs.http import asking, looking
from django_pgjobs.http import waiting as module
from django_pgjobs.http.waiting import Waiter, Waiters, waiting
from django_pgjobs.models import QueueSettings, RateLimit, Worker
from django_pgjobs.models.control import RateState
from tests.helpers import wait_until
from tests.http import tasks
from tests.http.support import Api
from tests.http.workers import Remote
from tests.races.support import DjangoThread

pytestmark = pytest.mark.usefixtures("hold", "slow_looks")

Call = Callable[[], None]


@pytest.fixture
def slow_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look so rarely without a notification that a test would not end."""
    monkeypatch.setattr(module, "LOOK_SECONDS", 600.0)


@pytest.fixture
def enter() -> Iterator[Callable[[Call], Waiter]]:
    """Let somebody wait for the queue "node"; *wake* is called when it is to look."""
    entered: list[Waiter] = []

    def enter_one(wake: Call) -> Waiter:
        entered.append(Waiter(1, ("node",), frozenset({"a"}), wake))
        waiting.enter(entered[-1])
        return entered[-1]

    yield enter_one
    for waiter in entered:
        waiting.leave(waiter, passes_on=False)


def test_who_was_woken_in_vain_wakes_the_next() -> None:
    """It leaves without having looked: its client has gone."""
    others = Waiters()
    woken: list[int] = []
    waiters = [
        Waiter(1, ("node",), frozenset({"a"}), lambda number=number: woken.append(number))
        for number in range(3)
    ]
    others._waiters = dict.fromkeys(waiters)
    others.tell("node")
    assert woken == [0]
    others.leave(waiters[0], passes_on=False)
    assert woken == [0, 1]
    # This one has looked.
    assert others.note_looked(waiters[1])
    others.leave(waiters[1], passes_on=False)
    assert woken == [0, 1]


def test_all_look_once_somebody_hears(
    api: Api, enter: Callable[[Call], Waiter], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was committed between the last look and the subscription notified nobody."""
    woken = [threading.Event() for _ in range(3)]
    for event in woken:
        enter(event.set)
    for event in woken:
        assert event.wait(15)


def test_whose_listener_has_lost_its_connection_looks_more_often(
    api: Api,
    enter: Callable[[Call], Waiter],
    monkeypatch: pytest.MonkeyPatch,
    open_connection: Callable[..., psycopg.Connection],
) -> None:
    enter(lambda: None)
    wait_until(lambda: waiting.hears)
    assert waiting.pause == module.LOOK_SECONDS
    heard_again = threading.Event()

    def subscribe(*_: Any, **__: Any) -> None:
        if not heard_again.is_set():
            raise psycopg.OperationalError("the server is not there")

    monkeypatch.setattr(module, "RETRY_SECONDS", 0.05)
    with monkeypatch.context() as patch:
        patch.setattr(module, "send_subscription", subscribe)
        open_connection().execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'pgjobs listener' AND datname = current_database()"
        )
        wait_until(lambda: not waiting.hears)
        assert waiting.pause == module.POLL_SECONDS
    wait_until(lambda: waiting.hears)


def test_who_waits_after_long_idleness_hears_again(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread ends when nobody has waited for a while."""
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.05)
    waiter = Waiter(1, ("node",), frozenset({"a"}), lambda: None)
    for _ in range(2):
        waiting.enter(waiter)
        wait_until(lambda: waiting.hears)
        waiting.leave(waiter, passes_on=False)
        wait_until(lambda: not waiting.hears)


def claims_in_thread(worker: Remote, **options: Any) -> DjangoThread:
    """Let a worker wait; return when it does."""
    thread = DjangoThread(lambda: worker.claim(wait=25, **options))
    wait_until(lambda: waiting.hears and bool(waiting._waiters))
    return thread


def test_a_place_of_a_limited_queue_ends_the_wait(api: Api) -> None:
    QueueSettings.objects.create(queue_name="node", max_running=1)
    tasks.resize.enqueue(1)
    second = int(tasks.resize.enqueue(2).id)
    busy, idle = Remote(api, "busy"), Remote(api, "idle")
    [given] = busy.claim(5)
    thread = claims_in_thread(idle)
    busy.finish(given)
    assert [int(each["job"]) for each in thread.result()] == [second]


def test_what_is_due_beyond_one_page_ends_the_wait(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look lets so many go at a time; the next one follows at once."""
    monkeypatch.setattr(looking, "PROMOTE_BATCH", 2)
    for _ in range(5):
        tasks.other.enqueue()
    job_id = int(tasks.resize.enqueue(1).id)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgjobs_job_live SET due_at = now() - make_interval(secs => %s - id)",
            [job_id + 1],
        )
    worker = Remote(api, queues=["node"])
    assert [int(each["job"]) for each in worker.claim(wait=25)] == [job_id]


def test_a_job_is_due_when_the_server_said_however_late_the_answer_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process was stopped: the server counted from before on."""
    now = 100.0

    def answer_late(*_: object) -> tuple[int, float, list[Any]]:
        nonlocal now
        now += 8.0
        return 0, 10.0, []

    monkeypatch.setattr(looking, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(looking, "promoting", answer_late)
    assert looking._look().due_at == pytest.approx(110.0, abs=0.1)


@pytest.fixture
def long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a claim wait for longer than a test takes: its last look would find jobs, too."""
    monkeypatch.setattr(asking, "MOST_SECONDS", 3600.0)


@pytest.mark.time_limit(30)
@pytest.mark.usefixtures("long_waits")
def test_an_enqueue_from_before_the_wait_that_outlasts_its_look_ends_it(
    api: Api, open_connection: Callable[..., psycopg.Connection]
) -> None:
    """It saw nobody that wanted to be told."""
    worker = Remote(api)
    worker.claim(wait=0.01)
    wait_until(lambda: waiting.hears)
    Worker.objects.update(listening=False)
    other = open_connection(autocommit=False)
    other.execute(
        "INSERT INTO pgjobs_job (task_path, queue_name, args) VALUES (%s, 'node', '[2]')",
        [tasks.resize.module_path],
    )
    begun = time.monotonic()
    thread = DjangoThread(lambda: worker.claim(wait=3600))
    wait_until(lambda: looking.looks.last.asked_at > begun)
    assert Worker.objects.get(pk=worker.id).listening
    other.commit()
    assert len(thread.result()) == 1


@pytest.mark.time_limit(30)
@pytest.mark.usefixtures("long_waits")
def test_tokens_that_come_end_the_wait(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit that is spread evenly gives one after the other; no look in between finds them."""
    monkeypatch.setattr(asking, "POLL_SECONDS", 3600.0)
    # Slower than claims are on a busy machine, else none would wait.
    RateLimit.objects.create(name="partner", count=3, period=1.0, burst=1)
    workers = [Remote(api, f"node-{number}") for number in range(2)]
    # Before it hears, a process looks often.
    workers[0].claim(wait=0.01)
    wait_until(lambda: waiting.hears)
    jobs = [int(tasks.push.enqueue(1, number).id) for number in range(4)]
    given = [each["job"] for n in range(4) for each in workers[n % 2].claim(wait=3600)]
    assert [int(job) for job in given] == jobs


@pytest.mark.slow
@pytest.mark.time_limit(30)
@pytest.mark.usefixtures("long_waits")
def test_tokens_that_come_before_anybody_asks_for_them_end_the_wait(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind the claim that had none."""
    RateLimit.objects.create(name="partner", count=10, period=1.0, burst=1)
    worker = Remote(api)
    # All look when the process begins to hear.
    worker.claim(wait=0.01)
    wait_until(lambda: waiting.hears)
    tasks.push.enqueue(1, 1)
    job_id = int(tasks.push.enqueue(1, 2).id)
    worker.claim(wait=3600)
    ask = asking.Asked.tokens_at

    def ask_late(asked: asking.Asked) -> float:
        wait_until(lambda: not RateState.objects.filter(next_free__gt=Now()).exists())
        return ask(asked)

    monkeypatch.setattr(asking.Asked, "tokens_at", ask_late)
    assert [int(each["job"]) for each in worker.claim(wait=3600)] == [job_id]


@pytest.mark.time_limit(30)
@pytest.mark.usefixtures("long_waits")
def test_tokens_that_others_take_first_are_waited_for_again(api: Api) -> None:
    """Of several that wait one knows when the next ones come."""
    RateLimit.objects.create(name="partner", count=10, period=1.0, burst=1)
    jobs = {int(tasks.push.enqueue(1, number).id) for number in range(4)}
    workers = [Remote(api, f"node-{number}") for number in range(4)]
    threads = [DjangoThread(lambda worker=worker: worker.claim(wait=3600)) for worker in workers]
    given = [int(each["job"]) for thread in threads for each in thread.result()]
    assert sorted(given) == sorted(jobs)


@pytest.mark.slow
@pytest.mark.time_limit(30)
@pytest.mark.usefixtures("long_waits")
def test_who_waited_for_tokens_and_leaves_lets_the_next_one_wait_for_them(
    api: Api, settings: Any
) -> None:
    RateLimit.objects.create(name="partner", count=1, period=2.0, burst=1)
    tasks.push.enqueue(1, 1)
    job_id = int(tasks.push.enqueue(1, 2).id)
    first, second = Remote(api, "first"), Remote(api, "second")
    first.claim()
    leaving = DjangoThread(lambda: first.claim(wait=0.5))
    wait_until(lambda: len(waiting._waiters) == 1)
    staying = DjangoThread(lambda: second.claim(wait=3600))
    assert leaving.result() == []
    assert [int(each["job"]) for each in staying.result()] == [job_id]
