"""A log line that cannot be written costs the line, never a job or the worker."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import pytest

from django_pgjobs.exceptions import JobCancelled
from django_pgjobs.worker.role import Role
from django_pgjobs.worker.safe_log import get_logger
from tests import tasks as common
from tests.factories import count_jobs
from tests.helpers import wait_until
from tests.process import tasks as plain
from tests.worker.support import ThreadedWorker

LOUD = logging.getLogger("django_pgjobs.worker")


class Unwritable(BaseException):
    """What no handler of exceptions expects."""


def refuse(*_: Any) -> NoReturn:
    raise Unwritable


def raise_value_error(*_: Any) -> NoReturn:
    raise ValueError("I/O operation on closed file")


def raise_system_exit(*_: Any) -> NoReturn:
    raise SystemExit(3)


@pytest.fixture(params=["emit", "filter", "format"])
def place(request: pytest.FixtureRequest) -> str:
    """Where in a handler of the project something goes wrong."""
    return str(request.param)


@pytest.fixture(params=[refuse, raise_value_error, raise_system_exit])
def broken_handler(request: pytest.FixtureRequest, place: str) -> Iterator[logging.Handler]:
    """A handler of the engine's lines that raises, whatever it is given."""
    handler = logging.StreamHandler(sys.stderr)
    setattr(handler, place, request.param)
    handler.handleError = request.param  # type: ignore[method-assign]
    level = LOUD.level
    LOUD.addHandler(handler)
    LOUD.setLevel(logging.DEBUG)
    yield handler
    LOUD.removeHandler(handler)
    LOUD.setLevel(level)


@pytest.mark.usefixtures("broken_handler")
def test_nothing_that_a_handler_raises_reaches_who_logs() -> None:
    logger = get_logger("django_pgjobs.worker.any")
    for log in (logger.debug, logger.info, logger.warning, logger.error, logger.critical):
        log("job=%s", 1)
    logger.error("job=%s", 1, exc_info=ValueError())


def test_the_interruption_of_a_job_is_not_kept_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(record: logging.LogRecord) -> NoReturn:
        raise JobCancelled

    monkeypatch.setattr(LOUD, "handle", interrupt)
    with pytest.raises(JobCancelled):
        get_logger("django_pgjobs.worker").error("job=1")


def test_a_line_names_the_place_that_wrote_it(caplog: pytest.LogCaptureFixture) -> None:
    get_logger("django_pgjobs.worker.any").error("here")
    try:
        raise KeyError
    except KeyError:
        get_logger("django_pgjobs.worker.any").exception("here")
    assert [record.filename for record in caplog.records] == ["test_safe_log.py"] * 2
    assert caplog.records[-1].exc_info is not None


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("broken_handler")
def test_jobs_run_although_no_line_about_them_can_be_written(
    start_thread: Callable[..., ThreadedWorker], tmp_path: Any
) -> None:
    for number in range(5):
        common.add.enqueue(number, 1)
        plain.note_async.enqueue(str(tmp_path), str(number))
        plain.fail_secretly.using(max_attempts=1).enqueue("x")
    worker = start_thread(concurrency=2)
    wait_until(lambda: count_jobs(status="successful") == 10 and count_jobs(status="failed") == 5)
    assert worker.stop() == 0


def test_a_role_that_crashes_says_so_before_it_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    crashed: list[str] = []

    class Crashing(Role):
        name = "crashing"

        def run(self) -> None:
            raise Unwritable

    def log(*_: Any, **__: Any) -> None:
        assert crashed == ["crashing"]
        crashed.append("logged")

    monkeypatch.setattr(logging.Logger, "log", log)
    role = Crashing(crashed.append)
    role.start()
    role.join()
    assert crashed == ["crashing", "logged"]
