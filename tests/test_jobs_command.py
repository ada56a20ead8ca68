"""`manage.py jobs`: what it prints, what it changes, and its exit status."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db.models.functions import Now
from django.utils import translation
from psycopg import sql

from django_pgjobs import pause, workflow
from django_pgjobs.models import Batch, Pause
from django_pgjobs.values.words import CONTROL
from tests import tasks
from tests.factories import get_job, make_job, make_jobs, make_running_job, make_worker
from tests.helpers import connect

pytestmark = pytest.mark.django_db


def status_of(*words: object) -> int:
    """Return the exit status of `jobs`."""
    with pytest.raises(CommandError) as caught:
        call_command("jobs", *map(str, words))
    return caught.value.returncode


def test_explain_says_whether_the_job_can_run_and_why_not(run: Any) -> None:
    """S1.2."""
    make_worker(task_paths=["tests.tasks.add"])
    job_id = make_job(queue_name="mail")
    assert run("explain", job_id).startswith(f"job {job_id}: ready to run\n  Nothing holds it back")
    pause(queue="mail", reason="PDF bug", by="anna")
    lines = run("explain", job_id).splitlines()
    assert lines[0] == f"job {job_id}: waiting"
    assert "by anna, because: PDF bug. [queue_paused]" in lines[1]
    assert len(lines) == 2


def test_explain_of_a_running_job(run: Any) -> None:
    job = make_running_job()
    assert run("explain", job.id).startswith(f"job {job.id}: running\n  Worker test:1 runs it")


def test_explain_loads_the_tasks_to_know_remote_ones(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """Nothing else does in this command, which runs no checks."""
    code = "from django_pgjobs import task\n\n\n@task(remote=True)\ndef cut(): ...\n"
    (tmp_path / "not_loaded_yet.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    settings.PGJOBS = {"TASK_MODULES": ["not_loaded_yet"]}
    job_id = make_job("not_loaded_yet.cut")
    assert "[no_remote_worker]" in run("explain", job_id)


def test_explain_as_json(run: Any) -> None:
    worker = make_worker(task_paths=["tests.tasks.add"])
    running = make_running_job(worker, concurrency_key="shop:7").id
    job_id = make_job(concurrency_key="shop:7")
    found = json.loads(run("explain", job_id, "--json"))
    assert (found["job_id"], found["status"], found["is_ready_to_run"]) == (job_id, "ready", False)
    assert (found["reasons"][0]["code"], found["reasons"][0]["refs"]) == ("key_full", [running])


def test_explain_of_no_job_ends_with_1() -> None:
    assert status_of("explain", 4711) == 1
    assert status_of("show", 4711) == 1


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["explain"],
        ["explain", "soon"],
        ["explain", "0"],
        ["pause"],
        ["pause", "--queue", "mail", "--key", "shop:1"],
        ["pause", "--queue", "mail", "--for", "10"],
        ["pause", "--queue", "mail", "--for", "0m"],
        ["pause", "--queue", "mail", "--until", "soon"],
        ["pause", "--queue", "mail", "--until", "2026-13-01T00:00"],
        ["pause", "--queue", "mail", "--for", "1h", "--until", "2999-01-01T00:00"],
        ["resume"],
        ["list", "--limit", "0"],
        ["list", "--status", "done"],
        ["cancel"],
    ],
    ids=" ".join,
)
def test_wrong_use_is_refused(words: list[str]) -> None:
    with pytest.raises(CommandError):
        call_command("jobs", *words)
    assert not Pause.objects.exists()


@pytest.mark.parametrize(
    "words",
    [
        ["pause", "--queue", ""],
        ["pause", "--queue", "mail*"],
        ["pause", "--queue", "mail", "--until", "2020-01-01T00:00"],
        ["resume", "--key", ""],
    ],
    ids=" ".join,
)
def test_values_that_nothing_can_have_end_with_2(words: list[str]) -> None:
    assert status_of(*words) == 2


def test_a_pause_until_what_is_past_names_that_as_people_write_it() -> None:
    with pytest.raises(CommandError, match=r"future, got 2020-01-01 00:00:00[+]00:00\."):
        call_command("jobs", "pause", "--queue", "mail", "--until", "2020-01-01T00:00Z")


def test_pause_and_resume_say_what_they_changed(run: Any) -> None:
    """S1.15."""
    pausing = ["pause", "--queue", "mail", "--reason", "PDF bug", "--by", "anna"]
    assert run(*pausing) == "queue mail: paused\n"
    row = Pause.objects.get()
    assert (row.kind, row.name, row.reason, row.paused_by) == ("queue", "mail", "PDF bug", "anna")
    assert run(*pausing) == "queue mail: was paused like this\n"
    until = ["--until", "2050-12-24T18:00"]
    end = "until 2050-12-24 18:00:00 +0545"
    assert run(*pausing, *until).splitlines() == [
        f"queue mail: paused {end}",
        "  before: paused by anna: PDF bug",
    ]
    assert run("pause", "--queue", "mail", "--for", "90m").splitlines() == [
        "queue mail: paused for 1 h 30 min",
        f"  before: paused by anna {end}: PDF bug",
    ]
    assert run("resume", "--queue", "mail") == "queue mail: resumed\n"
    assert run("resume", "--queue", "mail") == "queue mail: was not paused\n"


@pytest.mark.parametrize(
    ("flag", "name"), [("task", "tests.tasks.add"), ("key", "shop:*"), ("queue", "mail")]
)
def test_each_kind_can_be_paused(run: Any, flag: str, name: str) -> None:
    run("pause", f"--{flag}", name)
    assert list(Pause.objects.values_list("kind", "name")) == [(flag, name)]
    run("resume", f"--{flag}", name)
    assert not Pause.objects.exists()


def test_a_task_that_is_not_declared_is_paused_with_a_warning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    call_command("jobs", "pause", "--task", "tests.tasks.ad")
    assert "no task tests.tasks.ad is declared here" in capsys.readouterr().err
    assert Pause.objects.exists()


def test_a_queue_that_nothing_uses_is_paused_with_a_warning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    call_command("jobs", "pause", "--queue", "mial")
    assert capsys.readouterr().err == (
        "WARNING no task and no waiting job uses the queue 'mial'. Is it spelt right?\n"
    )
    assert Pause.objects.exists()
    make_job(queue_name="mial")
    call_command("jobs", "pause", "--queue", "mial", "--reason", "by SQL")
    call_command("jobs", "pause", "--queue", "default")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("10m", 600), ("2h", 7_200), ("1d", 86_400)]
)
def test_a_pause_for_some_time(text: str, seconds: int) -> None:
    call_command("jobs", "pause", "--queue", "mail", "--for", text)
    row = Pause.objects.get()
    assert (row.resume_at - row.paused_at).total_seconds() == pytest.approx(seconds, abs=1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2999-01-01T00:00Z", datetime(2999, 1, 1, tzinfo=UTC)),
        # Kathmandu, the TIME_ZONE of the tests.
        ("2999-01-01T05:45", datetime(2999, 1, 1, tzinfo=UTC)),
        ("2999-01-01 00:00:00+01:00", datetime(2999, 1, 1, tzinfo=UTC) - timedelta(hours=1)),
    ],
)
def test_a_pause_until_an_instant(text: str, expected: datetime) -> None:
    call_command("jobs", "pause", "--queue", "mail", "--until", text)
    assert Pause.objects.get().resume_at == expected


def test_list_shows_unfinished_jobs_newest_first(run: Any) -> None:
    first, second = make_jobs(2, queue_name="mail")
    make_job(status="failed")
    lines = run("list").splitlines()
    assert lines[0].split()[:3] == ["id", "status", "queue_name"]
    assert [line.split()[0] for line in lines[1:]] == [str(second), str(first)]
    assert lines[1].split()[-1] == "tests.tasks.add"


def test_list_can_be_narrowed(run: Any) -> None:
    wanted = make_job(queue_name="mail")
    make_job()
    make_job("tests.tasks.echo", queue_name="mail")
    failed = make_job(status="failed")
    narrowed = run("list", "--queue", "mail", "--task", "tests.tasks.add", "--json")
    assert [row["id"] for row in json.loads(narrowed)] == [wanted]
    assert [row["id"] for row in json.loads(run("list", "--status", "failed", "--json"))] == [
        failed
    ]
    assert len(json.loads(run("list", "--limit", "2", "--json"))) == 2


def test_a_listed_job_says_what_the_list_of_the_admin_says(
    run: Any, django_assert_num_queries: Any
) -> None:
    pause(queue="mail")
    pause(task="tests.tasks.fail", until=timedelta(hours=1))
    pause(key="shop:*")
    soon = sql.SQL("now() + interval '1 hour'")
    wanted = {
        make_job(): ("ready", None),
        make_job(queue_name="mail"): ("ready (paused)", "paused"),
        make_job("tests.tasks.fail"): ("ready (paused)", "paused"),
        make_job(concurrency_key="shop:7"): ("ready (paused)", "paused"),
        make_job(queue_name="mail", due_at=soon): ("ready (scheduled)", "scheduled"),
        make_job(due_at=soon, attempts=1): ("ready (retrying)", "retrying"),
        make_job(hold="dependencies"): ("ready (waits for other jobs)", "dependencies"),
        make_running_job().id: ("running", None),
    }
    with django_assert_num_queries(6):  # two, in a savepoint with a limit of the time
        lines = run("list").splitlines()[1:]
    found = {row["id"]: row["detail"] for row in json.loads(run("list", "--json"))}
    assert found == {job_id: detail for job_id, (_, detail) in wanted.items()}
    for line in lines:
        job_id, rest = line.split(maxsplit=1)
        assert rest.startswith(f"{wanted[int(job_id)][0]}  "), line


def test_a_list_is_english_whatever_the_project_speaks(run: Any) -> None:
    make_job(hold="dependencies")
    with translation.override("de"):
        assert "ready (waits for other jobs)" in run("list")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["list"], "no ready or running job was found."),
        (["list", "--status", "failed", "--queue", "mail"], "no failed job was found."),
        (["stuck"], "no job looks stuck."),
        (["workflows"], "there are no workflows."),
        (["workflows", "--unfinished"], "no workflow is unfinished."),
        (["schedules", "list"], "the table has no schedules."),
        (["tokens", "list"], "no token is valid."),
        (["tokens", "list", "--all"], "there are no tokens."),
    ],
)
def test_a_list_of_nothing_says_so(run: Any, words: list[str], said: str) -> None:
    """In one line, as the head of a table is, which scripts pass over."""
    assert run(*words) == f"{said}\n"
    assert json.loads(run(*words, "--json")) == []


def test_cancel_and_requeue_change_what_they_can(run: Any) -> None:
    ready, other = make_jobs(2)
    assert run("cancel", ready, other) == f"job {ready}: cancelled\njob {other}: cancelled\n"
    assert get_job(ready).status == "cancelled"
    assert run("requeue", ready) == f"job {ready}: requeued\n"
    assert get_job(ready).status == "ready"


def test_cancel_of_a_running_job_says_that_it_is_asked_to_end(run: Any) -> None:
    job_id = make_running_job().id
    assert run("cancel", job_id) == f"job {job_id}: asked to end\n"
    assert get_job(job_id).status == "running"


def test_a_job_that_was_not_changed_ends_with_1_and_the_others_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    job_id, gone = make_job(), 4711
    with pytest.raises(CommandError, match="2 of 3 jobs were not cancelled"):
        call_command("jobs", "cancel", str(gone), str(job_id), str(job_id))
    said = [
        f"job {gone}: does not exist",
        f"job {job_id}: cancelled",
        f"job {job_id}: is cancelled",
    ]
    assert capsys.readouterr().out.splitlines() == said
    assert get_job(job_id).status == "cancelled"
    running = make_running_job().id
    assert status_of("requeue", running) == 1
    assert capsys.readouterr().out == f"job {running}: is running\n"


@pytest.mark.django_db(transaction=True)
def test_a_job_that_somebody_locks_is_named_and_the_others_are_changed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("django_pgjobs.control.lifecycle.LOCKED_SECONDS", 0.0)
    locked, free = make_jobs(2)
    with connect(autocommit=False) as other:
        other.execute("SELECT FROM pgjobs_job WHERE id = %s FOR UPDATE", [locked])
        assert status_of("cancel", locked, free) == 1
        other.rollback()
    assert f"job {locked}: is locked" in capsys.readouterr().out
    assert get_job(free).status == "cancelled"


def test_workflows_are_listed_newest_first_with_the_numbers_of_their_trees(run: Any) -> None:
    with workflow("payroll") as pay:
        each = pay.each(tasks.add.s(1))
        first_job, _ = pay.add(tasks.add.s(1, 1), tasks.add.s(2, 2))
    with workflow("empty"):
        pass
    head, *lines = run("workflows").splitlines()
    assert head.split()[:4] == ["id", "name", "state", "jobs"]
    assert [line.split()[1:4] for line in lines] == [
        ["empty", "successful", "0"],
        ["payroll", "running", "2"],
    ]
    assert [line.split()[1] for line in run("workflows", "--unfinished").splitlines()[1:]] == [
        "payroll"
    ]
    assert len(run("workflows", "--limit", 1).splitlines()) == 2
    assert json.loads(run("workflows", "--json"))[1]["id"] == pay.pk
    _, first, second, *reasons = run("workflows", "show", pay.pk).splitlines()
    assert first.split() == [str(pay.pk), "payroll", "running", "2", "0", "0", "0"]
    assert second.split() == [str(each.pk), "add", "waiting", "0", "0", "0", "0"]
    assert "  add" in second
    asking = f"The first one is job {first_job}; look there what it waits for."
    assert reasons == [f"2 jobs of it wait. {asking} [waiting]"]
    found = json.loads(run("workflows", "show", pay.pk, "--json"))
    assert [batch["depth"] for batch in found["batches"]] == [0, 1]
    assert found["reasons"][0]["code"] == "waiting"


def test_a_workflow_that_is_not_there_ends_with_1() -> None:
    with pytest.raises(CommandError, match="there is no batch 17") as caught:
        call_command("jobs", "workflows", "show", "17")
    assert caught.value.returncode == 1


def test_the_state_of_a_workflow_is_a_word(run: Any) -> None:
    with workflow("a", seal=False) as first, workflow("b", seal=False) as second:
        pass
    with workflow("c") as third:
        third.add(tasks.add.s(1, 1))
    Batch.objects.filter(pk=second.pk).update(broken="odd")
    third.cancel()
    states = {line.split()[1]: line.split()[2] for line in run("workflows").splitlines()[1:]}
    assert states == {"a": "open", "b": "broken", "c": "cancelled"}
    Batch.objects.filter(pk=first.pk).update(cancel_requested_at=Now())
    assert " cancelling " in run("workflows")


def test_what_rows_say_steers_no_terminal(run: Any) -> None:
    hostile = "a\x1b[31m\u202eb\x9b"
    with workflow(hostile) as flow:
        pass
    make_job("tests.tasks.add", queue_name=hostile)
    for words in (["workflows"], ["workflows", "show", flow.pk], ["list"]):
        printed = run(*words)
        assert "a\\x1b[31m\\x202eb\\x9b" in printed
        assert printed.translate(CONTROL) == printed.replace("\n", "\\x0a")
        as_json = run(*words, "--json")
        assert as_json.translate(CONTROL) == as_json.replace("\n", "\\x0a")
        assert repr(hostile)[1:-1] in repr(json.loads(as_json))


def test_what_a_row_says_begins_no_line_of_a_table(run: Any) -> None:
    make_job(queue_name="mail\n4711  ready")
    assert len(run("list").splitlines()) == 2


def test_a_long_list_of_workflows_takes_as_many_statements_as_a_short_one(
    run: Any, django_assert_max_num_queries: Any
) -> None:
    for number in range(20):
        with workflow(f"w{number}") as flow:
            flow.batch("part").batch("of it")
    with django_assert_max_num_queries(6):
        assert len(run("workflows").splitlines()) == 21
    # Five of them are for the admin's log: its query, and the time that it may take.
    with django_assert_max_num_queries(13):
        run("workflows", "show", flow.pk)
