"""How many attempts a job has, by who declared its task."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import connection
from django.test import override_settings

from django_pgjobs import Retry, task
from django_pgjobs.compat import TASKS_PACKAGE
from django_pgjobs.declaring.attempts import attempts_of
from django_pgjobs.models import Job
from django_pgjobs.testing import run_jobs
from tests.factories import get_job
from tests.models import Effect

pytestmark = pytest.mark.django_db

OURS = {"BACKEND": "django_pgjobs.backend.PgJobsBackend", "QUEUES": []}
DUMMY = {"BACKEND": f"{TASKS_PACKAGE}.backends.dummy.DummyBackend", "QUEUES": []}
HERE = __name__
django_task = __import__(TASKS_PACKAGE, fromlist=["task"]).task


@django_task
def foreign() -> None:
    """Do something that is not to be done twice, and fail."""
    Effect.objects.create(key="foreign")
    raise OSError("the other side does not answer")


@task(backoff=[0])
def ours() -> None:
    """Do the same as a task of ours."""
    Effect.objects.create(key="ours")
    raise OSError("the other side does not answer")


@task(max_attempts=9)
def nine() -> None:
    """Say how often it may be tried."""


with override_settings(TASKS={"default": DUMMY}):

    @django_task
    def plain() -> None:
        """Be a task of a class of Django's own."""


@task(backoff=[0])
def give_no_json() -> object:
    """Do something and return what cannot be stored."""
    Effect.objects.create(key="returned")
    return object()


@task(backoff=[0], atomic=True)
def give_no_json_atomic() -> object:
    """Do the same in one transaction with its completion."""
    Effect.objects.create(key="returned")
    return {"x": float("nan")}


class Odd(dict[str, int]):
    """A value of the project's that cannot be looked at."""

    def items(self) -> Any:
        raise LookupError("no items")


@task(backoff=[0])
def give_odd() -> object:
    """Return it."""
    return Odd(a=object())  # type: ignore[arg-type]


class Textless(Exception):
    """An error that cannot be shown."""

    def __str__(self) -> str:
        raise LookupError("no text")


class Hostile(dict[str, int]):
    """A value that raises what its task says when it is looked at."""

    raises: Any = None

    def items(self) -> Any:
        raise self.raises


@task(backoff=[0])
def give_hostile(kind: str) -> object:
    """Return it."""
    value = Hostile(a=object())  # type: ignore[arg-type]
    value.raises = {"textless": Textless, "exit": SystemExit, "retry": Retry}[kind]()
    return value


@task(backoff=[0])
async def give_no_json_async() -> object:
    """Do the same on the event loop."""
    await Effect.objects.acreate(key="returned")
    return {1, 2}


@pytest.mark.parametrize(
    ("declared", "kept"), [(give_no_json, 1), (give_no_json_async, 1), (give_no_json_atomic, 0)]
)
def test_a_job_that_returns_no_json_fails_at_its_first_attempt(declared: Any, kept: int) -> None:
    """What it did is done, and to do it 24 times more would not help."""
    job_id = declared.enqueue().id
    run_jobs()
    job = get_job(job_id)
    assert (job.status, job.attempts, job.max_attempts) == ("failed", 1, 25)
    [entry] = job.errors
    assert entry["exception_class"] == "django_pgjobs.exceptions.PayloadError"
    assert "the task ended, but what it returned cannot be stored: " in entry["message"]
    assert "at the return value" in entry["message"]
    assert len(entry["traceback"].splitlines()) <= 6, "nothing of how we looked at it"
    assert "It is not run again. Return None, or what JSON can hold." in entry["message"]
    assert Effect.objects.filter(key="returned").count() == kept


def test_what_a_return_value_is_and_where_is_in_the_line() -> None:
    job_id = give_no_json_async.enqueue().id
    run_jobs()
    message = get_job(job_id).errors[0]["message"]
    assert "Unsupported type: <class 'set'> at the return value: it is not JSON" in message


def test_code_of_the_project_that_a_return_value_runs_is_in_the_traceback() -> None:
    job_id = give_odd.enqueue().id
    run_jobs()
    assert 'raise LookupError("no items")' in get_job(job_id).errors[0]["traceback"]


