"""Rows that move to the other partition when a statement has begun and not yet locked them.

PostgreSQL raises a serialization error for them, also where locked rows are skipped. In a
transaction of the project's it would be the end of that.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from django.db import OperationalError, connection, connections, transaction

from django_pgjobs import cancel, requeue, reschedule
from django_pgjobs.bulk import changes
from django_pgjobs.bulk.actions import ACTIONS
from django_pgjobs.bulk.changes import create_change, run_page
from django_pgjobs.bulk.selection import Selection
from django_pgjobs.models import Job
from django_pgjobs.queries.bulk import reset_attempts
from tests.factories import count_jobs, get_job, make_job, make_running_job
from tests.helpers import connect
from tests.models import Effect
from tests.races.support import DjangoThread
from tests.races.test_unique import KINDS, by_name, enqueue, values_of, wait_until_waiting
from tests.test_client import make_finished_job
from tests.test_dependencies import FREE, enqueue_after, state

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.race]

Meet = Callable[[int, Callable[[], Any]], Any]
KEY = 4711
# The trigger of a statement fires when that has its snapshot and has not looked for rows yet.
TRIGGER = """
CREATE FUNCTION public.before_rows() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    {body};
    RETURN NULL;
END $$;
CREATE TRIGGER before_rows BEFORE INSERT OR UPDATE OR DELETE ON pgjobs_job
    FOR EACH STATEMENT EXECUTE FUNCTION public.before_rows();
CREATE TRIGGER before_rows BEFORE INSERT OR UPDATE OR DELETE ON pgjobs_job_live
    FOR EACH STATEMENT EXECUTE FUNCTION public.before_rows();
CREATE TRIGGER before_rows BEFORE INSERT OR UPDATE OR DELETE ON pgjobs_job_finished
    FOR EACH STATEMENT EXECUTE FUNCTION public.before_rows();
"""
WAIT = f"PERFORM pg_advisory_lock({KEY}), pg_advisory_unlock({KEY})"
CROSS = "RAISE serialization_failure"
MOVE = """
UPDATE pgjobs_job
SET
    status = CASE WHEN finished_at IS NULL THEN 'successful' ELSE 'ready' END,
    finished_at = CASE WHEN finished_at IS NULL THEN now() END
WHERE id = %s
"""


@pytest.fixture
def before_rows(transactional_db: None) -> Iterator[Callable[[str], None]]:
    """Let something happen between the snapshot and the locks of each change of jobs."""

    def execute(text: str) -> None:
        with connect() as owner:
            owner.execute(text)

    yield lambda body: execute(TRIGGER.format(body=body))
    execute("DROP FUNCTION IF EXISTS public.before_rows() CASCADE")


@pytest.fixture
def meet_move(in_thread: Callable[..., DjangoThread], before_rows: Callable[[str], None]) -> Meet:
    """Return what a change comes to while a job moves: `meet_move(job_id, change)`."""

    def meet(job_id: int, change: Callable[[], Any]) -> Any:
        before_rows(WAIT)
        with connect(autocommit=False) as mover:
            mover.execute("SELECT pg_advisory_xact_lock(%s)", [KEY])
            mover.execute(MOVE, [job_id])
            thread = in_thread(change)
            wait_until_waiting(thread)
            mover.commit()
        return thread.result()

    return meet


def in_transaction(change: Callable[[], Any]) -> Any:
    """Return what *change* returns in a transaction that does other things before and after."""
    with transaction.atomic():
        Effect.objects.create(key="before")
        changed = change()
        Effect.objects.create(key="after")
    return changed


def by_hand(change: Callable[[], Any]) -> Any:
    """Return what *change* returns in a transaction that is none of Django's."""
    transaction.set_autocommit(False)
    changed = in_transaction(change)
    transaction.commit()
    return changed


def make_running_id() -> int:
    """Insert a running job."""
    return int(make_running_job().id)


