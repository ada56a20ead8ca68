"""How a ready job waits is said alike by all who say it: claim, tabs, counts, lists, pages."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from django.db import connection
from django.db.models.functions import Now
from psycopg import sql

from django_pgjobs import pause
from django_pgjobs.admin.job_list.tabs import TABS, count_tabs
from django_pgjobs.control.details import detail_of, find_paused
from django_pgjobs.models import Job
from django_pgjobs.queries.numbers import Size
from django_pgjobs.queries.queue_pages import list_queues
from django_pgjobs.sql.terms import written_out
from django_pgjobs.status import UNFINISHED, Detail, Hold, JobStatus
from tests.factories import make_job

pytestmark = pytest.mark.django_db

PAST, LATER = sql.SQL("now() - interval '1 h'"), sql.SQL("now() + interval '1 h'")
# Tab, and what a count of a queue calls it -> the term by which statements say the same.
TERMS = {
    "ready": "is_ready", "scheduled": "is_scheduled", "retrying": "is_retrying",
    "blocked": "is_blocked",
}  # fmt: skip


@pytest.fixture(autouse=True)
def jobs() -> list[Job]:
    """One job of each combination of what the conditions look at."""
    for status, due_at, hold, attempts in itertools.product(
        JobStatus.values, (None, PAST, LATER), (None, *Hold.values), (0, 1, 7)
    ):
        make_job(status=status, due_at=due_at, hold=hold, attempts=attempts, finished_at=PAST)
    return list(Job.objects.order_by("pk"))


def tabs_of(jobs: list[Job]) -> dict[int, str]:
    """Return the tab that shows each job; it is one, beside that of all jobs."""
    found: dict[int, str] = {}
    for tab in TABS[1:]:
        ids = Job.objects.filter(**tab.lookups).values_list("pk", flat=True)
        assert not found.keys() & set(ids), tab.key
        found |= dict.fromkeys(ids, tab.key)
    assert found.keys() == {job.pk for job in jobs}
    return found


@pytest.mark.parametrize("tab", TERMS)
def test_a_tab_shows_what_statements_call_so(jobs: list[Job], tab: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            written_out(f"SELECT job.id FROM pgjobs_job AS job WHERE {{job.{TERMS[tab]}}}")
        )
        found = {job_id for (job_id,) in cursor.fetchall()}
    assert found == {job_id for job_id, key in tabs_of(jobs).items() if key == tab}
    assert found


def test_the_counts_are_those_of_the_tabs(jobs: list[Job]) -> None:
    by_tab = Counter(tabs_of(jobs).values())
    counted = count_tabs(Job.objects.all())
    assert {tab.key: counted[tab.key].number for tab in TABS} == by_tab | {"all": len(jobs)}
    with connection.cursor() as cursor:
        queues = list_queues(cursor)
    [queue] = queues.rows
    for size in (queues.size, queue.size):
        assert isinstance(size, Size)
        assert {tab: getattr(size, tab) for tab in (*TERMS, "running")} == {
            tab: by_tab[tab] for tab in (*TERMS, "running")
        }
    assert size.jobs == sum(job.status in UNFINISHED for job in jobs)


def test_what_lists_say_of_a_job_is_the_tab_that_shows_it(jobs: list[Job]) -> None:
    tabs = tabs_of(jobs)
    assert find_paused(jobs) == set()
    for job in jobs:
        detail, tab = detail_of(job, is_paused=False), tabs[job.pk]
        assert detail == (
            job.hold if tab == "blocked" else tab if tab in ("scheduled", "retrying") else None
        ), (tab, job.hold)


def test_a_pause_is_said_of_jobs_that_could_start(jobs: list[Job]) -> None:
    """Their time has come, if they waited for one: a look makes them ready at any moment."""
    tabs = tabs_of(jobs)
    pause(queue="default")
    paused = find_paused(jobs)
    said = {job.pk: detail_of(job, is_paused=job.pk in paused) for job in jobs}
    assert {tabs[job_id] for job_id in paused} == {"ready", "scheduled", "retrying"}
    assert {job_id for job_id, detail in said.items() if detail is Detail.PAUSED} == paused
    overdue = Job.objects.filter(status="ready", hold=None, due_at__lt=Now())
    due_now = Job.objects.filter(status="ready", hold=None, due_at=None)
    assert paused == {job.pk for job in [*overdue, *due_now]}
