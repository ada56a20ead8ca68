"""Django's own lines of a job that a worker over HTTP has run: the web process leaves them out."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from django_pgjobs import signals
from django_pgjobs.compat import TASKS_PACKAGE
from django_pgjobs.http.station import station
from django_pgjobs.signals import task_finished
from tests.http import tasks
from tests.http.support import Api
from tests.http.workers import Remote


def lines_of_a_failure(api: Api, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return who logs an error of a job that fails for good."""
    signals._answers.clear()
    tasks.convert.enqueue()
    worker = Remote(api)
    [given] = worker.claim()
    worker.say(given, "failure", {"error": {"type": "OutOfPaper"}, "retry": False})
    station.end()
    signals._answers.clear()
    return [each.name for each in caplog.records if each.levelno == logging.ERROR]


@pytest.mark.parametrize("others", [True, False])
def test_a_failure_is_one_error(api: Api, caplog: pytest.LogCaptureFixture, others: bool) -> None:
    """One mail to ADMINS or event for a tracker, also if the project has a receiver of its own."""
    told: list[Any] = []

    def receive(sender: Any, task_result: Any, **kwargs: Any) -> None:
        told.append(task_result)

    if others:
        task_finished.connect(receive)
    try:
        assert lines_of_a_failure(api, caplog) == ["django_pgjobs.worker"]
    finally:
        task_finished.disconnect(receive)
    assert len(told) == others


def test_a_project_that_sets_the_level_gets_them(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger=TASKS_PACKAGE):
        lines = lines_of_a_failure(api, caplog)
    assert sorted(lines) == sorted(["django_pgjobs.worker", TASKS_PACKAGE])
