"""The ids of jobs, in whatever form a project has them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from django.db.models import Model

from django_pgjobs.values.bounds import MAX_BIGINT
from django_pgjobs.values.payload import quoted, shorten

JOBS, BATCHES = "pgjobs_job", "pgjobs_batch"
JOB_ID = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)


def job_id_of(job: Any) -> int:
    """Return the id of a Job, a TaskResult, or an id itself; raise ValueError for anything else."""
    value = getattr(job, "pk", None) or getattr(job, "id", job)
    job_id = value if isinstance(value, int) else parse_job_id(value)
    is_id = job_id is not None and not isinstance(value, bool) and 0 < job_id <= MAX_BIGINT
    # The id of another row would be that of some job.
    table = job._meta.db_table if isinstance(job, Model) else JOBS
    if job_id is None or not is_id or table != JOBS:
        raise no_job(job, table)
    return job_id


def no_job(given: object, table: str = JOBS) -> ValueError:
    """Return what is raised of something that is no job; *table* is that of a row."""
    said = f"expected a job, its id or its TaskResult, got {shorten(quoted(given))}."
    if table == BATCHES:
        said += " A batch has methods of its own, such as cancel(), retry() and then()."
    elif isinstance(given, Iterable) and not isinstance(given, str | bytes):
        said += " Give one job at a time."
    return ValueError(said)


def job_ids_of(jobs: Any) -> tuple[int, ...]:
    """Return the ids of one or several jobs, each once; raise ValueError for anything else."""
    is_one = isinstance(jobs, str) or not isinstance(jobs, Iterable)
    given = [jobs] if is_one else list(jobs)
    flags = [job for job in given if isinstance(job, bool)]
    if flags:
        raise no_job(flags[0])
    return tuple(dict.fromkeys(map(job_id_of, given)))


def parse_job_id(text: object) -> int | None:
    """Return the id that *text* spells exactly as we do, None for anything else."""
    if not isinstance(text, str) or not JOB_ID.fullmatch(text):
        return None
    job_id = int(text)
    return job_id if job_id <= MAX_BIGINT else None
