"""What the page of a job says of its batch, and the jobs of a batch in the list."""

from __future__ import annotations

import json

import pytest
from django.db import connection
from django.test import Client
from psycopg import sql

from django_pgjobs import workflow
from django_pgjobs.admin.job_list import batches, changelist
from django_pgjobs.admin.jobs import JobAdmin
from django_pgjobs.models import Job
from django_pgjobs.models.batch_states import in_tree, of_batches
from tests import tasks
from tests.admin.lists import ids_in, link, listed
from tests.admin.test_workflows import read
from tests.factories import make_batch, make_job, make_jobs
from tests.test_admin import NOW

pytestmark = pytest.mark.django_db


@pytest.mark.slow
def test_the_page_of_a_job_names_its_batch_and_says_why_that_does_not_end(
    admin_client: Client,
) -> None:
    with workflow("payroll", seal=False) as pay:
        [job] = pay.add(tasks.add.s(1, 1))
        part = pay.batch("cheques")
        [in_part] = part.add(tasks.add.s(1, 1))
    text = read(admin_client, "admin:pgjobs_job_change", job)
    assert f">payroll #{pay.pk}</a>" in text
    assert "it is not sealed. Press Seal… on its page" in text
    text = read(admin_client, "admin:pgjobs_job_change", in_part)
    assert f">cheques #{part.pk}</a>" in text
    assert f">payroll #{pay.pk}</a>" in text
    assert "Batch</dt>" not in read(admin_client, "admin:pgjobs_job_change", make_job())


def test_a_job_whose_batch_is_gone_has_a_page(admin_client: Client) -> None:
    job = make_job(status="failed", finished_at=NOW, batch_id=10**9)
    assert "Batch</dt>" not in read(admin_client, "admin:pgjobs_job_change", job)


@pytest.mark.parametrize("tab", ["all", "ready", "failed", "successful"])
def test_jobs_are_searched_by_batch(admin_client: Client, tab: str) -> None:
    batch = make_batch(sealed_at=None)
    waiting = make_jobs(2, batch_id=batch)
    failed = make_jobs(2, status="failed", finished_at=NOW, batch_id=batch)
    make_jobs(2, status="failed", finished_at=NOW)
    wanted = {"all": waiting + failed, "ready": waiting, "failed": failed, "successful": []}
    assert sorted(ids_in(listed(admin_client, tab=tab, q=f"batch:{batch}"))) == sorted(wanted[tab])


@pytest.mark.parametrize("value", ["x", "", "9" * 30, "-1"])
def test_a_batch_that_can_be_none_is_told_so(admin_client: Client, value: str) -> None:
    text = listed(admin_client, q=f"batch:{value}")
    assert 'class="errornote"' in text


def tree_of_jobs() -> tuple[int, dict[str, list[int]]]:
    """Make a tree with jobs on two levels; return its top and the jobs of each tab, newest first.

    Other jobs and batches are older, newer and in between.
    """
    make_jobs(2, status="failed", finished_at=NOW)
    root = make_batch("root", sealed_at=None)
    first = make_jobs(2, status="failed", finished_at=NOW, batch_id=root)
    make_jobs(3, batch_id=make_batch("other", sealed_at=None))
    part = make_batch("part", parent_id=make_batch("middle", parent_id=root), sealed_at=None)
    waiting = make_jobs(2, batch_id=part)
    failed = make_jobs(2, status="failed", finished_at=NOW, batch_id=part)
    make_jobs(2, status="failed", finished_at=NOW)
    ids = {"all": first + waiting + failed, "ready": waiting, "failed": first + failed}
    return root, {tab: sorted(jobs, reverse=True) for tab, jobs in ids.items()}


@pytest.mark.slow
@pytest.mark.parametrize("tab", ["all", "ready", "failed"])
@pytest.mark.parametrize("most", [4, 3])
def test_jobs_are_searched_by_the_tree_of_a_batch(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch, tab: str, most: int
) -> None:
    """Its failed ones are few enough for the index although all of them are not."""
    monkeypatch.setattr(batches, "MAX_SORTED", most)
    root, wanted = tree_of_jobs()
    assert (
        sorted(ids_in(listed(admin_client, tab=tab, q=f"tree:{root}")), reverse=True)
        == (wanted[tab])
    )


