"""`manage.py jobs stats`, and what all lists of `jobs` have in common."""

from __future__ import annotations

import io
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command, load_command_class
from django.db import connection
from django.db.models.functions import Now
from django.utils import translation
from psycopg import sql

from django_pgjobs import pause, workflow
from django_pgjobs.exceptions import TooSlow
from django_pgjobs.management import stats
from django_pgjobs.models import Pause, QueueSample, QueueSettings
from django_pgjobs.queries import numbers, queue_pages
from django_pgjobs.queries.statistics import Cell, Minute, measure_queues, write_statistics
from django_pgjobs.status import PauseKind
from django_pgjobs.values.words import CONTROL
from tests import tasks
from tests.admin.overview_support import record
from tests.admin.test_failures import make_failed
from tests.factories import ago, make_job, make_jobs, make_running_job, make_worker
from tests.helpers import end_session, sleep_by
from tests.test_stuck import usually
from tests.worker.tasks import backend_pid

pytestmark = pytest.mark.django_db

NOW = sql.SQL("now()")
LATER = sql.SQL("now() + interval '1 hour'")
ALL_LISTS = (["stats"], ["failures"], ["workers"])


def rows_of(printed: str) -> list[list[str]]:
    """Return the cells of a table, between two spaces at least, without its head."""
    return [
        [cell.strip() for cell in line.split("  ") if cell] for line in printed.splitlines()[1:]
    ]


class Terminal(io.StringIO):
    """A terminal that remembers what was written to it."""

    def isatty(self) -> bool:
        return True


def test_stats_has_a_line_per_queue_with_what_waits_and_runs(run: Any) -> None:
    worker = make_worker()
    make_running_job(worker, queue_name="mail")
    make_jobs(3, queue_name="mail", ready_at=ago(7_200))
    make_job(queue_name="mail", due_at=LATER)
    make_jobs(2, queue_name="mail", due_at=LATER, attempts=1)
    make_job(queue_name="mail", hold="dependencies")
    make_job(queue_name="alone", due_at=LATER)
    head, *_ = printed = run("stats").splitlines()
    assert head.split() == list(stats.HEADS)
    alone, mail = rows_of("\n".join(printed))
    assert alone[:7] == ["alone", "active", "0", "0", "0", "1", "0"]
    assert mail[:8] == ["mail", "active", "3", "1", "2", "1", "1", "2 h"]
    assert len(printed) == 3


def test_stats_shows_how_much_ended_and_for_how_long_it_ran(run: Any) -> None:
    make_jobs(30, queue_name="mail", status="successful", finished_at=ago(200))
    make_jobs(10, queue_name="mail", status="failed", finished_at=ago(200))
    make_job(queue_name="idle", due_at=LATER)
    record()
    idle, mail = rows_of(run("stats"))
    assert idle[-4:] == ["0.0", "-", "-", "-"]
    assert mail[-4:-2] == ["8.0", "25.0"]
    by_name = {row["queue_name"]: row for row in json.loads(run("stats", "--json"))}
    assert by_name["mail"]["finished_per_minute"] == 8.0
    assert (by_name["mail"]["finished_hour"], by_name["mail"]["failed_hour"]) == (40, 10)


