"""What a web process remembers of the attempts that it has given."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from django_pgjobs import cancel
from django_pgjobs.http import memory as module
from django_pgjobs.http import outcomes
from django_pgjobs.http.memory import memory
from django_pgjobs.http.station import station
from django_pgjobs.models import Job, Statistic
from tests.factories import get_job
from tests.http import tasks
from tests.http.support import Api, problem_of
from tests.http.workers import Remote, body_of


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The jobs whose rows were asked for before outcomes were written."""
    found: list[int] = []
    ask = outcomes.running_under

    def note(claims: Any) -> Any:
        found.extend(job_id for job_id, _ in claims)
        return ask(claims)

    monkeypatch.setattr(outcomes, "running_under", note)
    return found


def worker_with(api: Api, count: int) -> tuple[Remote, list[dict[str, Any]]]:
    """Return a worker and what it was given."""
    for number in range(count):
        tasks.resize.enqueue(number)
    worker = Remote(api)
    return worker, worker.claim(count)


def test_a_result_of_what_this_process_gave_asks_for_no_row(api: Api, asked: list[int]) -> None:
    worker, [first, second] = worker_with(api, 2)
    assert worker.finish(first, 1) == {"status": "stored"}
    assert asked == []
    memory.begin_anew()  # as another process
    assert worker.finish(second, 2) == {"status": "stored"}
    assert asked == [int(second["job"])]
    assert [get_job(int(each["job"])).result for each in (first, second)] == [1, 2]


def test_a_result_that_comes_again_is_lost(api: Api, asked: list[int]) -> None:
    worker, [given] = worker_with(api, 1)
    worker.finish(given, 1)
    assert problem_of(worker.say(given, "result", {"result": 2})) == "lost"
    assert asked == [int(given["job"])]
    assert get_job(int(given["job"])).result == 1


def test_what_is_remembered_of_an_attempt_that_is_over_writes_nothing(api: Api) -> None:
    worker, [given] = worker_with(api, 1)
    job_id = int(given["job"])
    Job.objects.filter(pk=job_id).update(claim=get_job(job_id).claim + 1)
    assert problem_of(worker.say(given, "result", {"result": 1})) == "lost"
    assert get_job(job_id).status == "running"


def test_a_failure_of_what_this_process_gave_is_judged_by_its_row(api: Api) -> None:
    worker, [given] = worker_with(api, 1)
    cancel(int(given["job"]))
    assert body_of(worker.say(given, "failure", {"error": {"type": "E"}}))["status"] == "cancelled"


def test_of_one_that_is_named_twice_the_first_report_counts(api: Api) -> None:
    _, given = worker_with(api, 2)
    names = [each["assignment"] for each in given]
    error = {"error": {"type": "E"}, "retry": False}
    reports = [
        {"assignment": names[0], "result": 1},
        {"assignment": names[0], **error},
        {"assignment": names[1], **error},
        {"assignment": names[1], "result": 1},
    ]
    said = body_of(api.post("results", {"results": reports}))["results"]
    assert [each["status"] for each in said] == ["stored", "lost", "failed", "lost"]


@pytest.mark.parametrize("is_old_first", [True, False])
def test_of_two_attempts_of_a_job_the_one_that_is_over_is_lost(
    api: Api, is_old_first: bool
) -> None:
    """A worker that went on with a job, and has got it again, may report both at once."""
    worker, [old] = worker_with(api, 1)
    job_id = int(old["job"])
    # Another process has rescued it.
    Job.objects.filter(pk=job_id).update(
        status="ready", worker_id=None, claim=get_job(job_id).claim + 1
    )
    [new] = worker.claim(held=[old["assignment"]])
    reports = [
        {"assignment": old["assignment"], "result": 1},
        {"assignment": new["assignment"], "result": 2},
    ]
    said = body_of(api.post("results", {"results": reports if is_old_first else reports[::-1]}))
    statuses = {each["assignment"]: each["status"] for each in said["results"]}
    assert statuses == {old["assignment"]: "lost", new["assignment"]: "stored"}
    assert get_job(job_id).result == 2
    station.end()
    assert Statistic.objects.get(successful__gt=0).successful == 1


def test_only_so_many_are_remembered_and_the_oldest_go(
    api: Api, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_KNOWN", 2)
    worker, given = worker_with(api, 3)
    for each in given:
        worker.finish(each)
    assert asked == [int(given[0]["job"])]


@pytest.mark.parametrize("is_remembered", [True, False])
def test_how_long_a_job_waited_is_counted_however_long_it_ran(
    api: Api, is_remembered: bool
) -> None:
    job_id = int(tasks.resize.enqueue(1).id)
    hour = timedelta(hours=1)
    Job.objects.filter(pk=job_id).update(ready_at=timezone.now() - hour)
    worker = Remote(api)
    [given] = worker.claim()
    if not is_remembered:
        memory.begin_anew()
        times = {"ready_at": timezone.now() - 2 * hour, "last_attempted_at": timezone.now() - hour}
        Job.objects.filter(pk=job_id).update(**times)
    worker.finish(given)
    station.end()
    [row] = Statistic.objects.filter(successful=1)
    assert 3_600 <= row.waited < 4_000
    assert (row.ran >= 3_600) is not is_remembered