@pytest.mark.slow
def test_the_jobs_of_a_tree_come_by_id_in_pages(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, wanted = tree_of_jobs()
    monkeypatch.setattr(JobAdmin, "list_per_page", 3)
    first = listed(admin_client, tab="failed", q=f"tree:{root}")
    assert ids_in(first) == wanted["failed"][:3]
    older = link(first, "next")
    assert older
    second = listed(admin_client, **older)
    assert ids_in(second) == wanted["failed"][3:]
    assert ids_in(listed(admin_client, **(link(second, "prev") or {}))) == wanted["failed"][:3]


@pytest.mark.parametrize("tab", ["all", "failed"])
def test_the_list_of_a_large_tree_begins_at_its_end(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch, tab: str
) -> None:
    """However many jobs have come since."""
    monkeypatch.setattr(batches, "MAX_SORTED", 1)
    for name in ("LOOK_THROUGH", "LOOK_THROUGH_RARE"):
        monkeypatch.setattr(changelist, name, dict.fromkeys(changelist.LOOK_THROUGH, 3))
    long_ago = sql.SQL("now() - interval '1 day'")
    root = make_batch(jobs=2, failed=2, completed_at=long_ago, tree_completed_at=long_ago)
    moments = {"enqueued_at": long_ago, "finished_at": long_ago}
    wanted = make_jobs(2, status="failed", batch_id=root, **moments)
    make_jobs(9, status="failed", finished_at=NOW)
    assert sorted(ids_in(listed(admin_client, tab=tab, q=f"tree:{root}"))) == wanted


def test_new_jobs_of_a_tree_are_counted(admin_client: Client) -> None:
    root, wanted = tree_of_jobs()
    text = listed(admin_client, q=f"tree:{root}", count_after=str(wanted["all"][2]))
    assert json.loads(text) == {"text": "2 new jobs"}


def test_a_tree_that_is_gone_has_no_jobs(admin_client: Client) -> None:
    make_jobs(2, batch_id=make_batch(sealed_at=None))
    assert ids_in(listed(admin_client, q=f"tree:{10**9}")) == []


def test_many_batches_are_one_parameter() -> None:
    """Of a tree with 20,000 batches the pages of narrowed people took six seconds."""
    wanted = make_job(batch_id=make_batch("wanted"), source_id=0)
    make_job(batch_id=make_batch("other"), source_id=0)
    [batch_id] = Job.objects.filter(pk=wanted).values_list("batch_id", flat=True)
    found = Job.objects.filter(of_batches([batch_id, *range(10**9, 10**9 + 1_000)]))
    assert [job.pk for job in found] == [wanted]
    assert len(found.query.sql_with_params()[1]) < 50
    assert not Job.objects.filter(of_batches([])).exists()


# 20 below the root, and 100 below each of them.
MANY_BELOW = """
INSERT INTO pgjobs_batch (root_id, parent_id, flow_id)
SELECT root, COALESCE(above, root), root
FROM (
    SELECT %(root)s::bigint AS root, CASE WHEN n > 20 THEN %(first)s::bigint + n %% 20 END AS above
    FROM generate_series(1, 2020) AS n
) AS made
"""


@pytest.mark.django_db
def test_a_large_tree_is_looked_up_by_a_hash_however_large_the_planner_takes_it_for() -> None:
    """It expects ten times as many batches at each step, and searched a list for each job."""
    root = make_batch("root")
    first = make_batch("first", parent_id=root, root_id=root)
    with connection.cursor() as cursor:
        cursor.execute(MANY_BELOW, {"root": root, "first": first})
        cursor.execute("ANALYZE pgjobs_batch")
        cursor.execute("SET LOCAL work_mem = '64kB'")
    plan = Job.objects.filter(in_tree(root, is_large=True)).explain()
    assert "hashed SubPlan" in plan, plan
