"""Two transactions that enqueue one unique key at the same time, and a claim in between."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction

from django_pgjobs import DuplicateJob, JobError, Task, cancel, requeue, task
from django_pgjobs.queries.connection import OwnConnection
from tests.factories import count_jobs, get_job, make_worker
from tests.helpers import WAIT_SECONDS, connect, wait_until
from tests.models import Effect
from tests.races.support import DjangoThread, open_transaction
from tests.test_unique import end_job, start_job
from tests.worker.support import claim, ids

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.race]

InThread = Callable[..., DjangoThread]


@task(unique_key="k:{key}")
def meet(key: int, values: Any = None) -> None:
    """Unique until it has finished."""


@task(unique_key="k:{key}", unique_until="claimed")
def lock(key: int, values: Any = None) -> None:
    """Unique while it waits."""


@task(unique_key="k:{key}", on_conflict="raise")
def refuse(key: int, values: Any = None) -> None:
    """A second one is an error."""


@task(unique_key="k:{key}", on_conflict="merge")
def merge(key: int, values: Any = None) -> None:
    """Merged in the database."""


def both(former: dict[str, Any], latter: dict[str, Any]) -> dict[str, Any]:
    """Join the lists."""
    return {**latter, "values": former["values"] + latter["values"]}


@task(unique_key="k:{key}", on_conflict="merge", merge=both)
def merge_here(key: int, values: Any = None) -> None:
    """Merged in Python."""


KINDS = {kind.func.__name__: kind for kind in (meet, lock, refuse, merge, merge_here)}
MERGING = {"merge": merge, "merge_here": merge_here}
by_name = pytest.mark.parametrize("name", KINDS)


def wait_until_waiting(thread: DjangoThread) -> None:
    """Wait until the statement of the thread waits for somebody's lock."""
    with connect() as observer:
        wait_until(
            lambda: (
                observer.execute(
                    "SELECT cardinality(pg_blocking_pids(%s))", [thread.backend_pid]
                ).fetchone()[0]  # type: ignore[index]
                > 0
            )
        )


def enqueue(unique: Task, value: str = "b") -> Callable[[], str]:
    """Return the enqueue of another party."""

    def call() -> str:
        with transaction.atomic():
            Effect.objects.create(key="before")
            try:
                result = str(unique.enqueue(1, [value]).id)
            except DuplicateJob as error:
                result = f"twin {error.job_id}"
            # The transaction is usable whatever happened.
            Effect.objects.create(key="after")
        return result

    return call


def values_of(job_id: str) -> Any:
    """Return the list that a job was enqueued with, or came to."""
    job = get_job(job_id)
    return job.kwargs["values"] if job.kwargs else job.args[1]


@by_name
def test_the_second_of_two_waits_for_the_first_and_meets_its_job(
    name: str, in_thread: InThread
) -> None:
    """No IntegrityError, no second job, and the transaction of the second goes on."""
    unique = KINDS[name]
    with transaction.atomic():
        first = unique.enqueue(1, ["a"])
        second = in_thread(enqueue(unique))
        wait_until_waiting(second)
        assert second.is_alive()
    expected = f"twin {first.id}" if unique is refuse else first.id
    assert second.result() == expected
    assert values_of(first.id) == (["a", "b"] if name in MERGING else ["a"])
    assert (count_jobs(), Effect.objects.count()) == (1, 2)


@by_name
def test_the_second_of_two_inserts_when_the_first_rolls_back(
    name: str, in_thread: InThread
) -> None:
    unique = KINDS[name]
    with transaction.atomic():
        first = unique.enqueue(1, ["a"])
        second = in_thread(enqueue(unique))
        wait_until_waiting(second)
        transaction.set_rollback(True)
    assert second.result() != first.id
    assert values_of(second.result()) == ["b"]
    assert count_jobs() == 1


@pytest.mark.parametrize("name", ["lock", "merge", "merge_here"])
def test_a_job_that_was_met_is_not_claimed_before_the_commit(name: str, own: OwnConnection) -> None:
    """The attempt sees what was written together with the second enqueue."""
    worker, unique = make_worker(), KINDS[name]
    job = unique.enqueue(1, ["a"])
    with transaction.atomic():
        Effect.objects.create(key="changed")
        assert unique.enqueue(1, ["b"]).id == job.id
        assert claim(own, worker) == []
    assert ids(claim(own, worker)) == [int(job.id)]


