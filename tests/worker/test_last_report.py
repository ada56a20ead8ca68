"""What a task reports of its progress just before it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection

from tests.factories import get_job
from tests.worker import tasks as worker_tasks
from tests.worker.support import ThreadedWorker

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., ThreadedWorker]
REFUSE = """
CREATE FUNCTION refuse_report() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    IF NEW.progress IS NOT NULL THEN RAISE EXCEPTION 'refused'; END IF;
    RETURN NEW;
END
$body$;
CREATE TRIGGER refuse_report BEFORE UPDATE ON pgjobs_job_live
    FOR EACH ROW EXECUTE FUNCTION refuse_report();
"""


@pytest.fixture
def refused_reports(transactional_db: None) -> Iterator[None]:
    """Let the server refuse all reports."""
    with connection.cursor() as cursor:
        cursor.execute(REFUSE)
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP FUNCTION refuse_report() CASCADE")


@pytest.mark.parametrize(
    "task",
    [
        worker_tasks.report_and_end,
        worker_tasks.report_and_end_async,
        worker_tasks.report_and_end_atomic,
        worker_tasks.report_and_fail,
    ],
    ids=lambda task: task.name,
)
def test_the_last_report_before_the_end_is_stored(task: Any, drain: Start) -> None:
    job = task.enqueue()
    drain()
    stored = get_job(job.id)
    assert stored.status in ("successful", "failed")
    assert (stored.progress["done"], stored.progress["total"]) == (3, 3)


@pytest.mark.usefixtures("refused_reports")
@pytest.mark.parametrize(
    "task",
    [worker_tasks.report_and_end, worker_tasks.report_and_end_atomic],
    ids=lambda task: task.name,
)
def test_a_last_report_that_is_refused_keeps_no_job_from_its_end(
    task: Any, drain: Start, caplog: pytest.LogCaptureFixture
) -> None:
    job = task.enqueue()
    drain()
    assert (get_job(job.id).status, get_job(job.id).progress) == ("successful", None)
    # The upkeep may have sent it with others just before the end.
    said = ("its progress cannot be written: refused", "a turn was refused: refused")
    assert any(each in caplog.text for each in said)
