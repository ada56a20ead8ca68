"""The ids of jobs, in whatever form a project has them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

JOB_ID = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)


def job_id_of(job: Any) -> int:
    """Return the id of a Job, a TaskResult, or an id itself; raise ValueError for other text."""
    value = getattr(job, "pk", None) or getattr(job, "id", job)
    job_id = value if isinstance(value, int) else parse_job_id(value)
    if job_id is None or isinstance(value, bool) or not 0 < job_id < 2**63:
        raise ValueError(f"expected a job, its id or its TaskResult, got {job!r}.")
    return job_id


def job_ids_of(jobs: Any) -> tuple[int, ...]:
    """Return the ids of one or several jobs, each once; raise ValueError for anything else."""
    is_one = isinstance(jobs, str) or not isinstance(jobs, Iterable)
    given = [jobs] if is_one else list(jobs)
    flags = [job for job in given if isinstance(job, bool)]
    if flags:
        raise ValueError(f"expected a job, its id or its TaskResult, got {flags[0]!r}.")
    return tuple(dict.fromkeys(map(job_id_of, given)))


def parse_job_id(text: object) -> int | None:
    """Return the id that *text* spells exactly as we do, None for anything else."""
    if not isinstance(text, str) or not JOB_ID.fullmatch(text):
        return None
    job_id = int(text)
    return job_id if job_id < 2**63 else None
