"""The pages Workers, Schedules and Workflows, and those of one, against plain SQL."""

from __future__ import annotations

import re
from typing import Any

from django.test import Client
from django.urls import reverse

from django_pgjobs.admin.workers.page import MAX_JOBS_OF_ONE
from django_pgjobs.control.workers import MAX_JOBS
from django_pgjobs.queries.schedule_pages import MAX_RUNS
from tests.sizes.compared import between, cells, facts, plain, query, steady

WORKERS = """
SELECT
    worker.id, worker.name, worker.slots, worker.ended_at IS NULL,
    (
        SELECT count(*) FROM pgjobs_job
        WHERE status = 'running' AND worker_id = worker.id
    ),
    ARRAY(
        SELECT job.id FROM pgjobs_job AS job
        WHERE job.status = 'running' AND job.worker_id = worker.id
        ORDER BY job.last_attempted_at, job.id LIMIT %s
    )
FROM pgjobs_worker AS worker
WHERE ended_at IS NULL OR ended_at > now() - interval '1 day'
ORDER BY ended_at IS NOT NULL, id DESC
"""
SILENT = (
    "SELECT EXTRACT(EPOCH FROM clock_timestamp() - heartbeat_at) FROM pgjobs_worker WHERE id = %s"
)
RAN = (
    "SELECT EXTRACT(EPOCH FROM clock_timestamp() - last_attempted_at) FROM pgjobs_job WHERE id = %s"
)
SCHEDULES = """
SELECT
    schedule.name, count(run.id), count(*) FILTER (WHERE run.outcome IN ('missed', 'failed')),
    max(run.scheduled_for) FILTER (WHERE run.job_id IS NOT NULL),
    (SELECT job.status FROM pgjobs_job AS job WHERE job.id = schedule.last_job_id)
FROM pgjobs_schedule AS schedule
CROSS JOIN LATERAL (
    SELECT * FROM pgjobs_occurrence AS newest WHERE newest.schedule = schedule.name
    ORDER BY newest.scheduled_for DESC LIMIT %s
) AS run
GROUP BY schedule.name ORDER BY schedule.name
"""
WORKFLOWS = """
SELECT
    batch.root_id, count(DISTINCT batch.id), count(job.id),
    count(job.id) FILTER (WHERE job.finished_at IS NOT NULL),
    count(job.id) FILTER (WHERE job.status = 'failed'),
    count(job.id) FILTER (WHERE job.status = 'successful'),
    count(job.id) FILTER (WHERE job.status = 'cancelled')
FROM pgjobs_batch AS batch
LEFT JOIN pgjobs_job AS job ON job.batch_id = batch.id
WHERE batch.root_id IN (
    SELECT top.id FROM pgjobs_batch AS top WHERE top.parent_id IS NULL ORDER BY top.id DESC LIMIT 25
)
GROUP BY batch.root_id ORDER BY batch.root_id DESC
"""
BATCHES = """
SELECT
    count(job.id), count(*) FILTER (WHERE job.status = 'failed'),
    count(*) FILTER (WHERE job.status = 'successful'),
    count(*) FILTER (WHERE job.status = 'cancelled')
FROM pgjobs_batch AS batch
LEFT JOIN pgjobs_job AS job ON job.batch_id = batch.id
WHERE batch.root_id = %s
GROUP BY batch.id ORDER BY batch.id
"""


def check(client: Client) -> None:
    """Check these pages."""
    check_workers(client)
    check_schedules(client)
    check_workflows(client)


def check_workers(client: Client) -> None:
    address = reverse("admin:pgjobs_worker_changelist")
    response = client.get(address)
    text = response.content.decode()
    rows = [each for each in cells(text) if len(each) == 6][1:]
    wanted = query(WORKERS, MAX_JOBS)
    assert len(rows) == len(wanted)
    # Live are those whose lease has not run out: all but the lost one.
    live = sum(1 for _, name, _, is_there, *_ in wanted if is_there and name != "gone:4")
    assert f"{live} live workers" in text
    for (worker_id, name, slots, _, held, ids), row in zip(wanted, rows, strict=True):
        said, running = row[3], row[5]
        assert row[0].startswith(f"{name} ")
        assert said.split(" ")[0].replace(",", "") in (f"{held}/{slots}", f"{slots}")
        assert [int(each) for each in re.findall(r"#(\d+)", running)] == ids
        more = re.findall(r"and ([\d,]+) more", running)
        assert [int(each.replace(",", "")) for each in more] == [held - len(ids)][: held > len(ids)]
        between(
            lambda: float(query(SILENT, worker_id)[0][0]),  # noqa: B023 (called at once)
            lambda: _shown(client, worker_id).row.silent,  # noqa: B023
        )
        check_worker(client, worker_id, slots, held)


