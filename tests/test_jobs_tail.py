"""`manage.py jobs tail`: a line for each job that ends."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone

from django_pgjobs import requeue
from django_pgjobs.management import reading, tail
from django_pgjobs.models import Job
from tests.factories import ago, make_job, make_jobs
from tests.helpers import end_session, sleep_by
from tests.worker.tasks import backend_pid

pytestmark = pytest.mark.django_db

ADD = "tests.tasks.add"
Look = Callable[[], object]


class Enough(Exception):
    """Somebody has looked long enough."""


@pytest.fixture
def follow(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Run `jobs tail`; between two looks call each of *happens*. Return the lines of each look."""

    def run(*words: str, happens: tuple[Look, ...] = ()) -> list[str]:
        screen, left = io.StringIO(), list(happens)
        looks: list[str] = []

        def sleep(seconds: float) -> None:
            looks.append(screen.getvalue())
            screen.seek(0)
            screen.truncate()
            if not left:
                raise Enough
            left.pop(0)()

        sleep_by(monkeypatch, sleep)
        with pytest.raises(Enough):
            call_command("jobs", "tail", *words, stdout=screen)
        return looks

    return run


def end(**columns: Any) -> int:
    """Make a job that has just ended; return its id."""
    given = {"status": "successful", "finished_at": ago(0), "last_attempted_at": ago(2)}
    return make_job(ADD, **given | columns)


def ids(look: str) -> list[int]:
    """Return the ids in the lines of a look."""
    return [int(line.partition(" #")[2].split()[0]) for line in look.splitlines()]


def test_each_job_that_ends_is_told_once(follow: Any) -> None:
    made = [end()]
    looks = follow(happens=(lambda: made.append(end(status="cancelled")), lambda: None))
    assert list(map(ids, looks)) == [[made[0]], [made[1]], []]


def test_the_last_jobs_come_first_and_all_of_them_with_since(follow: Any) -> None:
    jobs = [end(finished_at=ago(60 - number)) for number in range(15)]
    old = end(finished_at=ago(3_000))
    assert [ids(look) for look in follow()] == [jobs[-tail.FIRST :]]
    assert [ids(look) for look in follow("--since", "1h")] == [[old, *jobs]]


def test_a_job_that_is_requeued_and_ends_again_is_told_again(follow: Any) -> None:
    job = end(status="failed")

    def again() -> None:
        assert requeue(job)
        Job.objects.filter(pk=job).update(status="successful", finished_at=timezone.now())

    assert [ids(look) for look in follow(happens=(again,))] == [[job], [job]]


def test_one_that_is_committed_late_is_told(follow: Any) -> None:
    """It ended before others that were told already."""
    end()
    looks = follow(happens=(lambda: end(finished_at=ago(5)),))
    assert len(ids(looks[1])) == 1


def test_a_line_says_what_became_of_the_job(follow: Any) -> None:
    job = end(
        status="failed",
        queue_name="mail",
        attempts=3,
        errors=[{"exception_class": "shop.errors.Refused", "message": "no\nway"}],
    )
    [look] = follow()
    [line] = look.splitlines()
    time, rest = line.split(" ", 1)
    assert len(time) == len("12:34:56")
    assert rest == f"failed     {ADD} #{job} queue=mail attempts=3 ran=2.00s Refused: no"


def test_the_filters_are_those_of_the_list(follow: Any) -> None:
    end(queue_name="mail")
    wanted = end(status="failed", errors=[{"exception_class": "ValueError", "message": "odd"}])
    end(status="failed", errors=[{"exception_class": "KeyError", "message": "x"}])
    [look] = follow("--status", "failed", "--queue", "default", "--error", "valueerror")
    assert ids(look) == [wanted]


def test_programs_get_an_object_in_each_line(follow: Any) -> None:
    job = end(status="failed", errors=[{"exception_class": "ValueError", "message": "odd\n"}])
    end()
    [look] = follow("--json")
    first, second = map(json.loads, look.splitlines())
    assert (first["id"], first["exception_class"], first["message"]) == (job, "ValueError", "odd")
    assert first["seconds"] == pytest.approx(2, abs=0.1)
    assert (second["status"], second["exception_class"]) == ("successful", "")


def test_it_says_if_more_end_than_it_tells(
    follow: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tail, "MOST", 3)
    many = {"status": "successful", "finished_at": ago(0)}
    make_jobs(5, ADD, **many)
    looks = follow(happens=(lambda: make_jobs(2, ADD, **many), lambda: make_jobs(9, ADD, **many)))
    assert [len(look.splitlines()) for look in looks] == [3, 2, 3]
    assert capsys.readouterr().err.count("there are more") == 1


