"""The whole API under a database role that has the rights that `jobs grants` prints, no others."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection

from django_pgjobs.http.looking import looks
from django_pgjobs.http.pool import pool
from django_pgjobs.http.station import station
from django_pgjobs.models import RateLimit, Statistic
from tests.factories import make_running_job, make_worker
from tests.http import tasks
from tests.http.support import Api
from tests.http.workers import Remote, body_of

pytestmark = pytest.mark.usefixtures("hold")

# Of a process of pytest: roles are of the whole server.
ROLE = f"pgjobs test api {os.getpid()}"


@pytest.fixture
def as_api(
    api: Api, open_connection: Callable[..., psycopg.Connection], monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Be connected as a web process that serves the API, which has the rights of a worker, too."""
    owner = open_connection()
    printed = StringIO()
    call_command("jobs", "grants", "--worker", ROLE, "--web", ROLE, stdout=printed)
    owner.execute(f'CREATE ROLE "{ROLE}"'.encode())
    owner.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")
    owner.execute("REVOKE ALL ON ALL FUNCTIONS IN SCHEMA public FROM PUBLIC")
    owner.execute(printed.getvalue().encode())
    options = connection.settings_dict["OPTIONS"]
    connection.close()
    pool.close()
    with monkeypatch.context() as patch:
        patch.setitem(connection.settings_dict, "OPTIONS", options | {"assume_role": ROLE})
        yield
        station.end()
        connection.close()
        pool.close()
    owner.execute(f'DROP OWNED BY "{ROLE}"; DROP ROLE "{ROLE}"'.encode())
    owner.execute("GRANT USAGE ON SCHEMA public TO PUBLIC")
    owner.execute("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO PUBLIC")


def job_of(task: Any, *args: Any, **options: Any) -> dict[str, Any]:
    """Return the body that adds a job of a task."""
    return {"task": task.module_path, "args": list(args), **options}


def every_job(api: Api, worker: Remote, results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Claim what there is, and say what became of it, in one request."""
    looks.begin_anew()
    given = worker.claim(50)
    said = [
        {"assignment": each["assignment"], **result}
        for each, result in zip(given, results, strict=False)
    ]
    return list(body_of(api.post("results", {"results": said}))["results"])


@pytest.mark.slow
def test_the_whole_api_works_under_a_role_with_its_rights(
    api: Api, request: pytest.FixtureRequest
) -> None:
    RateLimit.objects.create(name="partner", count=100, period=1)
    make_running_job(make_worker(lease_expires_at="2020-01-01"))
    request.getfixturevalue("as_api")
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_user, has_table_privilege('tests_effect', 'SELECT')")
        assert cursor.fetchone() == (ROLE, False)
    body_of(api.get("token"))
    worker = Remote(api)
    # Jobs of each kind, one by one.
    added = [
        body_of(api.post("jobs", job_of(*each)), 201)["id"]
        for each in (
            (tasks.resize, 1),
            (tasks.bill, 1, 1),
            (tasks.pack, 1, 1),
            (tasks.push, 1, 1),
            (tasks.convert, "a"),
            (tasks.resize, 2),
        )
    ]
    looks.begin_anew()
    given = {each["job"]: each for each in worker.claim(50)}
    assert set(given) == set(added)
    first, second, third, fourth, fifth, sixth = (given[job_id] for job_id in added)
    assert worker.beat(*given.values(), progress={first["assignment"]: {"done": 1}})["cancel"] == []
    body_of(worker.say(first, "heartbeat"))
    body_of(worker.say(first, "progress", {"progress": {"done": 2}}))
    assert worker.finish(first, 5) == {"status": "stored"}
    assert body_of(worker.say(second, "release"))["status"] == "released"
    error = {"error": {"type": "E"}}
    assert body_of(worker.say(fifth, "failure", error))["status"] == "retry"
    failure = {**error, "retry": False}
    assert body_of(worker.say(third, "failure", failure))["status"] == "failed"
    reports = [
        {"assignment": fourth["assignment"], "result": 1},
        {"assignment": sixth["assignment"], "release": True},
    ]
    said = body_of(api.post("results", {"results": reports}))["results"]
    assert [each["status"] for each in said] == ["stored", "released"]
    body_of(api.post(f"jobs/{sixth['job']}/workers/{worker.id}"))
    # Looking, cancelling.
    assert body_of(api.get("jobs"))["jobs"]
    assert body_of(api.get(f"jobs/{first['job']}"))["status"] == "successful"
    later = body_of(api.post("jobs", job_of(tasks.resize, 3)), 201)["id"]
    body_of(api.delete(f"jobs/{later}"), 202)
    # A workflow that is added to and sealed, and goes on by what is reported.
    tree = {
        "name": "sizes",
        "seal": False,
        "jobs": [job_of(tasks.resize, 1), job_of(tasks.resize, 2)],
        "followers": [{"gather": {"task": tasks.convert.module_path}}],
    }
    flow = body_of(api.post("workflows", tree, **{"Idempotency-Key": "once"}), 201)["id"]
    body_of(api.post(f"batches/{flow}/jobs", {"jobs": [job_of(tasks.resize, 3)]}), 201)
    body_of(api.post(f"batches/{flow}/seal"))
    worker.say(given[sixth["job"]], "result")
    for _ in range(3):
        every_job(api, worker, [{"result": 1}] * 50)
    status = body_of(api.get(f"workflows/{flow}/status"))
    assert status["state"] == "successful", status
    assert body_of(api.get("workflows"))["workflows"]
    body_of(api.get(f"workflows/{flow}/results"))
    body_of(api.delete(f"workflows/{flow}"), 202)
    # The end of a worker, and of the process.
    assert api.delete(f"workers/{worker.id}").status_code == 204
    station.end()
    assert Statistic.objects.filter(successful__gt=0).exists()
