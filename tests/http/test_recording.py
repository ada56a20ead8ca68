"""The thread of a web process that writes what workers over HTTP ran."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from django_pgjobs.http import recording as module
from django_pgjobs.http.pool import borrowed, pool
from django_pgjobs.http.recording import Recording
from django_pgjobs.http.station import station
from django_pgjobs.models import Statistic
from django_pgjobs.queries import statistics
from django_pgjobs.queries.jobs import Rescued
from django_pgjobs.worker.running.tally import Tally
from tests.helpers import wait_until
from tests.http import tasks
from tests.http.support import Api
from tests.http.workers import Remote

pytestmark = pytest.mark.django_db(transaction=True)


def test_it_ends_when_there_is_nothing_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would open a connection once a minute, for nobody."""
    monkeypatch.setattr(module, "SPREAD_SECONDS", 0.0)
    tally = Tally()
    monkeypatch.setattr(tally, "next_close", lambda: 0.0)
    recording = Recording(tally)
    for _ in range(2):
        recording.begin()
        wait_until(lambda: recording._thread is None)


@pytest.fixture
def tally() -> Tally:
    """A tally with one attempt of a lost worker."""
    counted = Tally()
    counted.note_rescued([Rescued(1, "a.b", "mail", "ready", 1, None)])
    return counted


def test_without_a_server_nothing_is_lost(tally: Tally, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise psycopg.OperationalError("no server")

    pool.close()
    with monkeypatch.context() as patch:
        patch.setattr(psycopg, "connect", refuse)
        Recording(tally).write(is_last=True)
    assert not tally.is_empty
    Recording(tally).write(is_last=True)
    assert Statistic.objects.get().lost == 1


def test_what_may_be_written_is_not_written_again(
    tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_off(*_: Any, **__: Any) -> Any:
        raise psycopg.OperationalError("gone")

    monkeypatch.setattr(statistics, "write_statistics", break_off)
    Recording(tally).write(is_last=True)
    assert tally.is_empty


def test_an_error_that_is_not_the_databases_does_not_end_the_thread(
    tally: Tally, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing would be written any more: nobody begins another one while there seems to be one."""
    monkeypatch.setattr(module, "SPREAD_SECONDS", 0.0)
    monkeypatch.setattr(tally, "next_close", lambda: 0.0)
    monkeypatch.setattr(
        tally, "write", lambda connection, is_last: Tally.write(tally, connection, is_last=True)
    )
    errors = [ValueError("of the clock"), ValueError("of the write")]

    def lend() -> Any:
        if errors:
            raise errors.pop(0)
        return borrowed()

    monkeypatch.setattr(module, "borrowed", lend)
    recording = Recording(tally)
    recording.begin()
    wait_until(lambda: recording._thread is None)
    assert Statistic.objects.get().lost == 1
    assert "of the clock" in caplog.text and "of the write" in caplog.text


def test_a_result_that_is_said_again_counts_once(api: Api) -> None:
    """As by a client to which the answer was lost."""
    tasks.resize.enqueue(1)
    worker = Remote(api)
    [given] = worker.claim()
    answers = [worker.say(given, "result", {"result": 5}).status_code for _ in range(2)]
    station.end()
    assert (answers, Statistic.objects.get().successful) == ([200, 409], 1)
