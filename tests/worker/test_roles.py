"""A whole life of jobs under the database roles of a worker and of a web process.

Both have the rights that `manage.py jobs grants` prints, and all on tables that are not ours.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from io import StringIO
from typing import Any

import psycopg
import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection
from django.db.models import F
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from django_pgjobs import acquire, cancel, pause, requeue, reschedule, resume, workflow
from django_pgjobs.bulk.actions import ACTIONS
from django_pgjobs.bulk.changes import create_change, run_change
from django_pgjobs.bulk.job import enqueue_change
from django_pgjobs.bulk.selection import Selection
from django_pgjobs.control import rate_limits
from django_pgjobs.control.explain import explain
from django_pgjobs.management.grants import WEB, missing_grants
from django_pgjobs.models import BulkChange, Job, Schedule, Worker
from django_pgjobs.models.control import ConcurrencyLimit, QueueSettings, RateLimit, RateState
from django_pgjobs.queries import schedules
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.schedules import control
from django_pgjobs.schedules.control import skip_next
from django_pgjobs.schedules.firing import fire_due
from django_pgjobs.schedules.skipping import unskip
from tests import tasks
from tests.factories import get_job, make_job, make_running_job, make_worker
from tests.helpers import wait_until
from tests.models import Effect
from tests.worker import tasks as gate_tasks
from tests.worker.support import Gate, ThreadedWorker

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

# Of a process of pytest: roles are of the whole server.
ROLES = {kind: f"pgjobs test {kind} {os.getpid()}" for kind in ("worker", "web")}
OTHER_TABLES = """
SELECT format('GRANT ALL ON %%I TO %%I', relname, %s::text)
FROM pg_class WHERE relnamespace = 'public'::regnamespace
    AND relkind IN ('r', 'S') AND relname NOT LIKE 'pgjobs%%'
"""
As = Callable[[str], Any]


@pytest.fixture
def as_role(
    open_connection: Callable[..., psycopg.Connection], monkeypatch: pytest.MonkeyPatch
) -> Iterator[As]:
    """Connect as a worker or as a web process: `with as_role("web"):`."""
    owner = open_connection()
    printed = StringIO()
    call_command(
        "jobs", "grants", "--worker", ROLES["worker"], "--web", ROLES["web"], stdout=printed
    )
    for role in ROLES.values():
        owner.execute(f'CREATE ROLE "{role}"'.encode())
        rows = owner.execute(OTHER_TABLES, [role])
        for (grant,) in rows.fetchall():
            owner.execute(grant.encode())
    owner.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")
    owner.execute("REVOKE ALL ON ALL FUNCTIONS IN SCHEMA public FROM PUBLIC")
    owner.execute(printed.getvalue().encode())

    @contextmanager
    def connected_as(kind: str) -> Iterator[None]:
        options = connection.settings_dict["OPTIONS"]
        connection.close()
        with monkeypatch.context() as patch:
            patch.setitem(
                connection.settings_dict, "OPTIONS", options | {"assume_role": ROLES[kind]}
            )
            try:
                yield
            finally:
                connection.close()
                rate_limits.close_sessions()

    yield connected_as
    for role in ROLES.values():
        owner.execute(f'DROP OWNED BY "{role}"; DROP ROLE "{role}"'.encode())
    owner.execute("GRANT USAGE ON SCHEMA public TO PUBLIC")
    owner.execute("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO PUBLIC")


def pages() -> list[str]:
    """Return the addresses of all pages of ours that need no object."""
    return [
        reverse(f"admin:{url.name}")
        for model, model_admin in admin.site._registry.items()
        if model._meta.app_label == "pgjobs"
        for url in model_admin.get_urls()
        if url.name and "<" not in str(url.pattern) and "(?P" not in str(url.pattern)
    ]


def test_an_outcome_waits_for_a_right_that_the_role_lacks(
    as_role: As,
    start_thread: Callable[..., ThreadedWorker],
    open_connection: Callable[..., psycopg.Connection],
    gate: Gate,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It must not become a failure, as what a row is refused for does."""
    caplog.set_level(logging.INFO)
    owner, role = open_connection(), ROLES["worker"]
    job = gate_tasks.wait_at_gate.enqueue()
    with as_role("worker"):
        start_thread()
        gate.wait_entered()
        owner.execute(f'REVOKE UPDATE ON pgjobs_job FROM "{role}"'.encode())
        gate.open()
        wait_until(lambda: "its outcome waits" in caplog.text)
        owner.execute(f'GRANT UPDATE ON pgjobs_job TO "{role}"'.encode())
        wait_until(lambda: get_job(job.id).status != "running")
    assert get_job(job.id).status == "successful"


