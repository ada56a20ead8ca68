"""What `tests.mutations` takes out of the guards against odd rows: name, file, old, new."""

from __future__ import annotations

from tests.mutated_claims import SQL

ODD_ROWS = (
    (
        "claim that cannot overflow",
        f"{SQL}claim_jobs.sql",
        "claim = mod(GREATEST(job.claim, 0), 9000000000000000000) + 1",
        "claim = job.claim + 1",
    ),
    (
        "claim that begins again",
        f"{SQL}claim_jobs.sql",
        "mod(GREATEST(job.claim, 0), 9000000000000000000)",
        "LEAST(job.claim, 8999999999999999999)",
    ),
    (
        "names of workers in a plain list",
        f"{SQL}claim_jobs.sql",
        "array_ndims(job.worker_ids) = 1 AND array_lower(job.worker_ids, 1) = 1",
        "TRUE",
    ),
    (
        "first start that is an instant",
        f"{SQL}claim_jobs.sql",
        "GREATEST(LEAST(job.started_at, statement_timestamp()), 'epoch')",
        "COALESCE(job.started_at, statement_timestamp())",
    ),
    (
        "errors of a failure in a list",
        f"{SQL}finish_unsuccessful.sql",
        "WHEN jsonb_typeof(job.errors) <> 'array' THEN '[]'\n",
        "",
    ),
    (
        "errors of a rescue in a list",
        f"{SQL}rescue_jobs.sql",
        "WHEN jsonb_typeof(job.errors) <> 'array' THEN '[]'\n",
        "",
    ),
    (
        "what runs without a worker",
        f"{SQL}rescue_jobs.sql",
        "job.status = 'running' AND job.worker_id IS NULL",
        "FALSE",
    ),
    (
        "row that cannot be read",
        "django_pgjobs/worker/running/calling.py",
        "(ValueError, OverflowError, RecursionError, DataError)",
        "ZeroDivisionError",
    ),
)