def test_a_job_that_is_to_live_longer_but_ends_meanwhile_is_not_met(in_thread: InThread) -> None:
    """The enqueue asks again, and inserts a new job."""
    job = meet.using(expires=timedelta(minutes=1)).enqueue(1, ["a"])
    with transaction.atomic():
        cancel(job.id)
        second = in_thread(enqueue(meet))
        wait_until_waiting(second)
    assert second.result() != job.id
    assert values_of(second.result()) == ["b"]


def test_a_job_that_was_met_until_its_end_may_be_claimed(own: OwnConnection) -> None:
    """It locks nothing: it could be running just as well."""
    worker = make_worker()
    job = meet.enqueue(1)
    with transaction.atomic():
        assert meet.enqueue(1).id == job.id
        assert ids(claim(own, worker)) == [int(job.id)]


@pytest.mark.parametrize("name", ["lock", "merge", "merge_here"])
@pytest.mark.parametrize("how", ["COMMIT", "ROLLBACK"])
def test_an_enqueue_that_meets_a_claim_waits_for_what_it_comes_to(
    name: str, how: str, own: OwnConnection, in_thread: InThread
) -> None:
    """Claimed: a new job starts, and nothing is lost. Not claimed: it is met."""
    worker, unique = make_worker(), KINDS[name]
    job = unique.enqueue(1, ["a"])
    with open_transaction(own) as end:
        assert ids(claim(own, worker)) == [int(job.id)]
        second = in_thread(enqueue(unique))
        wait_until_waiting(second)
        end(how)
    if how == "COMMIT":
        assert second.result() != job.id
        assert (values_of(job.id), values_of(second.result())) == (["a"], ["b"])
    else:
        assert second.result() == job.id
        assert values_of(job.id) == (["a", "b"] if name in MERGING else ["a"])


@by_name
@pytest.mark.parametrize("how", ["commit", "rollback"])
def test_an_enqueue_that_meets_a_cancel_waits_for_what_it_comes_to(
    name: str, how: str, in_thread: InThread
) -> None:
    """A cancel moves the row to the other partition: that is no error for who waits."""
    unique = KINDS[name]
    job = unique.enqueue(1, ["a"])
    with transaction.atomic():
        assert cancel(job)
        second = in_thread(enqueue(unique))
        wait_until_waiting(second)
        transaction.set_rollback(how == "rollback")
    if how == "commit":
        assert values_of(second.result()) == ["b"]
        assert count_jobs(status="ready") == count_jobs(status="cancelled") == 1
    else:
        assert second.result() == (f"twin {job.id}" if unique is refuse else job.id)
        assert count_jobs() == 1


@pytest.mark.parametrize("name", ["meet", "refuse"])
def test_an_enqueue_that_meets_a_finish_inserts_after_it(name: str, in_thread: InThread) -> None:
    unique = KINDS[name]
    job = unique.enqueue(1, ["a"])
    start_job(job.id)
    with transaction.atomic():
        end_job(job.id)
        second = in_thread(enqueue(unique))
        wait_until_waiting(second)
    assert values_of(second.result()) == ["b"]


def test_two_scopes_that_meet_while_the_job_finishes_are_no_poison(in_thread: InThread) -> None:
    """One of them would have changed the running job."""
    job = meet.enqueue(1, ["a"])
    start_job(job.id)
    with transaction.atomic():
        end_job(job.id)
        second = in_thread(enqueue(meet.using(on_conflict="replace")))
        wait_until_waiting(second)
    assert values_of(second.result()) == ["b"]


