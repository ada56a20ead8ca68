"""What a worker writes: one event per line, nothing secret, nothing forged."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import django
import pytest

from django_pgjobs.values.moments import logged_duration
from tests import tasks as common
from tests.factories import get_job, make_job, make_running_job, make_worker
from tests.helpers import ROOT, WorkerProcess, wait_until
from tests.models import Effect
from tests.process import tasks
from tests.process.support import backends_of, terminate, wait_for_status

pytestmark = [pytest.mark.process, pytest.mark.django_db(transaction=True)]

Start = Callable[..., WorkerProcess]

FORGED = "18:47:03.118 done    forged.task #1"
EVENT = re.compile(r"\d\d:\d\d:\d\d\.\d{3} \S")


def enqueue_all_kinds() -> dict[str, int]:
    """Enqueue a job for each outcome, all with the same secret; return event -> id."""
    canary = "canary-4711"
    jobs = {
        "done": common.echo.enqueue(canary, key=canary),
        "RETRY": tasks.fail_secretly.using(max_attempts=2).enqueue(canary),
        "FAIL": tasks.fail_secretly.using(max_attempts=1).enqueue(canary),
        "snooze": tasks.snooze_once.enqueue(canary),
    }
    events = {event: int(job.id) for event, job in jobs.items()}
    events["unknown"] = make_job("nowhere.task", args=[canary])
    events["wrong arguments"] = make_job("tests.tasks.add", args=[canary])
    return events


def test_json_lines_parse_and_hold_the_fields_of_the_event(start: Start) -> None:
    """S1.23."""
    events = enqueue_all_kinds()
    worker = start("--drain", "--log-format", "json", "-v", "3", "--name", "w")
    assert worker.wait() == 0
    entries = [json.loads(line) for line in worker.output().splitlines()]
    [done] = [entry for entry in entries if entry.get("event") == "done"]
    assert done.keys() >= {"time", "level", "logger", "message", "job", "task"}
    # Text in the line for people, seconds for programs.
    assert isinstance(done["ran"], float)
    assert f"ran={logged_duration(done['ran'])}" in done["message"]
    assert done | {"job": events["done"], "attempt": "1/25", "worker": "w"} == done
    found = {(entry["event"], entry["job"]) for entry in entries if "event" in entry}
    for event in ("done", "RETRY", "FAIL", "snooze", "unknown"):
        assert (event, events[event]) in found
    assert "canary-4711" not in worker.output()


def test_json_lines_begin_with_what_runs_and_with_warnings(start: Start) -> None:
    """A container mixes both outputs, and who collects them takes each line for an object."""
    worker = start("--drain", "--log-format", "json", "-q", "malle")
    assert worker.wait() == 0
    entries = [json.loads(line) for line in worker.output().splitlines()]
    assert entries[0]["message"].startswith("django-pgjobs ")
    [warning] = [each["message"] for each in entries if each["level"] == "WARNING"]
    assert warning == "no task and no waiting job uses the queue 'malle'. Is it spelt right?"
    assert not any("Ctrl-C" in each["message"] for each in entries)


def test_text_lines_are_one_per_event_and_never_hold_arguments(start: Start) -> None:
    """S1.23."""
    events = enqueue_all_kinds()
    worker = start("--drain", "-v", "3")
    assert worker.wait() == 0
    said = worker.output()
    for event in ("done", "RETRY", "FAIL", "snooze", "unknown"):
        assert re.search(rf"^\d\S+ {event} +\S+ #{events[event]} ", said, re.MULTILINE), said
    assert "canary-4711" not in said
    assert get_job(events["wrong arguments"]).status != "running"


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_rescue_is_an_event_like_the_others(start: Start, log_format: str) -> None:
    lost = make_running_job(
        make_worker(lease_seconds=-1.0), task_path="tests.tasks.add", queue_name="mail", attempts=2
    )
    last = make_running_job(make_worker(lease_seconds=-1.0), max_losses=1)
    worker = start("--drain", "--name", "w", "--log-format", log_format, wait=False)
    assert worker.wait() == 0
    said = worker.output()
    if log_format == "text":
        words = rf"attempt=2 queue=mail worker=w lost_worker=#{lost.worker_id} status=ready"
        assert re.search(
            rf"^\d\S+ rescue  tests\.tasks\.add #{lost.id} {words}$", said, re.MULTILINE
        )
        assert re.search(rf"^\d\S+ rescue  \S+ #{last.id} .* status=failed$", said, re.MULTILINE)
        return
    entries = [json.loads(line) for line in said.splitlines() if '"rescue"' in line]
    by_job = {entry["job"]: entry for entry in entries}
    assert (by_job[lost.id]["level"], by_job[last.id]["level"]) == ("WARNING", "ERROR")
    fields = {"task": "tests.tasks.add", "attempt": "2", "queue": "mail", "worker": "w"}
    fields |= {"event": "rescue", "lost_worker": f"#{lost.worker_id}", "status": "ready"}
    assert fields.items() <= by_job[lost.id].items()


def test_nothing_in_a_row_can_forge_a_line(start: Start) -> None:
    """Control characters in a path or a message, also when a job is rescued."""
    path = f"evil\n{FORGED}"
    make_job(path)
    make_job(f"evil\r\u2028{FORGED}")
    make_job("tests.tasks.fail_once", args=[f"evil\n{FORGED}"])
    make_running_job(make_worker(f"evil\n{FORGED}", lease_seconds=-1.0), task_path=path)
    worker = start("--drain", "--name", "worker")
    assert worker.wait() == 0
    assert worker.output().count("forged.task") >= 5
    for line in re.split(r"[\n\r\u2028\u2029\x85\x0b\x0c]", worker.output()):
        assert not line.startswith(FORGED), worker.output()


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_what_server_and_driver_say_is_one_line_too(start: Start, log_format: str) -> None:
    """Messages of PostgreSQL may have several; psycopg writes of its own accord."""
    worker = start("--poll-interval", "0.05", "--log-format", log_format)
    before = worker.output().count("\n")
    for _ in range(3):
        # The others connect anew without a word if they were at rest.
        wait_until(lambda: backends_of("upkeep"))
        answers = worker.output().count("the database answers again")
        terminate(backends_of())
        wait_until(
            lambda answers=answers: worker.output().count("the database answers again") > answers,
            message=worker.output,
        )
    assert worker.stop() == 0
    for line in worker.output().splitlines()[before:]:
        assert EVENT.match(line) if log_format == "text" else json.loads(line), worker.output()


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_what_an_async_job_leaves_behind_is_in_the_log(start: Start, log_format: str) -> None:
    """Asyncio writes of its own accord, as plain text where nobody has a handler for it."""
    worker = start("--log-format", log_format)
    before = worker.output().count("\n")
    wait_for_status(tasks.fail_behind.enqueue(), "successful")
    worker.wait_for_output("left\\nbehind" if log_format == "json" else "ValueError: left")
    assert worker.stop() == 0
    for line in worker.output().splitlines()[before:]:
        if log_format == "json":
            json.loads(line)
        else:
            assert EVENT.match(line) or line.startswith("    "), worker.output()


def test_a_receiver_that_raises_harms_neither_job_nor_worker(start: Start) -> None:
    """The worker goes on."""
    worker = start(modules=("tests.process.receivers",))
    jobs = [common.add.enqueue(1, 2), common.add_async.enqueue(1, 2)]
    jobs += [common.record_atomic.enqueue("key"), common.record.enqueue("key")]
    for job in jobs:
        assert wait_for_status(job, "successful", worker=worker).attempts == 1
    worker.wait_for_output("raised RuntimeError('the receiver failed')")
    assert Effect.objects.count() == 2
    assert worker.stop() == 0


def test_debug_keeps_no_queries(start: Start) -> None:
    """Django with DEBUG keeps the last 9,000 queries of every connection."""
    start("-c", "1", settings={"DEBUG": True})
    for _ in range(3):
        row = wait_for_status(tasks.query.enqueue(200), "successful")
        assert row.result < 20
    for _ in range(2):
        row = wait_for_status(tasks.query_async.enqueue(200), "successful")
        assert row.result < 20


def test_a_task_that_closes_standard_error_costs_the_log_only(start: Start) -> None:
    closing = tasks.close_stderr.enqueue()
    worker = start("-c", "2")
    wait_for_status(closing, "successful")
    jobs = [common.add.enqueue(number, 1) for number in range(20)]
    failing = tasks.fail_secretly.using(max_attempts=2).enqueue("x")
    for job in jobs:
        wait_for_status(job, "successful")
    wait_for_status(failing, "failed")
    assert worker.stop() == 0


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_failure_is_one_event_for_a_tracker_of_errors(start: Start, log_format: str) -> None:
    """Django logs failed tasks too; that line is off, as ours has the exception."""
    tasks.fail_secretly.using(max_attempts=2).enqueue("canary-4711")
    worker = start("--drain", "--log-format", log_format, modules=("tests.process.tracker",))
    assert worker.wait() == 0
    events = [line for line in worker.output().splitlines() if line.startswith("EVENT ")]
    [event] = [json.loads(line.removeprefix("EVENT ")) for line in events]
    assert event == {
        "logger": "django_pgjobs.worker", "template": "FAIL    %s #%d %s", "raised": "Mishap",
    }  # fmt: skip


def test_admins_get_one_mail_per_failure_as_the_docs_say(start: Start, tmp_path: Path) -> None:
    """The example of docs/workers.md, and the lines on standard error as before."""
    page = (ROOT / "docs/workers.md").read_text()
    [example] = re.findall(r"^```python\n(LOGGING = .*?)^```$", page, re.MULTILINE | re.DOTALL)
    settings: dict[str, Any] = {}
    exec(example, settings)
    ann = "ann@example.com" if django.VERSION >= (6,) else ["Ann", "ann@example.com"]
    job = tasks.fail_secretly.using(max_attempts=2).enqueue("canary-4711")
    worker = start(
        "--drain",
        settings={
            "LOGGING": settings["LOGGING"],
            "ADMINS": [ann],
            "EMAIL_BACKEND": "django.core.mail.backends.filebased.EmailBackend",
            "EMAIL_FILE_PATH": str(tmp_path),
        },
    )  # fmt: skip
    assert worker.wait() == 0
    [mail] = [each for file in tmp_path.iterdir() for each in file.read_text().split("-" * 79)[:-1]]
    mail = mail.replace("=\n", "")  # where a mail breaks a line depends on the folder of the tests
    assert f"ERROR: FAIL    tests.process.tasks.fail_secretly #{job.id}" in mail
    assert "Mishap" in mail and "on purpose" in mail and "in fail_secretly" in mail
    assert "canary-4711" not in mail
    assert f" FAIL    tests.process.tasks.fail_secretly #{job.id}" in worker.output()