def test_a_life_of_jobs_under_roles_with_their_rights(
    as_role: As, start_thread: Callable[..., ThreadedWorker], client: Client
) -> None:
    boss = User.objects.create_superuser("boss")
    with as_role("web"):
        RateLimit.objects.create(name="fast", count=1000, period=1)
        ConcurrencyLimit.objects.create(pattern="shop:*", max_running=2)
        QueueSettings.objects.create(queue_name="small", max_running=1)
        jobs = [
            tasks.add.enqueue(1, 2),
            tasks.add.using(concurrency_key="shop:1", rate_limit="fast").enqueue(1, 2),
            tasks.add.using(unique_key="once").enqueue(1, 2),
            tasks.add.using(unique_key="once").enqueue(1, 2),
            tasks.add.using(queue_name="small").enqueue(1, 2),
            tasks.record_atomic.enqueue("x"),
        ]
        many = tasks.add.enqueue_many([(n, n) for n in range(3)])
        after = tasks.add.using(after=jobs[:2]).enqueue(1, 2)
        assert tasks.add.enqueue_from(User.objects.all(), a=F("pk"), b=1) == 1
        assert acquire("fast").waited >= 0
        assert pause(queue="mail") and resume(queue="mail") and pause(key="none")
        cancelled = tasks.add.enqueue(1, 2)
        follower = tasks.add.using(after=cancelled).enqueue(1, 2)
        assert cancel(cancelled)
        assert requeue(cancelled)
        assert reschedule(cancelled, timedelta(0))
        assert explain(int(after.id)).reasons
        selection = Selection({"status": "ready"}).pinned()
        change = create_change(ACTIONS["move"], selection, {"priority": 3}, user=boss)
        enqueue_change(change)
    lost = make_running_job(make_worker(lease_expires_at="2020-01-01"))
    old = make_job(status="successful", finished_at="2020-01-01")
    with as_role("worker"):
        worker = start_thread(listen=True, retention=1000.0)
        wait_until(lambda: not Job.objects.unfinished().exists())
        worker.wake()
        wait_until(lambda: not Job.objects.filter(pk=old).exists())
        assert worker.stop() == 0
    done = [*many, *(job.id for job in (*jobs, after))]
    assert {get_job(job_id).status for job_id in done} == {"successful"}
    assert get_job(follower.id).status == "cancelled"
    assert get_job(lost.id).lost_count == 1
    assert not Job.objects.filter(pk=old).exists()
    assert Effect.objects.count() == 1
    assert BulkChange.objects.get(pk=change.pk).error == ""
    client.force_login(boss)
    with as_role("web"):
        for page in (*pages(), reverse("admin:pgjobs_job_change", args=[jobs[0].id])):
            assert client.get(page).status_code in (200, 302, 403, 405), page
        Worker.objects.update(quiet_requested_at="2030-01-01T00:00Z")
        RateState.objects.all().delete()


@pytest.mark.parametrize("kind", ROLES)
def test_workflows_are_opened_run_and_deleted_under_either_role(
    as_role: As, start_thread: Callable[..., ThreadedWorker], kind: str
) -> None:
    """Ids of batches are taken before they are inserted."""
    with as_role(kind):
        with workflow("sums", dedupe_key="one") as flow:
            flow.add(tasks.add.s(1, 2))
            flow.each(tasks.echo.s())
            flow.gather(tasks.echo.s())
    with as_role("worker"):
        worker = start_thread(drain=True)
        assert worker.join() == 0
    with as_role(kind):
        flow.refresh_from_db()
        assert flow.tree_completed_at and not flow.tree_failed
        flow.delete()


@pytest.mark.parametrize("kind", ROLES)
@pytest.mark.parametrize("verb", sorted(set(ACTIONS) - {"export"}))
def test_each_bulk_change_is_done_by_either_role(as_role: As, kind: str, verb: str) -> None:
    """A small one by the web process itself, a large one by a worker."""
    boss = User.objects.create_superuser("boss")
    first = make_job(due_at="2100-01-01")
    with as_role("web"):
        tasks.add.using(after=first).enqueue(1, 2)
        finished = "failed" if verb in ("delete", "requeue") else "ready"
        make_job(status=finished, finished_at="2020-01-01" if finished == "failed" else None)
        selection = Selection({"status": finished}).pinned()
        change = create_change(ACTIONS[verb], selection, {"priority": 3, "seconds": 9}, user=boss)
    with as_role(kind):
        run_change(change.pk)
    done = BulkChange.objects.get(pk=change.pk)
    assert (done.changed > 0, done.error) == (True, "")