def check_worker(client: Client, worker_id: int, slots: int, held: int) -> None:
    """Check the page of one."""
    address = reverse("admin:pgjobs_worker_change", args=[worker_id])
    text = client.get(address).content.decode()
    assert facts(text)["Slots"].split(" ")[0].replace(",", "") in (f"{held}/{slots}", f"{slots}")
    [ids] = [row[5] for row in query(WORKERS, MAX_JOBS_OF_ONE) if row[0] == worker_id]
    assert [int(each) for each in re.findall(r"#(\d+)</a>", text)] == ids
    if not ids:
        return
    between(
        lambda: float(query(RAN, ids[0])[0][0]),
        lambda: _shown(client, worker_id).jobs[0][0].seconds,
    )


def _shown(client: Client, worker_id: int) -> Any:
    response = client.get(reverse("admin:pgjobs_worker_change", args=[worker_id]))
    return response.context["facts"]


def check_schedules(client: Client) -> None:
    text = client.get(reverse("admin:pgjobs_schedule_changelist")).content.decode()
    rows = [each for each in cells(text) if len(each) == 6][1:]
    bars = re.findall(r'<svg class="pgjobs-outcomes".*?</svg>', text, re.DOTALL)
    wanted = query(SCHEDULES, MAX_RUNS)
    for row, bar, (name, runs, missed, last_at, status) in zip(rows, bars, wanted, strict=True):
        assert row[0].startswith(f"{name} ")
        assert bar.count("<rect ") == runs
        assert (f"{missed} missed" in row[5]) and str(status).title() in row[4]
        assert last_at is not None
    for name, runs, *_ in wanted:
        page = client.get(reverse("admin:pgjobs_schedule_page"), {"name": name}).content.decode()
        past = page.partition("Last occurrences")[2].partition("</section>")[0]
        assert past.count("<li>") == runs


def check_workflows(client: Client) -> None:
    wanted, text = steady(
        lambda: query(WORKFLOWS),
        lambda: client.get(reverse("admin:pgjobs_batch_changelist")).content.decode(),
    )
    rows = [each for each in cells(text) if len(each) == 6][1:]
    for row, (root, batches, jobs, ended, failed, *_) in zip(rows, wanted, strict=True):
        assert f"#{root}" in row[0]
        assert row[2].endswith(f"{ended:,} of {jobs:,} job{'s' * (jobs != 1)}")
        assert row[3:5] == [f"{failed:,}", f"{batches:,}"]
    labels = re.findall(r'<svg class="pgjobs-workflow-bar"[^>]*aria-label="([^"]*)"', text)
    for label, (_, _, jobs, ended, failed, successful, cancelled) in zip(
        labels, wanted, strict=True
    ):
        assert plain(label) == (
            f"{jobs:,} jobs: {successful:,} successful, {failed:,} failed, {cancelled:,} cancelled,"
            f" {jobs - ended:,} unfinished"
        )
    [(root, *_)] = [row for row in wanted if row[1] > 1][:1]
    check_workflow(client, root)


def check_workflow(client: Client, root: int) -> None:
    """Check the page of one."""
    address = reverse("admin:pgjobs_batch_change", args=[root])
    wanted, text = steady(
        lambda: query(BATCHES, root), lambda: client.get(address).content.decode()
    )
    rows = [each for each in cells(text) if len(each) == 6][1:]
    for row, (jobs, *ends) in zip(rows, wanted, strict=True):
        said = f"{jobs:,} job{'s' * (jobs != 1)}" if jobs else "no jobs"
        assert [row[2].removeprefix(row[2][: -len(said)]), *row[3:]] == [
            said, *(f"{number:,}" for number in ends)
        ]  # fmt: skip
