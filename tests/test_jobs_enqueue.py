"""`manage.py jobs enqueue`: for those who keep cron elsewhere."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from django_pgjobs import Task, task
from django_pgjobs.models import Job

pytestmark = pytest.mark.django_db


@task(unique_key="return")
def return_one(number: int) -> None:
    """Leave the job that waits as it is."""


@task(unique_key="merge", on_conflict="merge")
def merge_all(number: int) -> None:
    """Merge into the job that waits."""


@task(unique_key="replace", on_conflict="replace")
def replace_all(number: int) -> None:
    """Give the job that waits other arguments."""


def enqueue(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Run the command; return what it prints."""
    call_command("jobs", "enqueue", *words)
    return capsys.readouterr().out


def test_it_enqueues_and_exits(capsys: pytest.CaptureFixture[str]) -> None:
    """S1.18: a command that only enqueues works as a schedule."""
    said = enqueue(capsys, "tests.tasks.add", "--args", "[1, 2]")
    job = Job.objects.get()
    assert said == f"job {job.pk}: enqueued\n"
    assert (job.task_path, job.args, job.kwargs, job.status) == (
        "tests.tasks.add",
        [1, 2],
        {},
        "ready",
    )


def test_an_object_is_keyword_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    enqueue(capsys, "tests.tasks.add", "--args", '{"a": 1, "b": 2}')
    assert Job.objects.get().kwargs == {"a": 1, "b": 2}


def test_queue_priority_and_time_can_be_others(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--args", "[1, 2]", "--queue", "mail", "--priority", "7", "--in", "2h"]
    enqueue(capsys, "tests.tasks.add", *words)
    job = Job.objects.get()
    assert (job.queue_name, job.priority) == ("mail", 7)
    assert job.run_after is not None
    assert abs(job.run_after - job.enqueued_at - timedelta(hours=2)) < timedelta(seconds=1)


@pytest.mark.parametrize(
    ("task", "said"),
    [
        (return_one, "was there already and has the unique key; nothing enqueued"),
        (merge_all, "was there already; merged into it"),
        (replace_all, "was there already; its arguments were replaced"),
    ],
)
def test_a_job_that_has_the_unique_key_is_not_said_to_be_enqueued(
    capsys: pytest.CaptureFixture[str], task: Task, said: str
) -> None:
    words = [task.module_path, "--args", '{"number": 1}']
    first = enqueue(capsys, *words)
    job = Job.objects.get()
    assert first == f"job {job.pk}: enqueued\n"
    assert enqueue(capsys, *words) == f"job {job.pk}: {said}\n"
    assert Job.objects.get() == job


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["tests.tasks.gone"], 1, "no task tests.tasks.gone is declared here"),
        (["os.remove", "--args", '["x"]'], 1, "no task os.remove"),
        (["tests.tasks.add", "--args", "[1"], 2, "--args expected JSON"),
        (["tests.tasks.add", "--args", "5"], 2, "a JSON list or object"),
        (["tests.tasks.add", "--args", "[" * 100_000], 2, "--args expected JSON"),
        (["tests.tasks.add", "--args", "[1, 2, 3]"], 2, "add"),
        (["tests.tasks.add", "--args", "[1, 2]", "--priority", "700"], 2, "priority"),
    ],
)
def test_wrong_use_says_what_is_wrong(words: list[Any], status: int, said: str) -> None:
    with pytest.raises(CommandError) as caught:
        call_command("jobs", "enqueue", *words)
    assert caught.value.returncode == status
    assert said in str(caught.value)
    assert not Job.objects.exists()