def test_it_says_if_more_of_many_that_are_committed_late_end_than_it_tells(
    follow: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As of a cancel of many in a transaction, while others end."""
    monkeypatch.setattr(tail, "MOST", 3)

    def commit() -> None:
        make_jobs(5, ADD, status="successful", finished_at=ago(3))

    looks = follow(happens=(end, commit, lambda: None))
    assert [len(ids(look)) for look in looks] == [0, 1, 2, 0]
    assert capsys.readouterr().err.count("there are more") == 1


def test_none_is_told_again_after_the_clock_of_the_server_was_set_back(follow: Any) -> None:
    before, later = end(finished_at=ago(-60)), list[int]()
    looks = follow(happens=(lambda: later.append(end()), lambda: None, lambda: None))
    assert list(map(ids, looks)) == [[before], later, [], []]


def test_many_with_times_to_come_hide_no_new_ones(
    follow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of the server was set back: for as long their ends are later than all new ones."""
    monkeypatch.setattr(tail, "MOST", 2)
    before, later = [end(finished_at=ago(-60 - number)) for number in range(5)], list[int]()
    looks = follow(happens=(lambda: later.append(end()), lambda: None))
    assert list(map(ids, looks)) == [before[:2], later, []]


def test_none_is_told_again_when_those_after_it_are_requeued(
    follow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They leave room for it among the newest."""
    monkeypatch.setattr(tail, "MOST", 2)
    first = [end(finished_at=ago(5)), end(finished_at=ago(4))]
    later: list[int] = []

    def again() -> None:
        for job in later:
            assert requeue(job)

    looks = follow(happens=(lambda: later.extend([end(), end()]), again))
    assert list(map(ids, looks)) == [first, later, []]


def test_what_ends_while_nobody_reads_is_told_afterwards(
    follow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pager that is full, or Ctrl-S, holds the command up for minutes."""
    end()
    clock, later = tail.time.monotonic, [0.0]
    monkeypatch.setattr(tail.time, "monotonic", lambda: clock() + later[0])

    def stop_reading() -> None:
        later[0] += 300
        end(finished_at=ago(200))

    looks = follow(happens=(stop_reading,))
    assert len(ids(looks[1])) == 1


@pytest.mark.django_db(transaction=True)
def test_it_goes_on_when_the_database_is_there_again(
    follow: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """What ended meanwhile is told, and that it was away."""
    first, later = end(), []

    def cut() -> None:
        end_session(backend_pid())

    def come_back() -> None:
        later.append(end())

    looks = follow(happens=(cut, come_back, end))
    assert [*map(ids, looks[:3])] == [[first], [], later]
    assert len(ids(looks[3])) == 1
    [said] = capsys.readouterr().err.splitlines()
    assert said.startswith("the database is away, trying again: terminating connection")


@pytest.mark.django_db(transaction=True)
def test_it_goes_on_when_the_table_is_no_longer_locked(
    follow: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By VACUUM FULL, say, for longer than it waits."""
    later, other = list[int](), connection.copy()

    def lock() -> None:
        monkeypatch.setattr(reading, "READING_SECONDS", 0.2)
        other.set_autocommit(False)
        with other.cursor() as cursor:
            cursor.execute("LOCK TABLE pgjobs_job_finished IN ACCESS EXCLUSIVE MODE")

    def unlock() -> None:
        other.close()
        monkeypatch.setattr(reading, "READING_SECONDS", 15.0)
        later.append(end())

    looks = follow(happens=(lock, unlock))
    assert list(map(ids, looks)) == [[], [], later]
    [said] = capsys.readouterr().err.splitlines()
    assert said.startswith("trying again: the database did not answer within 0.2 s")


@pytest.mark.django_db(transaction=True)
def test_a_table_that_is_locked_when_the_database_is_there_again_is_told_too(
    follow: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each kind of trouble once: whoever waits for the one to end learns of the other."""
    other = connection.copy()

    def cut() -> None:
        end_session(backend_pid())

    def lock() -> None:
        monkeypatch.setattr(reading, "READING_SECONDS", 0.2)
        other.set_autocommit(False)
        with other.cursor() as cursor:
            cursor.execute("LOCK TABLE pgjobs_job_finished IN ACCESS EXCLUSIVE MODE")

    try:
        follow(happens=(cut, lock, lambda: None))
    finally:
        other.close()
    away, locked = capsys.readouterr().err.splitlines()
    assert away.startswith("the database is away, trying again: terminating connection")
    assert locked.startswith("trying again: the database did not answer within 0.2 s")


@pytest.mark.django_db(transaction=True)
def test_what_is_wrong_otherwise_ends_it(follow: Any) -> None:
    """No try more would help."""

    def rename() -> None:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE pgjobs_job RENAME TO pgjobs_job_away")

    try:
        with pytest.raises(CommandError, match="pgjobs_job"):
            follow(happens=(rename,))
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE pgjobs_job_away RENAME TO pgjobs_job")