@pytest.mark.parametrize(
    ("kind", "forbidden"),
    [
        ("web", "UPDATE pgjobs_worker SET lease_expires_at = now()"),
        ("web", "INSERT INTO pgjobs_worker (name) VALUES ('w')"),
        ("web", "SELECT FROM pgjobs_keyed_claim"),
        ("web", "DELETE FROM pgjobs_job"),
        ("web", "DELETE FROM pgjobs_job_live"),
        ("web", "DELETE FROM pgjobs_bulk_change"),
        ("web", "TRUNCATE pgjobs_job"),
        ("worker", "DELETE FROM pgjobs_job"),
        ("worker", "INSERT INTO pgjobs_pause (kind, name) VALUES ('queue', 'q')"),
        ("worker", "UPDATE pgjobs_concurrency_limit SET max_running = 1"),
        ("worker", "DELETE FROM pgjobs_rate_limit"),
        ("worker", "UPDATE pgjobs_queue_settings SET max_running = 1"),
        ("worker", "INSERT INTO pgjobs_bulk_change (verb) VALUES ('delete')"),
        ("worker", "CREATE TABLE public.pgjobs_mine ()"),
        ("worker", "ALTER TABLE pgjobs_job DISABLE TRIGGER ALL"),
    ],
)
def test_a_role_may_do_no_more_than_it_needs(as_role: As, kind: str, forbidden: str) -> None:
    refused = pytest.raises(DatabaseError, match=r"permission denied|must be owner")
    with as_role(kind), connection.cursor() as cursor, refused:
        cursor.execute(forbidden)


def checked(*flags: str) -> str:
    """Return what `runjobs --check` prints."""
    output = StringIO()
    call_command("runjobs", "--check", *flags, stdout=output)
    return output.getvalue()


@pytest.mark.usefixtures("limits_of_all_tasks")
@pytest.mark.parametrize("owns", [True, False], ids=["owner", "role"])
def test_a_check_ends_with_ok_if_nothing_is_missing(as_role: As, owns: bool) -> None:
    with nullcontext() if owns else as_role("worker"):
        lines = checked().splitlines()
    assert lines[-1] == "OK      a worker can start; its role has all rights that it needs."
    assert not any(line.startswith(("WARNING", "Ctrl-C")) for line in lines)


@pytest.mark.usefixtures("limits_of_all_tasks")
def test_a_check_that_only_warns_says_that_a_worker_can_start() -> None:
    lines = checked("--queues", "malle").splitlines()
    assert lines[-2].startswith("WARNING no task and no waiting job uses the queue 'malle'")
    assert lines[-1] == "OK      a worker can start, but see the warnings above."


@pytest.mark.usefixtures("limits_of_all_tasks")
@pytest.mark.parametrize(
    "revoked",
    [
        "USAGE ON SCHEMA public",
        "SELECT ON TABLE public.pgjobs_job",
        "SELECT, INSERT ON TABLE public.pgjobs_worker",
        "DELETE ON TABLE public.pgjobs_job_finished",
        "SELECT ON TABLE public.pgjobs_pause, public.pgjobs_rate_limit",
        "USAGE ON SEQUENCE public.pgjobs_job_id_seq",
        "EXECUTE ON FUNCTION public.pgjobs_merged_v1",
    ],
)
def test_a_check_names_what_is_missing_and_the_grant_that_repairs_it(
    as_role: As, open_connection: Callable[..., psycopg.Connection], revoked: str
) -> None:
    owner = open_connection()
    owner.execute(f'REVOKE {revoked} FROM "{ROLES["worker"]}"'.encode())
    with as_role("worker"):
        with pytest.raises(CommandError) as caught:
            checked()
        head, *grants = str(caught.value).splitlines()
        assert head == (
            "the role of the database 'default' lacks rights. As the owner of the tables run:"
        )
        assert grants == [f'GRANT {revoked} TO "{ROLES["worker"]}";']
        assert caught.value.returncode == 3
        for grant in grants:
            owner.execute(grant.encode())
        assert "OK " in checked()


