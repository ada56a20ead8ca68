"""`manage.py jobs cancel`, `requeue`, `reschedule` and `delete` of all jobs that match."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import CommandError, call_command, load_command_class
from psycopg import sql

from django_pgjobs.control import many
from django_pgjobs.management import changes
from tests.factories import count_jobs, get_job, make_job, make_jobs, make_running_job
from tests.helpers import connect
from tests.test_client import make_finished_job
from tests.test_jobs_command import status_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sit at the terminal and answer; return the questions that were asked."""

    def sit(text: str) -> list[str]:
        asked: list[str] = []
        monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
        monkeypatch.setattr("builtins.input", lambda question: asked.append(question) or text)
        return asked

    return sit


def make_failed(**columns: Any) -> int:
    """Insert a job that has failed."""
    return make_finished_job("failed", **({"result": None} | columns))


def error(name: str, message: str = "") -> list[dict[str, str]]:
    """Return the errors of a job that failed once."""
    return [{"exception_class": name, "message": message, "traceback": ""}]


def test_a_dry_run_says_how_many_there_are(run: Any) -> None:
    ids = make_jobs(7, queue_name="mail")
    make_jobs(3)
    said = f"would cancel 7 jobs: {', '.join(map(str, ids[:5]))}, ...\n"
    assert run("cancel", "--queue", "mail", "--dry-run") == said
    assert run("cancel", "--queue", "mail", "--limit", 1, "--dry-run") == (
        f"would cancel 1 job: {ids[0]}\n"
    )
    assert count_jobs(status="ready") == 10


def test_what_waits_and_runs_is_cancelled(run: Any) -> None:
    make_jobs(2, queue_name="mail")
    running = make_running_job(queue_name="mail").id
    other = make_job()
    assert run("cancel", "--queue", "mail", "--status", "ready", "--yes") == "2 jobs cancelled.\n"
    assert run("cancel", "--queue", "mail", "--yes") == "1 job cancelled.\n"
    assert get_job(running).cancel_requested_at is not None
    assert get_job(other).status == "ready"


def test_only_what_has_failed_is_requeued_unless_a_status_is_named(run: Any) -> None:
    failed = make_failed()
    done = make_finished_job("successful")
    assert run("requeue", "--task", "tests.tasks.add", "--yes") == "1 job requeued.\n"
    assert (get_job(failed).status, get_job(done).status) == ("ready", "successful")
    assert run("requeue", "--status", "successful", "--yes") == "1 job requeued.\n"
    assert get_job(done).status == "ready"


def test_an_error_and_a_time_tell_which(run: Any) -> None:
    """Those of an outage."""
    wanted = make_failed(errors=error("requests.exceptions.ConnectionError", "refused"))
    others = [
        make_failed(errors=error("ValueError", "no card")),
        make_failed(
            errors=error("requests.exceptions.ConnectionError"),
            finished_at=sql.SQL("now() - interval '3 hours'"),
        ),
    ]
    given = ("requeue", "--error", "connectionerror", "--since", "2h")
    assert run(*given, "--dry-run") == f"would requeue 1 job: {wanted}\n"
    assert run(*given, "--yes") == "1 job requeued.\n"
    assert get_job(wanted).status == "ready"
    assert {get_job(job_id).status for job_id in others} == {"failed"}


def test_the_oldest_are_first(run: Any) -> None:
    ids = [make_failed() for _ in range(3)]
    assert run("requeue", "--limit", 2, "--yes") == "2 jobs requeued.\n"
    assert [get_job(job_id).status for job_id in ids] == ["ready", "ready", "failed"]


def test_where_there_is_none_nothing_is_asked(run: Any) -> None:
    assert run("requeue", "--queue", "mail") == "no failed job was found.\n"
    assert run("cancel", "--queue", "mail") == "no ready or running job was found.\n"


@pytest.mark.parametrize("text", ["y", "YES "])
def test_somebody_who_says_yes_is_asked_once(run: Any, answer: Any, text: str) -> None:
    asked = answer(text)
    [job_id] = make_jobs(1, queue_name="mail")
    assert run("cancel", "--queue", "mail") == "1 job cancelled.\n"
    assert asked == [f"Cancel 1 job: {job_id}? [y/N] "]


@pytest.mark.parametrize("text", ["", "n", "yep"])
def test_anything_but_yes_changes_nothing(answer: Any, text: str) -> None:
    answer(text)
    job_id = make_job(queue_name="mail")
    with pytest.raises(CommandError, match=r"^nothing was changed\.$"):
        call_command("jobs", "cancel", "--queue", "mail")
    assert get_job(job_id).status == "ready"


