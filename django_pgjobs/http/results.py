"""The results of a tree, in pages, as far as a token is for its jobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django_pgjobs.http.access import Access
from django_pgjobs.http.owning import jobs_of
from django_pgjobs.http.pages import limit_of
from django_pgjobs.http.requests import ApiRequest, wrong_parameter
from django_pgjobs.models import Batch, Job
from django_pgjobs.queries.batches import list_final
from django_pgjobs.queries.database import job_cursor
from django_pgjobs.status import JobStatus
from django_pgjobs.values.job_ids import parse_job_id

# Results are small, as a rule: more of them than of jobs with all that is told of these.
MAX_RESULTS = 1_000
# How many are read at a time, and how many characters of results end the page.
CHUNK = 100
MAX_CHARACTERS = 8_000_000


def page_of_results(request: ApiRequest, batch: Batch) -> dict[str, Any]:
    """Return a page of the results of what nothing follows below a batch, in order."""
    limit = limit_of(request, most=MAX_RESULTS)
    place = _place_of(request)
    found: list[dict[str, Any]] = []
    cursor, ended_at, size = None, "", 0
    for batch_id, job in _jobs_behind(request.access, batch, place, limit + 1):
        if len(found) == limit or size > MAX_CHARACTERS:
            cursor = ended_at
            break
        found.append({"job": str(job.pk), "batch": str(batch_id), "result": job.result})
        size += len(str(job.result))
        ended_at = f"{batch_id}.{job.pk}"
    return {"results": found, "cursor": cursor}


def _place_of(request: ApiRequest) -> tuple[int, int]:
    """Return the batch and the job at which the page before ended."""
    text = request.query("cursor", max_length=39)
    if text is None:
        return 0, 0
    batch_id, job_id = map(parse_job_id, text.partition(".")[::2])
    if batch_id is None or job_id is None:
        raise wrong_parameter("cursor", "expected the cursor of an answer")
    return batch_id, job_id


def _jobs_behind(
    access: Access, batch: Batch, place: tuple[int, int], most: int
) -> Iterator[tuple[int, Job]]:
    with job_cursor() as cursor:
        final = list_final(cursor, batch.pk)
    for batch_id in final:
        if batch_id < place[0]:
            continue
        behind = place[1] if batch_id == place[0] else 0
        jobs = jobs_of(access).filter(batch_id=batch_id, status=JobStatus.SUCCESSFUL)
        jobs = jobs.only("id", "result")
        while page := list(jobs.filter(pk__gt=behind).order_by("pk")[: min(CHUNK, most)]):
            yield from ((batch_id, job) for job in page)
            behind = page[-1].pk