@pytest.mark.parametrize("how", ["commit", "rollback"])
def test_a_requeue_that_meets_a_new_twin_waits_and_says_so(how: str, in_thread: InThread) -> None:
    """No IntegrityError, and the transaction goes on."""
    job = meet.enqueue(1, ["a"])
    end_job(job.id, "failed")

    def again() -> str:
        with transaction.atomic():
            Effect.objects.create(key="before")
            try:
                answer = str(requeue(job))
            except DuplicateJob as error:
                answer = f"twin {error.job_id}"
            Effect.objects.create(key="after")
        return answer

    with transaction.atomic():
        twin = meet.enqueue(1, ["b"])
        other = in_thread(again)
        wait_until_waiting(other)
        transaction.set_rollback(how == "rollback")
    assert other.result() == (f"twin {twin.id}" if how == "commit" else "True")
    assert Effect.objects.count() == 2
    assert get_job(job.id).status == ("failed" if how == "commit" else "ready")
    assert count_jobs(status="ready") == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_two_batches_of_the_same_keys_do_not_wait_in_a_circle(
    name: str, in_thread: InThread
) -> None:
    """Each takes the keys in their order, whatever the order of its items."""
    unique = KINDS[name]
    keys = list(range(300))

    def run(items: list[int]) -> Callable[[], list[str]]:
        def call() -> list[str]:
            found = []
            for _ in range(8):
                try:
                    found += unique.enqueue_many((key, [1]) for key in items)
                except DuplicateJob:
                    found.append("twin")
            return found

        return call

    threads = [in_thread(run(keys)), in_thread(run(keys[::-1]))]
    for thread in threads:
        assert thread.result()
    assert count_jobs() == 300


def test_idle_workers_hear_of_a_job_that_is_due_earlier_than_before(
    open_connection: Callable[..., psycopg.Connection],
) -> None:
    """No INSERT tells them: the merge does."""
    make_worker(listening=True)
    listener = open_connection()
    job = merge.using(run_after=timedelta(hours=1), queue_name="q").enqueue(1, ["a"])
    listener.execute("LISTEN pgjobs")
    merge.using(run_after=timedelta(minutes=1)).enqueue(1, ["b"])
    merge.enqueue_many([(1, ["c"]), (2, ["d"])])
    heard = {n.payload for n in listener.notifies(timeout=WAIT_SECONDS, stop_after=2)}
    assert heard == {"q", "default"}
    assert values_of(job.id) == ["a", "b", "c"]


@pytest.fixture
def claimer(own: OwnConnection) -> Iterator[list[Any]]:
    """Claim and collect the values of all jobs in a thread until the test is over."""
    worker = make_worker()
    collected: list[Any] = []
    stop = threading.Event()

    def run() -> None:
        while True:
            is_last = stop.is_set()
            with connect() as reader:
                for row in claim(own, worker, 3):
                    found = reader.execute(
                        "SELECT kwargs -> 'values' FROM pgjobs_job WHERE id = %s", [row.id]
                    ).fetchone()
                    assert found is not None
                    collected.append(found[0])
            if is_last:
                return

    thread = threading.Thread(target=run)
    thread.start()
    yield collected
    stop.set()
    thread.join(WAIT_SECONDS)
    assert not thread.is_alive()


@pytest.mark.slow
@pytest.mark.parametrize("name", MERGING)
def test_no_argument_is_lost_between_mergers_and_a_claimer(
    name: str, in_thread: InThread, claimer: list[Any]
) -> None:
    """S4.6: each value reaches exactly one attempt, or the job that waits in the end."""
    unique = MERGING[name]

    def run(who: int) -> Callable[[], list[int]]:
        def call() -> list[int]:
            kept = []
            for number in range(60):
                value = who * 1_000 + number
                with transaction.atomic():
                    if number % 3 == 0:
                        unique.enqueue_many([(number % 2, [value]), (1 - number % 2, [-value])])
                    else:
                        unique.enqueue(number % 2, [value])
                    if number % 7 == 0:
                        transaction.set_rollback(True)
                    else:
                        kept += [value, -value] if number % 3 == 0 else [value]
            return kept

        return call

    threads = [in_thread(run(who)) for who in range(1, 5)]
    expected = sorted(value for thread in threads for value in thread.result())
    wait_until(lambda: count_jobs(status="ready") == 0)
    wait_until(lambda: sorted(v for values in claimer for v in values) == expected)
    assert len(claimer) == count_jobs(status="running")


def test_a_serializable_transaction_gets_postgres_own_error(in_thread: InThread) -> None:
    """Only READ COMMITTED can see what it has waited for."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        assert Effect.objects.count() == 0
        in_thread(enqueue(meet)).result()
        with pytest.raises(Exception, match="could not serialize access") as caught:
            meet.enqueue(1)
        assert not isinstance(caught.value, JobError)
        transaction.set_rollback(True)
