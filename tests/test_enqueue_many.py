"""Enqueueing many jobs at once: ids in order, all of them or none, few statements."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_pgjobs import signals
from django_pgjobs.backend import PgJobsBackend
from django_pgjobs.compat import TASKS_PACKAGE, AnyResult, task_enqueued
from django_pgjobs.enqueueing import inserting
from tests import tasks
from tests.factories import count_jobs, get_job
from tests.test_enqueue import declared, take_context

pytestmark = pytest.mark.django_db


def arguments(ids: list[str]) -> list[Any]:
    """Return what the jobs would be called with."""
    jobs = [get_job(job_id) for job_id in ids]
    return [job.kwargs or job.args for job in jobs]


@pytest.fixture
def three_per_insert(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make batches small."""
    monkeypatch.setattr(inserting, "ROWS_PER_INSERT", 3)


def test_ids_come_in_the_order_of_the_items() -> None:
    ids = tasks.echo.enqueue_many((number,) for number in range(200))
    assert all(isinstance(job_id, str) for job_id in ids)
    assert arguments(ids) == [[number] for number in range(200)]
    assert ids == sorted(ids, key=int)


def test_items_are_dicts_of_names_or_tuples_of_positions() -> None:
    ids = tasks.echo.enqueue_many([{"a": 1, "b": [2]}, (1, "x"), (), {}, [7]])
    assert arguments(ids) == [{"a": 1, "b": [2]}, [1, "x"], [], [], [7]]


def test_a_batch_is_one_insert() -> None:
    """S2.4."""
    with CaptureQueriesContext(connection) as queries:
        tasks.echo.enqueue_many((number,) for number in range(inserting.ROWS_PER_INSERT))
    kinds = [query["sql"].split()[0] for query in queries]
    assert kinds.count("INSERT") == 1
    assert set(kinds) <= {"SAVEPOINT", "INSERT", "SELECT", "RELEASE"}


@pytest.mark.usefixtures("three_per_insert")
def test_more_than_a_batch_is_several_inserts_in_one_block() -> None:
    with CaptureQueriesContext(connection) as queries:
        ids = tasks.echo.enqueue_many((number,) for number in range(7))
    assert sum(query["sql"].startswith("INSERT") for query in queries) == 3
    assert arguments(ids) == [[number] for number in range(7)]


@pytest.mark.usefixtures("three_per_insert")
def test_items_are_taken_as_they_are_needed() -> None:
    """A million of them need not be in memory."""
    seen: list[int] = []

    def items() -> Iterator[tuple[int]]:
        for number in range(6):
            seen.append(count_jobs())
            yield (number,)

    tasks.echo.enqueue_many(items())
    assert seen == [0, 0, 0, 3, 3, 3]


@pytest.mark.parametrize("items", [[], (), iter(())])
def test_no_items_are_no_jobs(items: Any) -> None:
    assert tasks.echo.enqueue_many(items) == []
    assert count_jobs() == 0


@pytest.mark.usefixtures("three_per_insert")
def test_an_item_that_is_refused_takes_the_jobs_before_it_along() -> None:
    """All or none, and the transaction of the caller goes on."""
    with transaction.atomic():
        kept = tasks.echo.enqueue("kept")
        with pytest.raises(TypeError, match=r"item 4 of enqueue_many\(\): .*object"):
            tasks.echo.enqueue_many([(1,), (2,), (3,), (4,), (object(),)])
        assert count_jobs() == 1
        tasks.echo.enqueue_many([(5,)])
    assert get_job(kept.id).args == ["kept"]
    assert count_jobs() == 2


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("three_per_insert")
def test_outside_a_transaction_it_is_one_of_its_own() -> None:
    """Others see all of the jobs or none."""
    with pytest.raises(ValueError, match="item 5"):
        tasks.echo.enqueue_many([*[(1,)] * 5, ("\0",)])
    assert count_jobs() == 0
    tasks.echo.enqueue_many([(1,)] * 5)
    assert count_jobs() == 5


@pytest.mark.django_db(transaction=True)
def test_the_jobs_roll_back_with_the_transaction_of_the_caller(open_connection: Any) -> None:
    """Transactional enqueue."""
    other: psycopg.Connection = open_connection()
    with transaction.atomic():
        tasks.echo.enqueue_many([(1,)] * 5)
        assert other.execute("SELECT count(*) FROM pgjobs_job").fetchone() == (0,)
        transaction.set_rollback(True)
    assert count_jobs() == 0


def test_every_job_gets_the_options_of_the_task() -> None:
    later = declared.using(run_after=timedelta(hours=1), tags=["t"])
    for job_id in later.enqueue_many([(1,), {"a": 2}]):
        job = get_job(job_id)
        assert (job.priority, job.queue_name, job.max_attempts, job.timeout) == (7, "mail", 3, 1.5)
        assert (job.correlation_id, job.tags, job.metadata) == ("c", ["t"], {"team": "ä"})
        assert job.due_at == job.run_after == job.enqueued_at + timedelta(hours=1)


def test_the_context_is_no_argument() -> None:
    assert arguments(take_context.enqueue_many([{"a": 1}, (2,)])) == [{"a": 1}, [2]]


TEXTS = ["\n", "\\n", "\\", '"', "{}", "NULL", "null", "\t", "a\r\nb", "', '", "%s", "ä\u2028"]


def test_text_of_any_kind_reaches_its_own_job() -> None:
    """The rows travel as lines of one parameter."""
    assert arguments(tasks.echo.enqueue_many((text,) for text in TEXTS)) == [[t] for t in TEXTS]
    by_name = tasks.echo.enqueue_many({"x": {text: text}} for text in TEXTS)
    assert arguments(by_name) == [{"x": {text: text}} for text in TEXTS]


def test_the_async_twin_stores_the_same() -> None:
    ids = async_to_sync(tasks.echo.aenqueue_many)([(1,), {"a": 2}])
    assert arguments(ids) == [[1], {"a": 2}]


def test_nothing_is_read_back_for_a_signal_that_nobody_wants(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As in production; in tests the handlers of pytest want every line of the log.
    monkeypatch.setattr(logging.getLogger(TASKS_PACKAGE), "propagate", False)
    signals._answers.clear()
    with CaptureQueriesContext(connection) as queries:
        tasks.echo.enqueue_many([(1,)])
    signals._answers.clear()
    assert [query["sql"].split()[0] for query in queries] == ["SAVEPOINT", "INSERT", "RELEASE"]


def test_the_signal_is_sent_for_each_job_with_what_get_result_would_say() -> None:
    """Once per job, the sender is the class."""
    sent: list[tuple[type, AnyResult]] = []

    def receive(sender: type, task_result: AnyResult, **kwargs: Any) -> None:
        sent.append((sender, task_result))

    task_enqueued.connect(receive)
    try:
        later = declared.using(run_after=timedelta(hours=1))
        ids = later.enqueue_many([(1,), {"a": 2}])
    finally:
        task_enqueued.disconnect(receive)
    assert [sender for sender, _ in sent] == [PgJobsBackend] * 2
    assert [result for _, result in sent] == [declared.get_result(job_id) for job_id in ids]
