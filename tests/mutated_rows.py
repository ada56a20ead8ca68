"""What `tests.mutations` takes out of the guards against odd rows: name, file, old, new, tests.

Of hundreds of odd values the one that notices is named.
"""

from __future__ import annotations

from tests.mutated_claims import SQL

TESTS = "tests/worker/test_odd_rows.py::"


def beside(value: str) -> tuple[str]:
    """Return the test with this value of a column."""
    return (f"{TESTS}test_an_odd_row_harms_only_itself[{value}]",)


ODD_ROWS = (
    (
        "claim that cannot overflow",
        f"{SQL}claim_terms.py",
        "claim = mod(GREATEST(job.claim, 0), 8999999990000000000) + 1",
        "claim = job.claim + 1",
        beside("claim=-9223372036854775808"),
    ),
    (
        "claim that begins again",
        f"{SQL}claim_terms.py",
        "mod(GREATEST(job.claim, 0), 8999999990000000000)",
        "LEAST(job.claim, 8999999989999999999)",
        beside("claim=-9223372036854775808"),
    ),
    (
        "claim that nobody can guess",
        f"{SQL}claim_terms.py",
        "floor(random() * 2147483648::double precision)::bigint",
        "0",
        ("tests/worker/test_same_ids.py",),
    ),
    (
        "names of workers in a plain list",
        f"{SQL}claim_terms.py",
        "array_ndims(job.worker_ids) = 1 AND array_lower(job.worker_ids, 1) = 1",
        "TRUE",
        beside("worker_ids='{{a,b},{c,d}}'"),
    ),
    (
        "first start that is an instant",
        f"{SQL}claim_terms.py",
        "GREATEST(LEAST(job.started_at, statement_timestamp()), 'epoch')",
        "COALESCE(job.started_at, statement_timestamp())",
        beside("started_at='infinity'"),
    ),
    (
        "errors of a failure in a list",
        f"{SQL}write_terms.py",
        "WHEN jsonb_typeof({it}.errors) <> 'array' THEN '[]'\n",
        "",
        beside("errors='{}'"),
    ),
    (
        "errors of a rescue in a list",
        f"{SQL}rescue_jobs.sql",
        "WHEN jsonb_typeof(job.errors) <> 'array' THEN '[]'\n",
        "",
        beside("errors='{}'"),
    ),
    (
        "what runs without a worker",
        f"{SQL}rescue_jobs.sql",
        "job.status = 'running' AND job.worker_id IS NULL",
        "FALSE",
        (f"{TESTS}test_what_runs_without_a_worker_is_rescued",),
    ),
    (
        "row that cannot be read",
        "django_pgjobs/worker/running/calling.py",
        "(ValueError, OverflowError, RecursionError, DataError)",
        "ZeroDivisionError",
        (f"{TESTS}test_a_row_that_cannot_be_read_is_not_tried_again",),
    ),
)
