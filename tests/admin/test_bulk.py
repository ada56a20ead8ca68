"""Bulk changes without their pages: which jobs, what is done to them, what a crash leaves."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import DatabaseError, connection
from django.test import override_settings
from psycopg import sql

from django_pgjobs.bulk import walk as walking
from django_pgjobs.bulk.actions import ACTIONS
from django_pgjobs.bulk.changes import cancel_change, create_change, run_change, run_page
from django_pgjobs.bulk.job import enqueue_change, run_bulk_change
from django_pgjobs.bulk.selection import Selection
from django_pgjobs.bulk.walk import Walk
from django_pgjobs.control.changing import Effect
from django_pgjobs.models import BulkChange, Job
from django_pgjobs.testing import run_jobs
from tests.factories import (
    ago,
    count_jobs,
    get_job,
    make_job,
    make_jobs,
    make_running_job,
    make_worker,
)

pytestmark = pytest.mark.django_db

NOW = sql.SQL("now()")
LATER = sql.SQL("now() + interval '1 hour'")


@pytest.fixture
def boss() -> User:
    """Somebody who may do everything."""
    return User.objects.create_superuser("boss")


def change_of(
    user: User, verb: str, selection: Selection, *, total: int | None = None, **options: Any
) -> BulkChange:
    """Return a stored change of what there is now."""
    return create_change(ACTIONS[verb], selection.pinned(), options, user=user, total=total)


def do(user: User, verb: str, *ids: int, **options: Any) -> BulkChange:
    """Do *verb* to some jobs and return the change."""
    change = change_of(user, verb, Selection.ids(ids), **options)
    run_change(change.pk)
    change.refresh_from_db()
    assert change.finished_at is not None
    return change


def test_finished_jobs_are_retried_whatever_they_came_to(boss: User) -> None:
    ids = [
        make_job(status=status, finished_at=NOW, attempts=3, errors=[{"message": "x"}])
        for status in ("failed", "cancelled", "successful")
    ]
    waiting = make_job()
    change = do(boss, "requeue", *ids, waiting)
    assert (change.changed, change.passed_over, change.conflicts) == (3, 0, 0)
    rows = [get_job(job_id) for job_id in ids]
    assert {row.status for row in rows} == {"ready"}
    assert {row.attempts for row in rows} == {0}
    assert rows[0].errors == [{"message": "x"}]
    assert run_jobs() == 4


def test_a_retry_is_spread_over_a_time(boss: User) -> None:
    ids = make_jobs(50, status="failed", finished_at=NOW)
    do(boss, "requeue", *ids, spread=3600.0)
    due = [get_job(job_id).due_at for job_id in ids]
    assert len(set(due)) == 50
    now = datetime.now(UTC)
    assert all(timedelta(seconds=-60) < moment - now < timedelta(hours=1) for moment in due)
    assert max(due) - min(due) > timedelta(minutes=20)


def test_a_retry_is_put_off_to_a_time(boss: User) -> None:
    job_id = make_job(status="failed", finished_at=NOW)
    at = datetime(2090, 1, 2, 3, 4, tzinfo=UTC)
    do(boss, "requeue", job_id, at=at.isoformat())
    assert get_job(job_id).run_after == at


def test_resetting_attempts_is_for_jobs_that_wait_for_the_next_one(boss: User) -> None:
    retrying = make_job(attempts=4, lost_count=1, due_at=LATER, errors=[{"message": "x"}])
    fresh = make_job(due_at=LATER, run_after=LATER)
    assert do(boss, "requeue", retrying, fresh).changed == 0
    assert get_job(retrying).attempts == 4
    assert do(boss, "requeue", retrying, fresh, reset_attempts=True).changed == 1
    row = get_job(retrying)
    assert (row.attempts, row.lost_count, row.due_at) == (0, 0, None)
    assert row.errors == [{"message": "x"}]
    assert get_job(fresh).due_at is not None


def test_a_job_whose_unique_key_another_one_has_stays_and_is_told(boss: User) -> None:
    ids = make_jobs(3, status="failed", finished_at=NOW)
    stuck = make_job(status="failed", finished_at=NOW, unique_key="k")
    twin = make_job(unique_key="k")
    change = do(boss, "requeue", *ids, stuck)
    assert (change.changed, change.conflicts) == (3, 1)
    assert change.conflict_ids == [[stuck, twin]]
    assert get_job(stuck).status == "failed"


def test_of_several_jobs_with_one_unique_key_one_is_retried(boss: User) -> None:
    ids = make_jobs(3, status="failed", finished_at=NOW, unique_key="k")
    change = do(boss, "requeue", *ids)
    assert (change.changed, change.conflicts) == (1, 2)
    assert count_jobs(status="ready") == 1


def test_waiting_jobs_are_run_now_postponed_and_moved(boss: User) -> None:
    late = make_job(due_at=LATER, run_after=LATER)
    due = make_job()
    assert do(boss, "run_now", late, due).changed == 1
    assert get_job(late).due_at is None
    assert do(boss, "postpone", late, due, delay=600.0).changed == 2
    assert get_job(due).due_at > datetime.now(UTC) + timedelta(minutes=5)
    assert do(boss, "move", late, queue_name="other", priority=7).changed == 1
    assert (get_job(late).queue_name, get_job(late).priority) == ("other", 7)
    assert do(boss, "move", due, queue_name=None, priority=-3).changed == 1
    assert (get_job(due).queue_name, get_job(due).priority) == ("default", -3)


def test_waiting_jobs_are_cancelled_and_running_ones_asked(boss: User) -> None:
    waiting, running = make_job(), make_running_job().id
    done = make_job(status="successful", finished_at=NOW)
    assert do(boss, "cancel", waiting, running, done).changed == 2
    assert get_job(waiting).status == "cancelled"
    assert get_job(running).status == "running"
    assert get_job(running).cancel_requested_at is not None
    assert do(boss, "cancel", running).changed == 0


def test_cancelling_and_discarding_resolve_what_waits(boss: User) -> None:
    for verb in ("cancel", "discard"):
        first, second = make_job(), make_job(hold="dependencies", waits_for=1)
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO pgjobs_dependency (job_id, predecessor_id, after_failure)"
                " VALUES (%s, %s, 'run')",
                [second, first],
            )
        do(boss, verb, first, note="discarded by boss")
        assert get_job(first).status == "cancelled"
        assert (get_job(second).hold, get_job(second).waits_for) == (None, 0)


def test_waiting_and_failed_jobs_are_discarded_with_a_note(boss: User) -> None:
    waiting, running = make_job(), make_running_job().id
    failed = make_job(status="failed", finished_at=ago(60))
    ended_at = get_job(failed).finished_at
    assert do(boss, "discard", waiting, failed, running, note="discarded by boss").changed == 2
    for job_id in (waiting, failed):
        assert get_job(job_id).status == "cancelled"
        assert get_job(job_id).note == "discarded by boss"
    assert get_job(waiting).finished_at is not None
    assert get_job(failed).finished_at == ended_at
    assert get_job(running).cancel_requested_at is None


def test_only_finished_jobs_are_deleted(boss: User) -> None:
    done = make_job(status="successful", finished_at=NOW)
    waiting = make_job()
    assert do(boss, "delete", done, waiting).changed == 1
    assert [job.pk for job in Job.objects.all()] == [waiting]


def test_what_is_enqueued_or_fails_later_is_left_alone(boss: User) -> None:
    """Otherwise a change that requeues what fails again would never end."""
    old = make_job(status="failed", finished_at=ago(60))
    pinned = Selection({"status": "failed"}).pinned()
    new = make_job(status="failed", finished_at=ago(60))
    again = make_job(status="failed", finished_at=LATER)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgjobs_job SET id = %s WHERE id = %s", [old - 1, again])
    change = create_change(ACTIONS["requeue"], pinned, {}, user=boss)
    run_change(change.pk)
    assert get_job(old).status == "ready"
    assert get_job(new).status == get_job(old - 1).status == "failed"


def test_a_selection_that_is_not_pinned_is_refused(boss: User) -> None:
    with pytest.raises(ValueError, match="pinned"):
        create_change(ACTIONS["requeue"], Selection({}), {}, user=boss)


@pytest.mark.parametrize(("page_jobs", "window_rows"), [(1, 1), (2, 3), (3, 2), (7, 100), (100, 5)])
def test_a_walk_meets_every_job_once(page_jobs: int, window_rows: int) -> None:
    ids = make_jobs(5, status="failed", finished_at=NOW)  # all ended at the same time
    ids += [make_job(status="failed", finished_at=ago(number)) for number in range(5)]
    ids += make_jobs(3, status="failed")  # without an end
    ids += make_jobs(4, status="cancelled", finished_at=NOW)
    ids += make_jobs(6)
    make_jobs(4, "tests.tasks.other", status="failed", finished_at=ago(2))
    make_jobs(4, "tests.tasks.other")
    make_jobs(2, status="successful", finished_at=NOW)
    statuses = ("ready", "failed", "cancelled")
    selection = Selection({"task_path": "tests.tasks.add"}).pinned()
    walk = Walk(
        selection,
        statuses,
        ACTIONS["discard"].suits({}) | ACTIONS["requeue"].suits({}),
        lambda jobs: jobs,
        page_jobs=page_jobs,
        window_rows=window_rows,
    )
    pages = list(walk.pages())
    assert all(len(page) <= page_jobs for page in pages)
    met = [job_id for page in pages for job_id in page]
    assert sorted(met) == sorted(ids)
    assert walk.total() == len(ids)


def test_a_page_looks_at_a_bounded_number_of_rows() -> None:
    make_jobs(300, "tests.tasks.other", status="successful", finished_at=NOW)
    wanted = make_job(status="successful", finished_at=LATER)
    selection = Selection({"task_path": "tests.tasks.add"}, datetime(2100, 1, 1, tzinfo=UTC), 2**62)
    walk = Walk(
        selection,
        ("successful",),
        ACTIONS["delete"].suits({}),
        lambda jobs: jobs,
        window_rows=100,
    )
    first, position = walk.page(None)
    assert first == []
    assert position is not None
    assert [job_id for page in walk.pages() for job_id in page] == [wanted]


def test_an_interrupted_change_goes_on_where_it_was(
    boss: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = make_jobs(5, status="failed", finished_at=NOW)
    monkeypatch.setattr(walking, "PAGE_JOBS", 2)
    change = change_of(boss, "requeue", Selection({"status": "failed"}), total=5)
    assert len(run_page(change.pk).changed) == 2

    def fail(*args: Any) -> Effect:
        make_job("tests.tasks.rolled_back")
        raise DatabaseError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setitem(ACTIONS, "requeue", replace(ACTIONS["requeue"], apply=fail))
        with pytest.raises(DatabaseError):
            run_page(change.pk)
    change.refresh_from_db()
    assert "the disk is full" in change.error
    assert (change.changed, change.finished_at) == (2, None)
    assert count_jobs(task_path="tests.tasks.rolled_back") == 0
    assert len(run_change(change.pk).changed) == 3
    change.refresh_from_db()
    assert (change.changed, change.passed_over, change.error) == (5, 0, "")
    assert {get_job(job_id).status for job_id in ids} == {"ready"}
    assert run_change(change.pk).changed == []


def test_a_cancelled_change_ends_between_pages(boss: User, monkeypatch: pytest.MonkeyPatch) -> None:
    make_jobs(5, status="failed", finished_at=NOW)
    monkeypatch.setattr(walking, "PAGE_JOBS", 2)
    change = change_of(boss, "requeue", Selection({"status": "failed"}))
    run_page(change.pk)
    assert cancel_change(change.pk)
    assert not cancel_change(change.pk)
    assert run_change(change.pk).changed == []
    assert count_jobs(status="ready") == 2


@pytest.mark.parametrize("how", ["inactive", "no staff", "no permission", "gone"])
def test_whoever_may_no_longer_stops_their_change(boss: User, how: str) -> None:
    user = User.objects.create_user("operator", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename="operate_job"))
    job_id = make_job(status="failed", finished_at=NOW)
    change = change_of(user, "requeue", Selection.ids([job_id]))
    if how == "inactive":
        User.objects.filter(pk=user.pk).update(is_active=False)
    elif how == "no staff":
        User.objects.filter(pk=user.pk).update(is_staff=False)
    elif how == "gone":
        user.delete()
    else:
        user.user_permissions.clear()
    assert run_change(change.pk).changed == []
    change.refresh_from_db()
    assert change.finished_at is not None
    assert change.error.startswith("Stopped")
    assert get_job(job_id).status == "failed"


def only_mail(user: Any, permission: str, jobs: Any) -> Any:
    """Let people touch the queue "mail"; a function for PGJOBS["ADMIN_PERMISSION"]."""
    return True if jobs is None else jobs.filter(queue_name="mail")


def test_the_projects_function_narrows_a_change(boss: User) -> None:
    mine = make_job(status="failed", finished_at=NOW, queue_name="mail")
    other = make_job(status="failed", finished_at=NOW)
    with override_settings(PGJOBS={"ADMIN_PERMISSION": f"{__name__}.only_mail"}):
        change = do(boss, "requeue", mine, other)
    assert change.changed == 1
    assert get_job(other).status == "failed"


def test_a_large_change_is_done_by_a_job(boss: User) -> None:
    make_worker()
    ids = make_jobs(30, status="failed", finished_at=NOW)
    change = change_of(boss, "requeue", Selection({"status": "failed"}), spread=86_400.0)
    enqueue_change(change)
    assert change.job_id is not None
    enqueue_change(change)
    assert count_jobs(task_path="django_pgjobs.bulk.job.run_bulk_change") == 1
    assert run_jobs(at_once=False) == 1
    change.refresh_from_db()
    assert (change.changed, change.total) == (30, 30)
    assert change.finished_at is not None
    row = get_job(change.job_id)
    assert (row.status, row.result["changed"]) == ("successful", 30)
    assert {get_job(job_id).status for job_id in ids} == {"ready"}


def test_a_change_that_does_not_exist_is_done_at_once() -> None:
    assert run_bulk_change.func(12345) == {"changed": 0, "passed_over": 0, "conflicts": 0}