def test_of_queues_that_are_counted_together_no_rate_is_known(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_pgjobs.control.numbers.MAX_QUEUES", 1)
    make_jobs(10, queue_name="mail", status="successful", finished_at=ago(200))
    make_jobs(5, queue_name="fax", status="successful", finished_at=ago(200))
    record()
    assert {row[0]: row[8] for row in rows_of(run("stats"))} == {"fax": "-", "mail": "2.0"}


def test_stats_shows_half_and_95_percent_of_the_times(run: Any) -> None:
    cell = Cell([100, 0, 0, 0])
    cell.waits[2], cell.runs[4], cell.runs[14] = 100, 90, 10
    minute = int(datetime.now(UTC).timestamp()) // 60 - 5
    with connection.cursor() as cursor:
        write_statistics(cursor, [Minute(minute, {("mail", "a"): cell})])
    [mail] = rows_of(run("stats"))
    # The ends of their classes: at most that is true of all that is in one.
    assert mail[-2:] == ["16 ms", "16.4 s"]
    [row] = json.loads(run("stats", "--json"))
    assert row["run_seconds"] == {"p50": 0.016, "p95": 16.384}
    assert row["wait_seconds"] == {"p50": 0.004, "p95": 0.004}


def test_stats_says_who_paused_a_queue_and_why(run: Any) -> None:
    make_worker()
    pause(queue="reports", reason="PDF bug\nin 2.1", by="anna", until=timedelta(hours=3))
    pause(queue="mail")
    _, mail, reports, *said = run("stats").splitlines()
    assert (mail.split()[1], reports.split()[1]) == ("PAUSED", "PAUSED")
    assert said[0].startswith("queue mail: paused ")
    assert said[0].endswith(" ago")
    assert said[1].startswith("queue reports: paused by anna ")
    assert said[1].endswith(" ago (resumes in 2 h 59 min): PDF bug in 2.1")
    found = {row["queue_name"]: row for row in json.loads(run("stats", "--json"))}
    assert (found["reports"]["state"], found["reports"]["paused_by"]) == ("paused", "anna")
    assert found["reports"]["pause_reason"] == "PDF bug\nin 2.1"


def test_stats_says_which_tasks_and_keys_are_paused(run: Any) -> None:
    """Their jobs are ready, and wait in a queue that is active."""
    make_worker()
    make_job("tests.tasks.fail", queue_name="mail")
    pause(task="tests.tasks.fail", reason="smtp is down", by="anna")
    pause(key="shop:*", until=timedelta(hours=3))
    mail, key, task = run("stats").splitlines()[1:]
    assert mail.split()[:3] == ["mail", "active", "1"]
    assert key.startswith("key shop:*: paused ")
    assert key.endswith(" ago (resumes in 2 h 59 min)")
    assert task.startswith("task tests.tasks.fail: paused by anna ")
    assert task.endswith(" ago: smtp is down")


def test_stats_says_that_there_may_be_more_pauses(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_pages, "MAX_PAUSES", 2)
    for number in range(3):
        pause(key=f"shop:{number}")
    said = "there may be more pauses; 2 of tasks and keys are shown."
    assert run("stats").splitlines()[-1] == said


def test_stats_warns_of_a_queue_that_no_live_worker_takes(run: Any) -> None:
    make_worker(queues=["mail"])
    make_job(queue_name="mail")
    make_job(queue_name="fax")
    make_jobs(2, queue_name="telex")
    assert run("stats").splitlines()[-2:] == [
        "WARNING queue fax: 1 job is ready and no live worker takes it.",
        "WARNING queue telex: 2 jobs are ready and no live worker takes them.",
    ]
    found = {row["queue_name"]: row["is_unserved"] for row in json.loads(run("stats", "--json"))}
    assert found == {"fax": True, "mail": False, "telex": True}


def test_of_more_jobs_than_are_counted_the_warning_says_so(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numbers, "FEW", 2)
    make_jobs(9, queue_name="fax")
    printed = run("stats").splitlines()
    ready = rows_of("\n".join(printed))[0][2]
    assert ready.endswith("+")
    assert (
        printed[-1] == f"WARNING queue fax: {ready} jobs are ready and no live worker takes them."
    )


def test_stats_shows_the_limit_of_a_queue_and_what_is_not_counted(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    QueueSettings.objects.create(queue_name="mail", max_running=4)
    make_running_job(make_worker(), queue_name="mail")
    assert rows_of(run("stats"))[0][2:4] == ["0", "1/4"]
    monkeypatch.setattr(numbers, "FEW", 2)
    make_jobs(9, queue_name="mail")
    assert rows_of(run("stats"))[0][2:4] == ["2+", "1+/4"]


def test_stats_takes_as_many_statements_for_many_queues_as_for_one(
    run: Any, django_assert_max_num_queries: Any
) -> None:
    make_worker()
    for number in range(61):
        make_job(queue_name=f"queue {number:02}")
    with django_assert_max_num_queries(8):
        *rows, note = run("stats").splitlines()[1:]
    assert len(rows) == 60
    assert note == "there are more queues; the first 60 are shown."


def test_stats_says_how_old_a_sample_is(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "FEW", 2)
    make_worker()
    make_jobs(9, queue_name="mail")
    with connection.cursor() as cursor:
        measure_queues(cursor)
    assert len(run("stats").splitlines()) == 2
    QueueSample.objects.update(measured_at=Now() - timedelta(seconds=120))
    _, mail, note = run("stats").splitlines()
    assert mail.split()[2] == "9"
    assert re.fullmatch(r"what waits and runs is as of 2 min( [0-9]+ s)? ago\.", note)


def watch(monkeypatch: pytest.MonkeyPatch, screen: io.StringIO, *words: str) -> list[float]:
    """Watch until somebody types Ctrl-C in the third pause; return the pauses."""
    pauses: list[float] = []

    def pause_once(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    sleep_by(monkeypatch, pause_once)
    with pytest.raises(KeyboardInterrupt):
        call_command("jobs", "stats", "--watch", *words, stdout=screen)
    return pauses


def test_stats_is_drawn_anew_until_somebody_has_seen_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_job(queue_name="mail")
    terminal, pipe = Terminal(), io.StringIO()
    assert watch(monkeypatch, terminal) == [2, 2, 2]
    drawings = terminal.getvalue().split(stats.CLEAR)
    assert drawings[0] == ""
    assert [drawing.splitlines()[2].split()[0] for drawing in drawings[1:]] == ["mail"] * 3
    assert watch(monkeypatch, pipe, "5") == [5, 5, 5]
    assert "\x1b" not in pipe.getvalue()
    assert len([line for line in pipe.getvalue().splitlines() if line.startswith("--- ")]) == 3


@pytest.mark.django_db(transaction=True)
def test_a_watch_goes_on_when_the_database_is_there_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def cut(seconds: float) -> None:
        end_session(backend_pid())
        sleep_by(monkeypatch, end)

    def end(seconds: float) -> None:
        if capsys.readouterr().err.startswith("the database is away, trying again: "):
            return
        raise KeyboardInterrupt

    screen = io.StringIO()
    sleep_by(monkeypatch, cut)
    with pytest.raises(KeyboardInterrupt):
        call_command("jobs", "stats", "--watch", stdout=screen)
    assert screen.getvalue().count("\n--- ") == 1  # a second time


def test_ctrl_c_ends_a_watch_with_the_status_of_every_ctrl_c(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    sleep_by(monkeypatch, interrupt)
    command = load_command_class("django_pgjobs", "jobs")
    with pytest.raises(SystemExit) as caught:
        command.run_from_argv(["manage.py", "jobs", "stats", "--watch"])
    assert caught.value.code == 130
    assert capsys.readouterr().err == ""


def test_a_program_does_not_watch() -> None:
    with pytest.raises(CommandError, match="not allowed with"):
        call_command("jobs", "stats", "--watch", "--json")


# All of them


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["stats"], "no queue has jobs, settings, a pause or a worker of its own."),
        (["failures"], "no job has failed."),
        (["workers"], "no worker has run in the last 24 hours. Start one: manage.py runjobs."),
    ],
)
def test_a_list_of_nothing_says_so(run: Any, words: list[str], said: str) -> None:
    assert run(*words) == f"{said}\n"
    assert json.loads(run(*words, "--json")) == []


def make_all(text: str) -> None:
    """Make a queue, a failure and a worker that are called *text*."""
    make_job(queue_name=text, ready_at=ago(3.5))
    make_failed(text, name=text, task_path=text, finished_at=ago(3.5))
    make_worker(text, host=text, queues=[text], version=text, heartbeat_at=ago(3.5))
    for kind in PauseKind:
        Pause.objects.create(kind=kind, name=text, reason=text, paused_by=text, paused_at=Now())


@pytest.mark.parametrize("words", ALL_LISTS, ids=" ".join)
def test_what_rows_say_steers_no_terminal_and_begins_no_line(run: Any, words: list[str]) -> None:
    hostile = "a\x1b[31m\u202eb\x9b\nc"
    make_all(hostile)
    printed = run(*words)
    assert "a\\x1b[31m\\x202eb\\x9b" in printed
    assert printed.translate(CONTROL) == printed.replace("\n", "\\x0a")
    assert not [line for line in printed.splitlines() if line.startswith("c")]
    as_json = run(*words, "--json")
    assert as_json.translate(CONTROL) == as_json.replace("\n", "\\x0a")
    assert repr(hostile)[1:-1] in repr(json.loads(as_json))


@pytest.mark.parametrize("words", ALL_LISTS, ids=" ".join)
def test_tables_are_english_whatever_the_project_speaks(run: Any, words: list[str]) -> None:
    make_all("mail")
    with translation.override("de"):
        printed = run(*words)
    assert re.search(r" [0-9]+[.][0-9] s", printed)


def test_reasons_are_english_whatever_the_project_speaks(run: Any) -> None:
    make_worker(task_paths=["tests.tasks.add"])
    waiting = make_job()
    with workflow("payroll") as flow:
        flow.add(tasks.add.s(1, 1))
    usually(12)
    make_running_job(last_attempted_at=ago(7_200))
    with translation.override("de"):
        assert f"job {waiting}: ready to run\n  Nothing holds" in run("explain", waiting)
        assert "look there what it waits for." in run("workflows", "show", flow.pk)
        assert "It has run for 2 h; jobs of its task usually take 2.0 s" in run("stuck")


@pytest.mark.parametrize(
    "words",
    [
        *ALL_LISTS,
        *(["doctor"], ["limits"], ["list"], ["mutes"], ["stuck"]),
        *(["workflows"], ["workflows", "show", "1"]),
    ],
    ids=" ".join,
)
def test_a_database_that_takes_too_long_is_told(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise TooSlow("too slow")

    monkeypatch.setattr("django_pgjobs.management.reading.time_budget", refuse)
    with pytest.raises(CommandError, match="did not answer within 15 s") as caught:
        call_command("jobs", *words)
    assert caught.value.returncode == 1


@pytest.mark.parametrize("words", ALL_LISTS, ids=" ".join)
def test_the_help_explains_each_column(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    command = load_command_class("django_pgjobs", "jobs").create_parser("manage.py", "jobs")
    with pytest.raises(SystemExit):
        command.parse_args([*words, "--help"])
    said = capsys.readouterr().out
    module = __import__(f"django_pgjobs.management.{words[0]}", fromlist=["HEADS"])
    plain = {"queue", "id", "slots", "version", "task", "error"}
    assert [head for head in module.HEADS if head not in plain and head not in said] == []


# Lists


@pytest.mark.parametrize("words", [["list"], ["workflows"]], ids=" ".join)
def test_a_list_that_ends_at_its_limit_says_so_beside_the_table(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside it: scripts take all lines of the table but the first."""
    for name in "abc":
        with workflow(name) as flow:
            flow.add(tasks.add.s(1, 1))
    call_command("jobs", *words, "--limit", "2", force_color=True)
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 3
    assert printed.err == "there are more: --limit is 2.\n"
    call_command("jobs", *words, "--limit", "3")
    assert capsys.readouterr().err == ""


def test_a_name_that_nobody_knows_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("jobs", "list", "--task", "echo", "--queue", "mial")
    first, second = capsys.readouterr().err.splitlines()
    assert first == "WARNING no task echo is declared here. Did you mean tests.tasks.echo?"
    assert second.endswith("uses the queue 'mial'. Is it spelt right?")