CHANGES = {
    "cancel what runs": (cancel, make_running_id),
    "cancel what waits": (cancel, make_job),
    "reschedule": (lambda job_id: reschedule(job_id, None), make_job),
    "requeue": (requeue, make_finished_job),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("around", [None, in_transaction, by_hand])
def test_a_change_that_meets_a_move_says_that_it_came_too_late(
    name: str, around: Callable[..., Any] | None, meet_move: Meet
) -> None:
    """The caller's transaction goes on."""
    verb, make = CHANGES[name]
    job_id = make()
    change = partial(verb, job_id)
    found = meet_move(job_id, partial(around, change) if around else change)
    assert found is False
    assert get_job(job_id).status == ("ready" if name == "requeue" else "successful")
    assert Effect.objects.count() == (2 if around else 0)


BULK_CHANGES = [
    ("requeue", {}, make_finished_job),
    ("run_now", {}, make_job),
    ("cancel", {}, make_job),
    ("discard", {}, make_job),
    ("move", {"queue_name": "other"}, make_job),
    ("delete", {}, make_finished_job),
]


@pytest.mark.parametrize(("verb", "options", "make"), BULK_CHANGES)
def test_a_change_of_many_jobs_passes_over_those_that_move(
    verb: str, options: dict[str, Any], make: Callable[[], int], meet_move: Meet
) -> None:
    moving, staying = make(), make()

    def change() -> list[int]:
        with connection.cursor() as cursor:
            return ACTIONS[verb].apply(cursor, [moving, staying], options).changed

    assert meet_move(moving, partial(in_transaction, change)) == [staying]
    assert Effect.objects.count() == 2


def test_a_failed_job_that_moves_as_it_is_given_up_is_given_up_as_a_waiting_one(
    meet_move: Meet,
) -> None:
    """The statement that is sent again sees that it was requeued."""
    job_id = make_finished_job()

    def change() -> list[int]:
        with connection.cursor() as cursor:
            return ACTIONS["discard"].apply(cursor, [job_id], {}).changed

    assert meet_move(job_id, partial(in_transaction, change)) == [job_id]
    assert get_job(job_id).status == "cancelled"


def test_a_reset_of_attempts_passes_over_a_job_that_moves(meet_move: Meet) -> None:
    moving, staying = make_job(attempts=1), make_job(attempts=1)

    def change() -> list[int]:
        with connection.cursor() as cursor:
            return reset_attempts(cursor, [moving, staying])

    assert meet_move(moving, partial(in_transaction, change)) == [staying]


@by_name
def test_an_enqueue_that_meets_a_move_inserts_its_job(name: str, meet_move: Meet) -> None:
    """A met row is found and locked with what is committed by then."""
    unique = KINDS[name]
    job = unique.enqueue(1, ["a"])
    other = meet_move(int(job.id), enqueue(unique))
    assert other != job.id
    assert values_of(other) == ["b"]
    assert count_jobs() == 2


# Rows that a role is shown pass through this function when the statement has its snapshot.
POLICY = f"""
CREATE FUNCTION public.show_row() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    {WAIT};
    RETURN TRUE;
END $$;
CREATE ROLE {{role}};
GRANT ALL ON ALL TABLES IN SCHEMA public TO {{role}};
GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {{role}};
CREATE POLICY show_row ON pgjobs_job_live USING (public.show_row());
ALTER TABLE pgjobs_job_live ENABLE ROW LEVEL SECURITY;
"""
END_POLICY = """
ALTER TABLE pgjobs_job_live DISABLE ROW LEVEL SECURITY;
DROP POLICY show_row ON pgjobs_job_live;
DROP FUNCTION public.show_row();
DROP OWNED BY {role};
DROP ROLE {role};
"""


@pytest.fixture
def shown_role(transactional_db: None) -> Iterator[str]:
    """Return a role whose statements can be held up between their snapshot and their locks."""
    role = f"shown_{uuid.uuid4().hex}"
    with connect() as owner:
        owner.execute(POLICY.format(role=role))
        yield role
        owner.execute(END_POLICY.format(role=role))


def test_a_dependency_whose_commit_meets_the_move_of_the_job_before_is_resolved(
    in_thread: Callable[..., DjangoThread], shown_role: str
) -> None:
    """The trigger at the commit looks again, and the commit goes through."""
    before = make_running_id()
    enqueued, held = threading.Event(), threading.Event()

    def enqueue_and_commit() -> int:
        with connection.cursor() as cursor:
            cursor.execute(f"SET ROLE {shown_role}")
        with transaction.atomic():
            job_id = enqueue_after(before)
            enqueued.set()
            assert held.wait(10)
        return job_id

    thread = in_thread(enqueue_and_commit)
    assert enqueued.wait(10)
    with connect(autocommit=False) as mover:
        mover.execute("SELECT pg_advisory_xact_lock(%s)", [KEY])
        mover.execute(MOVE, [before])
        held.set()
        wait_until_waiting(thread)
        mover.commit()
    assert state(thread.result()) == FREE


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_transaction_that_keeps_its_snapshot_gets_postgres_own_error(
    level: str, meet_move: Meet
) -> None:
    """It cannot look again."""
    job_id = make_job()

    def change() -> bool:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
            return cancel(job_id)

    with pytest.raises(OperationalError, match="could not serialize access"):
        meet_move(job_id, change)
    assert get_job(job_id).status == "successful"


def test_a_change_that_is_always_crossed_gives_up_and_the_transaction_goes_on(
    before_rows: Callable[[str], None],
) -> None:
    """A trigger of the project's, say."""
    job_id = make_job()
    before_rows(CROSS)
    with transaction.atomic():
        Effect.objects.create(key="before")
        with pytest.raises(OperationalError, match="serialization_failure"):
            cancel(job_id)
        Effect.objects.create(key="after")
    connections.close_all()
    assert Effect.objects.count() == 2
    assert get_job(job_id).status == "ready"


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_a_page_of_a_bulk_change_sees_what_is_committed_meanwhile(
    admin_user: Any, monkeypatch: pytest.MonkeyPatch, isolation: str
) -> None:
    """Whatever the project's default: a busy queue changes some job of each page."""
    jobs = [make_job() for _ in range(3)]
    change = create_change(
        ACTIONS["cancel"], Selection({"status": "ready"}).pinned(), {}, user=admin_user
    )
    real = changes._apply

    def apply(*given: Any) -> Any:
        with connect() as other:
            other.execute("UPDATE pgjobs_job SET note = 'seen' WHERE id = %s", [jobs[0]])
        return real(*given)

    monkeypatch.setattr(changes, "_apply", apply)
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('default_transaction_isolation', %s, FALSE)", [isolation])
        try:
            assert sorted(run_page(change.pk).changed) == jobs
        finally:
            cursor.execute("RESET default_transaction_isolation")


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_a_change_of_a_queryset_passes_over_what_moves(isolation: str, meet_move: Meet) -> None:
    """Whatever the project's default."""
    moving, staying = make_job(), make_job()

    def change() -> int:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT set_config('default_transaction_isolation', %s, FALSE)", [isolation]
            )
        return Job.objects.filter(pk__in=[moving, staying]).cancel()

    assert meet_move(moving, change) == 1
    assert [get_job(job_id).status for job_id in (moving, staying)] == ["successful", "cancelled"]