@pytest.mark.usefixtures("limits_of_all_tasks")
def test_the_record_of_migrations_is_one_to_wish_for(
    as_role: As, open_connection: Callable[..., psycopg.Connection]
) -> None:
    revoked = "SELECT ON TABLE public.django_migrations"
    open_connection().execute(f'REVOKE ALL ON django_migrations FROM "{ROLES["worker"]}"'.encode())
    with as_role("worker"):
        assert checked().splitlines()[-2] == (
            "WARNING the record of migrations may not be read, so only columns are compared. "
            f'GRANT {revoked} TO "{ROLES["worker"]}";'
        )


@pytest.mark.usefixtures("limits_of_all_tasks")
def test_a_check_names_what_is_needed_and_what_is_to_wish_for_at_once(
    as_role: As, open_connection: Callable[..., psycopg.Connection]
) -> None:
    owner = open_connection()
    for table in ("django_migrations", "pgjobs_pause"):
        owner.execute(f'REVOKE ALL ON {table} FROM "{ROLES["worker"]}"'.encode())
    with as_role("worker"):
        with pytest.raises(CommandError) as caught:
            checked()
        for grant in str(caught.value).splitlines()[1:]:
            owner.execute(grant.encode())
        assert checked().splitlines()[-1].startswith("OK      a worker can start; its role")


def test_rights_on_columns_are_asked_for_one_by_one(
    as_role: As, own: OwnConnection, open_connection: Callable[..., psycopg.Connection]
) -> None:
    owner = open_connection()
    with as_role("web"):
        assert missing_grants(own, WEB) == []
        revoked = "UPDATE (stop_requested_at) ON TABLE public.pgjobs_worker"
        owner.execute(f'REVOKE {revoked} FROM "{ROLES["web"]}"'.encode())
        assert missing_grants(own, WEB) == [f'GRANT {revoked} TO "{ROLES["web"]}";']
        own.close()


@contextmanager
def statement_on_jobs(owner: psycopg.Connection, begin: str, end: str) -> Iterator[None]:
    """Run a statement of the owner of the table of live jobs, and in the end another."""
    owner.execute(begin.format(role=ROLES["worker"]).encode())
    try:
        yield
    finally:
        owner.execute(end.format(role=ROLES["worker"]).encode())


def test_a_row_that_row_security_refuses_is_to_blame(
    as_role: As,
    start_thread: Callable[..., ThreadedWorker],
    open_connection: Callable[..., psycopg.Connection],
) -> None:
    owner = open_connection()
    with statement_on_jobs(
        owner,
        "ALTER TABLE pgjobs_job_live ENABLE ROW LEVEL SECURITY;"
        'CREATE POLICY no_one ON pgjobs_job_live TO "{role}" USING (TRUE)'
        " WITH CHECK (queue_name <> 'secret' OR status = 'ready')",
        "DROP POLICY no_one ON pgjobs_job_live;"
        "ALTER TABLE pgjobs_job_live DISABLE ROW LEVEL SECURITY",
    ):
        secret = make_job(queue_name="secret")
        job = make_job(queue_name="secret ", priority=-1)
        with as_role("worker"):
            start_thread()
            wait_until(lambda: get_job(job).status == "successful")
            wait_until(lambda: get_job(secret).note.startswith("passed over: "))


def test_what_people_do_to_schedules_under_the_role_of_a_web_process(as_role: As) -> None:
    begin = timezone.now() - timedelta(hours=2)
    with as_role("web"):
        row = Schedule.objects.create(name="x", task_path=tasks.add.module_path, every=3600.0)
        Schedule.objects.filter(pk=row.pk).update(args=[1, 2])
        assert skip_next("x") == unskip("x")[0]
        assert control.run_now("x").is_new
        assert control.pause_schedule("x") and control.resume_schedule("x")
        assert control.backfill("x", begin, timezone.now()).enqueued == 2
        assert control.upcoming(Schedule.objects.get(), 1)
    with as_role("worker"):
        assert fire_due().taken == 1
        retry_unplanned()
    with as_role("web"):
        Schedule.objects.all().delete()


def retry_unplanned() -> None:
    """Do what a scheduler does now and then."""
    with connection.cursor() as cursor:
        schedules.retire_schedules(cursor, schedules.list_undeclared(cursor))
        schedules.retry_broken(cursor, [tasks.add.module_path])