@pytest.mark.parametrize("kind", ["textless", "exit", "retry"])
def test_whatever_a_return_value_raises_its_job_fails_at_once(kind: str) -> None:
    """The task has ended."""
    job_id = give_hostile.enqueue(kind).id
    run_jobs()
    job = get_job(job_id)
    assert (job.status, job.attempts) == ("failed", 1)
    assert job.errors[0]["exception_class"] == "django_pgjobs.exceptions.PayloadError"
    assert "the task ended" in job.errors[0]["message"]


def test_a_task_that_was_not_declared_with_ours_is_tried_once() -> None:
    """It does not know that it could be repeated."""
    job_id = foreign.enqueue().id
    ours_id = ours.using(max_attempts=3).enqueue().id
    assert get_job(job_id).max_attempts == 1
    run_jobs()
    job = get_job(job_id)
    assert (job.status, job.attempts) == ("failed", 1)
    assert get_job(ours_id).attempts == 3
    counts = [Effect.objects.filter(key=key).count() for key in ("foreign", "ours")]
    assert counts == [1, 3]


def test_a_raw_row_has_as_many_attempts_as_an_enqueued_one() -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO pgjobs_job (task_path) VALUES (%s)", [foreign.module_path])
    run_jobs()
    job = Job.objects.get()
    assert (job.status, job.attempts, job.max_attempts) == ("failed", 1, None)


def test_the_default_is_that_of_the_path_of_the_alias_or_of_all() -> None:
    """What a task says itself comes first, and ours have a default of their own."""
    five = {**OURS, "OPTIONS": {"FOREIGN_MAX_ATTEMPTS": 5}}
    with override_settings(TASKS={"default": OURS, "five": five}):
        on_five = foreign.using(backend="five")
        assert (attempts_of(foreign), attempts_of(on_five)) == (1, 5)
        assert attempts_of(foreign, "five") == 5
        with override_settings(PGJOBS={"FOREIGN_MAX_ATTEMPTS": 2}):
            assert (attempts_of(foreign), attempts_of(on_five)) == (2, 5)
            assert [attempts_of(each) for each in (ours, nine, plain)] == [25, 9, 2]
        by_path = {"tests": 3, HERE: 4, f"{HERE}.plain": 6, f"{HERE}.for": 7, "test": 8}
        with override_settings(PGJOBS={"FOREIGN_MAX_ATTEMPTS_BY_PATH": by_path}):
            found = [attempts_of(each) for each in (foreign, on_five, plain, ours, nine)]
            assert found == [4, 4, 6, 25, 9]
            assert get_job(on_five.enqueue().id).max_attempts == 4


def test_a_task_is_ours_whatever_options_it_is_given() -> None:
    assert attempts_of(ours.using(priority=5).using(queue_name="q")) == 25
    assert attempts_of(foreign.using(priority=5)) == 1
    assert attempts_of(foreign.using(max_attempts=4)) == 4


def test_a_result_says_attempts_only_where_the_job_has_others() -> None:
    first, second = foreign.enqueue(), foreign.using(max_attempts=4).enqueue()
    assert foreign.get_result(first.id).task.max_attempts is None
    assert foreign.get_result(second.id).task.max_attempts == 4


@pytest.mark.parametrize("value", [0, "5", True, 2.0])
def test_a_wrong_option_of_an_alias_is_told_where_no_check_runs(value: object) -> None:
    wrong = {**OURS, "OPTIONS": {"FOREIGN_MAX_ATTEMPTS": value}}
    with override_settings(TASKS={"default": wrong}):
        ours.enqueue()
        with pytest.raises(ImproperlyConfigured, match=r"\['FOREIGN_MAX_ATTEMPTS'\] to be a whole"):
            foreign.enqueue()
        with pytest.raises(ImproperlyConfigured, match="to be a whole number"):
            call_command("runjobs", "--drain", skip_checks=True)


def test_a_job_of_an_alias_that_is_not_there_has_the_default() -> None:
    """Rows of another deployment can be read."""
    assert attempts_of(foreign, "elsewhere") == 1


@pytest.mark.parametrize("limit", [None, True, "5", -1, 2.0])
def test_a_limit_of_attempts_is_a_whole_number(limit: Any) -> None:
    with pytest.raises(TypeError, match=r"run_jobs\(\) expected limit to be a whole number from 0"):
        run_jobs(limit)


def test_one_attempt_is_one_attempt_in_words() -> None:
    ours.enqueue_many([()] * 2)
    with pytest.raises(RuntimeError, match=r"run_jobs\(\) expected at most 1 attempt, got more"):
        run_jobs(limit=1)
