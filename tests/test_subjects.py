"""The row that a job is about: stored as text, kept by requeueing, found again."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.contrib.sessions.models import Session
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext, isolate_apps
from django.utils import timezone

from django_pgjobs import requeue, task
from django_pgjobs.compat import InvalidTask
from django_pgjobs.declaring.subjects import Subject, parse_subject, subject_of
from django_pgjobs.models import Job
from tests.factories import get_job, make_job
from tests.tasks import add, echo

pytestmark = pytest.mark.django_db


@task(unique_key="greet:{name}")
def greet(name: str) -> None:
    """A second one is met."""


@task(unique_key="greet:{name}", unique_until="claimed")
def greet_waiting(name: str) -> None:
    """A second one is met as long as the first waits."""


@task(unique_key="greet:{name}", on_conflict="merge")
def greet_merged(name: str, times: int = 1) -> None:
    """A second one is merged."""


@task(concurrency_key="greet:{name}", rate_limit="greetings")
def greet_in_turn(name: str) -> None:
    """One at a time."""


@pytest.fixture
def group() -> Group:
    """A saved row."""
    return Group.objects.create(name="editors")


def test_a_job_is_linked_to_a_row(group: Group) -> None:
    result = add.using(subject=group).enqueue(1, 2)
    assert get_job(result.id).subject == f"auth.group:{group.pk}"
    assert [str(job.pk) for job in Job.objects.for_subject(group)] == [result.id]  # type: ignore[attr-defined]
    assert not Job.objects.for_subject(Group.objects.create(name="others")).exists()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "each", [greet, greet_waiting, greet_merged, greet_in_turn], ids=lambda each: each.func.__name__
)
def test_jobs_with_keys_are_linked_too(group: Group, each: Any) -> None:
    result = each.using(subject=group).enqueue(name="a")
    [second] = each.using(subject=group).enqueue_many([{"name": "b"}])
    for job_id in (result.id, second):
        assert get_job(job_id).subject == f"auth.group:{group.pk}"


def test_a_merged_job_keeps_its_first_subject(group: Group) -> None:
    greet_merged.enqueue(name="a")
    job = greet_merged.using(subject=group).enqueue(name="a")
    assert get_job(job.id).subject == f"auth.group:{group.pk}"
    other = Group.objects.create(name="others")
    greet_merged.using(subject=other).enqueue(name="a", times=2)
    row = get_job(job.id)
    assert (row.subject, row.kwargs["times"]) == (f"auth.group:{group.pk}", 2)


def test_many_jobs_share_a_subject(group: Group) -> None:
    ids = add.using(subject=group).enqueue_many([(1, 2), (3, 4)])
    assert {get_job(job_id).subject for job_id in ids} == {f"auth.group:{group.pk}"}


@pytest.mark.parametrize("each", [echo, greet, greet_in_turn], ids=lambda each: each.func.__name__)
def test_jobs_from_a_queryset_share_a_subject(group: Group, each: Any) -> None:
    User.objects.create_user("anna")
    linked = each.using(subject=group)
    assert linked.enqueue_from(User.objects.all(), name=F("username")) == 1
    [job] = Job.objects.all()
    assert (job.subject, job.kwargs) == (f"auth.group:{group.pk}", {"name": "anna"})
    assert job.rate_cost == 1


def test_jobs_from_a_queryset_have_no_subject_unless_given(group: Group) -> None:
    assert echo.enqueue_from(Group.objects.all(), name=F("name")) == 1
    assert Job.objects.get().subject is None


def test_a_plain_enqueue_sends_the_statement_it_always_sent() -> None:
    with CaptureQueriesContext(connection) as queries:
        add.enqueue(1, 2)
    [insert] = [query["sql"] for query in queries if "pgjobs_job" in query["sql"]]
    assert "subject" not in insert
    assert "concurrency_key" not in insert


def test_a_requeued_job_keeps_its_subject(group: Group) -> None:
    job_id = make_job(status="failed", subject="auth.group:1", finished_at=timezone.now())
    assert requeue(job_id)
    row = get_job(job_id)
    assert (row.status, row.subject) == ("ready", "auth.group:1")


def test_using_again_keeps_the_subject(group: Group) -> None:
    linked = add.using(subject=group).using(priority=3)
    assert linked.subject == f"auth.group:{group.pk}"
    assert get_job(linked.enqueue(1, 2).id).subject == f"auth.group:{group.pk}"


@pytest.mark.parametrize(
    "subject", [Group(name="x"), Group(pk=5), "auth.group:1", 5, Group, {}], ids=repr
)
def test_what_is_no_saved_row_is_refused(subject: Any) -> None:
    with pytest.raises(InvalidTask, match="option subject: expected subject to be a"):
        add.using(subject=subject)
    with pytest.raises((TypeError, ValueError)):
        Job.objects.for_subject(subject)  # type: ignore[attr-defined]


def test_a_subject_is_of_a_job_and_not_of_a_task() -> None:
    with pytest.raises(TypeError, match=r"use \.using\(subject="):
        task(subject=None)(add.func)  # type: ignore[call-overload]


@isolate_apps("django.contrib.auth", "django.contrib.contenttypes")
def test_a_proxy_is_the_row_of_its_model() -> None:
    class Staff(User):
        class Meta:
            proxy = True
            app_label = "auth"

    user = User.objects.create_user("anna")
    assert subject_of(Staff.objects.get()) == subject_of(user) == f"auth.user:{user.pk}"


def test_a_key_reads_the_same_however_it_was_given() -> None:
    key = uuid.uuid4()
    session = Session(session_key=str(key), expire_date=timezone.now())
    session.save()
    assert subject_of(session) == f"sessions.session:{key}"
    group = Group(pk="7", name="given as text")
    group.save()
    assert subject_of(group) == subject_of(Group.objects.get()) == "auth.group:7"


def test_a_key_that_the_column_cannot_hold_is_refused() -> None:
    session = Session(session_key="x" * 600, expire_date=timezone.now())
    session._state.adding = False
    with pytest.raises(ValueError, match="at most 512 bytes"):
        subject_of(session)


def test_a_subject_is_read_back() -> None:
    parsed = parse_subject("auth.group:a:b")
    assert parsed is not None
    assert (parsed.model, parsed.key) == (Group, "a:b")
    for text in ("auth.nothing:1", "nothing", "", ":", "a.b.c:1"):
        assert parse_subject(text) is None
    assert subject_of(Subject("auth.group:1")) == "auth.group:1"
