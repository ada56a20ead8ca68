"""What the row of one job, locked or refused, must not do to other jobs of a worker over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest

from django_pgjobs.http import reporting
from tests.factories import get_job
from tests.helpers import execute
from tests.http import tasks
from tests.http.support import Api
from tests.http.test_rules_guards import let_pass
from tests.http.workers import Remote, body_of

pytestmark = pytest.mark.usefixtures("hold")


@pytest.fixture(autouse=True)
def without_trigger(api: Api) -> Iterator[None]:
    """Take the trigger away."""
    yield
    execute("DROP FUNCTION IF EXISTS object_to_one() CASCADE")


REFUSING = """
CREATE FUNCTION object_to_one() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN IF NEW.id = {id} THEN RAISE EXCEPTION 'a trigger objects'; END IF; RETURN NEW; END $$;
CREATE TRIGGER object_to_one BEFORE UPDATE ON pgjobs_job_live
    FOR EACH ROW EXECUTE FUNCTION object_to_one();
"""
SAID = {"done": 1, "total": 1}


def test_a_locked_job_of_one_queue_does_not_keep_those_of_another_from_a_worker(
    api: Api, open_connection: Callable[..., psycopg.Connection]
) -> None:
    locked = int(tasks.resize.enqueue(1).id)
    free = int(tasks.other.enqueue().id)
    holder = open_connection(autocommit=False)
    holder.execute("SELECT FROM pgjobs_job_live WHERE id = %s FOR UPDATE", [locked])
    try:
        assert [int(each["job"]) for each in Remote(api).claim(1)] == [free]
    finally:
        holder.rollback()


def test_each_mention_of_an_attempt_whose_row_is_locked_is_to_be_said_again(
    api: Api, open_connection: Callable[..., psycopg.Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told "lost" of one of them, a worker would forget the result."""
    monkeypatch.setattr(reporting, "PATIENCE_SECONDS", 0.1)
    job_id = int(tasks.resize.enqueue(1).id)
    [given] = Remote(api).claim()
    other = open_connection(autocommit=False)
    other.execute("SELECT FROM pgjobs_job_live WHERE id = %s FOR UPDATE", [job_id])
    results = [{"assignment": given["assignment"], "result": number} for number in range(3)]
    body = body_of(api.post("results", {"results": results}))
    assert [each["status"] for each in body["results"]] == ["later"] * 3
    other.rollback()
    body = body_of(api.post("results", {"results": results}))
    assert [each["status"] for each in body["results"]] == ["stored", "lost", "lost"]
    assert get_job(job_id).result == 0


def test_the_last_progress_is_stored_beside_a_job_that_is_refused(api: Api) -> None:
    for number in range(2):
        tasks.resize.enqueue(number)
    refused, sound = Remote(api).claim(2)
    execute(REFUSING.format(id=refused["job"]))
    results = [
        {"assignment": each["assignment"], "result": 1, "progress": SAID}
        for each in (refused, sound)
    ]
    said = body_of(api.post("results", {"results": results}))["results"]
    assert [each["status"] for each in said] == ["later", "stored"]
    assert get_job(int(sound["job"])).progress is not None


def test_an_attempt_past_its_timeout_whose_row_is_refused_is_told_to_end(api: Api) -> None:
    tasks.bill.enqueue(1)
    worker = Remote(api)
    [given] = worker.claim(1)
    let_pass(61)
    execute(REFUSING.format(id=given["job"]))
    answer = body_of(worker.post("heartbeat", {"assignments": [given["assignment"]]}))
    assert [each["reason"] for each in answer["cancel"]] == ["timed_out"]
