"""Requests beside others that lock the same rows, and questions that take too long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, transaction
from psycopg.errors import DeadlockDetected, SerializationFailure

from django_pgjobs import workflow
from django_pgjobs.control import lifecycle
from django_pgjobs.exceptions import UnknownBatch
from django_pgjobs.http import results, sessions
from django_pgjobs.http.problems import Problem
from django_pgjobs.http.sessions import in_transaction, until_done
from django_pgjobs.http.shown import OPENER
from django_pgjobs.models import Batch, Job, Token
from django_pgjobs.testing import run_jobs
from tests.factories import make_job
from tests.helpers import connect, wait_until
from tests.http.support import ONLY_WSGI, Api, problem_of
from tests.http.trees import ADD, read, sums
from tests.races.support import DjangoThread

pytestmark = pytest.mark.django_db(transaction=True)


def crossed(times: int, error: psycopg.Error) -> Callable[[], str]:
    """Return what others cross so often, and that then returns."""
    left = [error] * times

    def do() -> str:
        Job.objects.filter(task_path="nothing").update(priority=1)
        if left:
            raise OperationalError("crossed") from left.pop()
        return "done"

    return do


@pytest.mark.parametrize("error", [SerializationFailure("x"), DeadlockDetected("x")])
@pytest.mark.parametrize("runs", [in_transaction, until_done])
def test_what_others_cross_is_done_again(
    runs: Any, error: psycopg.Error, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(error, "sqlstate", type(error).sqlstate, raising=False)
    assert runs(crossed(3, error)) == "done"
    monkeypatch.setattr(sessions, "PAUSE_SECONDS", 0)
    with pytest.raises(Problem) as refused:
        runs(crossed(1_000, error))
    assert (refused.value.status, refused.value.slug) == (503, "unavailable")


def test_another_error_is_not_repeated() -> None:
    do = crossed(1, psycopg.OperationalError("the server has gone away"))
    with pytest.raises(OperationalError):
        until_done(do)
    assert do() == "done"


def test_a_batch_that_has_just_gone_is_not_found() -> None:
    def look() -> None:
        raise UnknownBatch("batch 17 does not exist.")

    with pytest.raises(Problem) as refused:
        until_done(look)
    assert refused.value.slug == "not-found"


def is_blocked(pid: int) -> bool:
    """Does a session wait for a lock?"""
    with connect() as observer:
        found = observer.execute("SELECT cardinality(pg_blocking_pids(%s)) > 0", [pid]).fetchone()
    return bool(found and found[0])


@ONLY_WSGI
def test_two_requests_with_one_key_at_the_same_time_open_one_workflow(api: Api) -> None:
    """S2.22: the second waits for the first, and gets it."""
    of_token = {OPENER: Token.objects.get().pk}
    with transaction.atomic():
        with workflow("race", dedupe_key="key", metadata=of_token) as first:
            pass
        body = {"name": "race", "jobs": sums((1, 2))}
        second = DjangoThread(lambda: api.post("workflows", body, **{"Idempotency-Key": "key"}))
        wait_until(lambda: is_blocked(second.backend_pid))
    opened = read(second.result(), 200)
    assert (opened["id"], opened["is_new"]) == (str(first.pk), False)
    assert Batch.objects.count() == 1


def test_a_list_that_takes_too_long_is_given_up(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "LIST_SECONDS", 0.2)
    with connect(autocommit=False) as other:
        other.execute("LOCK TABLE pgjobs_job, pgjobs_batch IN ACCESS EXCLUSIVE MODE")
        for address in ("jobs", "workflows"):
            answer = api.get(address)
            assert (answer.status_code, problem_of(answer)) == (503, "unavailable")
            assert answer["Retry-After"]
    assert read(api.get("jobs"))["jobs"] == []


def test_a_job_that_somebody_has_locked_is_not_cancelled_now(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "LOCKED_SECONDS", 0.1)
    job_id = make_job(ADD, args=[1, 2])
    with connect(autocommit=False) as other:
        other.execute("SELECT FROM pgjobs_job WHERE id = %s FOR UPDATE", [job_id])
        assert problem_of(api.delete(f"jobs/{job_id}")) == "unavailable"
    assert read(api.delete(f"jobs/{job_id}"), 202)["status"] == "cancelled"


def test_results_are_read_in_chunks_and_a_page_is_not_too_large(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "CHUNK", 2)
    flow = read(api.post("workflows", {"name": "large", "jobs": sums(*[(1, 1)] * 5)}), 201)["id"]
    run_jobs()
    address = f"workflows/{flow}/results"
    assert len(read(api.get(address))["results"]) == 5
    monkeypatch.setattr(results, "MAX_CHARACTERS", 2)
    first = read(api.get(address))
    assert len(first["results"]) == 3
    rest = read(api.get(f"{address}?cursor={first['cursor']}"))
    assert (len(rest["results"]), rest["cursor"]) == (2, None)