@pytest.mark.parametrize("key", [KeyboardInterrupt, EOFError])
def test_ctrl_c_and_ctrl_d_answer_no(
    answer: Any,
    key: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def press(question: str) -> str:
        raise key

    answer("")
    monkeypatch.setattr("builtins.input", press)
    job_id = make_job(queue_name="mail")
    with pytest.raises(CommandError, match=r"^nothing was changed\.$"):
        call_command("jobs", "cancel", "--queue", "mail")
    assert get_job(job_id).status == "ready"
    assert capsys.readouterr().out == "\n"  # the error is not in the line of the question


def test_where_nobody_can_answer_it_takes_a_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    job_id = make_job(queue_name="mail")
    assert status_of("cancel", "--queue", "mail") == 2
    with pytest.raises(CommandError, match="expected --yes, or --dry-run to see"):
        call_command("jobs", "cancel", "--queue", "mail")
    assert get_job(job_id).status == "ready"


@pytest.mark.parametrize(
    "words",
    [
        ["cancel"],
        ["requeue"],
        ["requeue", "--yes"],
        ["cancel", "--dry-run"],
        ["cancel", "1", "--queue", "mail"],
        ["requeue", "1", "--dry-run"],
        ["cancel", "--status", "failed"],
        ["requeue", "--status", "ready"],
        ["cancel", "--error", "x"],
        ["requeue", "--since", "soon"],
        ["requeue", "--error", "", "--yes"],
    ],
)
def test_what_names_no_jobs_or_wrong_ones_is_wrong_use(words: list[str]) -> None:
    job_id = make_job()
    assert status_of(*words) in (1, 2)
    assert get_job(job_id).status == "ready"


def test_an_error_that_is_too_long_is_refused_with_the_bound() -> None:
    with pytest.raises(CommandError, match="of at most 2000 characters"):
        call_command("jobs", "requeue", "--error", "x" * 2_001, "--dry-run")


def test_a_name_that_nothing_has_is_doubted(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("jobs", "cancel", "--task", "tests.tasks.ad")
    assert "WARNING" in capsys.readouterr().err


def test_a_name_that_jobs_have_is_not_doubted(capsys: pytest.CaptureFixture[str]) -> None:
    """Those of a task that is gone from the code, in a queue in which none waits."""
    make_failed(queue_name="mail", task_path="shop.tasks.gone")
    call_command("jobs", "requeue", "--queue", "mail", "--task", "shop.tasks.gone", "--yes")
    assert capsys.readouterr() == ("1 job requeued.\n", "")


def test_somebody_at_a_terminal_sees_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(many, "PAGE_JOBS", 2)
    monkeypatch.setattr(changes, "PROGRESS_SECONDS", -1.0)
    make_jobs(3, queue_name="mail")
    call_command("jobs", "cancel", "--queue", "mail", "--yes")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert "of 3 jobs" not in capsys.readouterr().err
    make_jobs(3, queue_name="mail")
    call_command("jobs", "cancel", "--queue", "mail", "--yes")
    assert capsys.readouterr().err.splitlines()[-2:] == ["2 of 3 jobs", "3 of 3 jobs"]


@pytest.mark.django_db(transaction=True)
def test_what_is_locked_is_told_and_so_is_what_was_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(many, "LOCKED_SECONDS", 0.05)
    ids = make_jobs(3, queue_name="mail")
    with connect(autocommit=False) as other:
        other.execute("SELECT FROM pgjobs_job WHERE id = %s FOR UPDATE", [ids[1]])
        with pytest.raises(CommandError, match=f"^1 job, such as {ids[1]}, could not be changed"):
            call_command("jobs", "cancel", "--queue", "mail", "--yes")
    assert capsys.readouterr().out == "2 of 3 jobs cancelled.\n"


@pytest.mark.django_db(transaction=True)
def test_ctrl_c_ends_it_in_words_and_what_was_done_stays(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*args: Any) -> Iterator[int]:
        pages = many.change_pages(*args)
        yield next(pages)
        raise KeyboardInterrupt

    monkeypatch.setattr(many, "PAGE_JOBS", 2)
    monkeypatch.setattr(changes, "change_pages", interrupted)
    make_jobs(3, queue_name="mail")
    with pytest.raises(SystemExit) as caught:
        load_command_class("django_pgjobs", "jobs").run_from_argv(
            ["manage.py", "jobs", "cancel", "--queue", "mail", "--yes"]
        )
    assert caught.value.code == 130
    assert capsys.readouterr() == ("2 of 3 jobs cancelled.\n", "")
    assert count_jobs(status="cancelled") == 2


def test_a_twin_with_the_same_unique_key_stays_and_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for _ in range(2):
        make_failed(unique_key="k")
    with pytest.raises(CommandError, match="a live job holds their unique key"):
        call_command("jobs", "requeue", "--status", "failed", "--yes")
    assert capsys.readouterr().out == "1 of 2 jobs requeued.\n"
    assert count_jobs(status="failed") == 1


def test_a_finished_job_is_not_rescheduled(capsys: pytest.CaptureFixture[str]) -> None:
    failed = make_failed()
    with pytest.raises(CommandError, match=r"^1 of 1 job was not rescheduled\.$"):
        call_command("jobs", "reschedule", str(failed), "--now")
    assert capsys.readouterr().out == f"job {failed}: is failed\n"


def test_a_time_to_reschedule_to_is_needed() -> None:
    with pytest.raises(CommandError, match="one of the arguments --in --at --now is required"):
        call_command("jobs", "reschedule", "1")
