"""What a raw INSERT can put into a column of a job, and rows with one of these values.

A column that has none here fails a test, so that whoever adds one thinks of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from psycopg import sql

from tests.factories import make_job
from tests.helpers import execute

CLAIM = "pgjobs_claim_is_from_0_to_9e18"
COUNT = "pgjobs_counts_are_not_negative"
TIMES = "pgjobs_times_are_in_the_years_1_to_9999"
TEXTS = "pgjobs_texts_are_a_plain_list_without_null"
TAGS = "pgjobs_tags_are_at_most_64_of_16_kib"
ERRORS = "pgjobs_errors_are_a_list"
NO_BATCH = "is sealed, or does not exist"
ON_FAILURE = "pgjobs_on_failure_names_a_task"


class Odd(NamedTuple):
    """A value as SQL; *refused_by* names what keeps it out today, None if nothing does."""

    column: str
    value: str
    refused_by: str | None

    def __str__(self) -> str:
        return f"{self.column}={self.value[:40]}"


TIME_VALUES: dict[str, str | None] = {
    "'infinity'": TIMES,
    "'-infinity'": TIMES,
    "'20000-01-01'": TIMES,
    "'294276-12-31 23:59:59+00'": TIMES,
    "'4713-01-01 BC'": TIMES,
    "'0001-01-02 00:00:00+00'": None,
    "'9999-12-30 00:00:00+00'": None,
}
COUNTS: dict[str, str | None] = {
    "-2147483648": COUNT,
    "-1": COUNT,
    "2147483646": None,
    "2147483647": None,
}
TEXT_LISTS: dict[str, str | None] = {
    "'{{a,b},{c,d}}'": TEXTS,
    "'{{a},{b}}'": TEXTS,
    "'[2147483646:2147483646]={a}'": TEXTS,
    "'[0:1]={a,b}'": TEXTS,
    "'{NULL}'": TEXTS,
    "array_fill('a'::text, ARRAY[100000])": None,
    "'{\"\"}'": None,
}
PAYLOADS: dict[str, str | None] = {
    "'null'": None,
    "'5'": None,
    "'[[[]]]'": None,
    "'{\"a\": {}}'": None,
    "(repeat('[', 2000) || repeat(']', 2000))::json": None,
    "('[' || repeat('9', 5000) || ']')::json": None,
    "'[\"\\u0000\"]'": "unsupported Unicode escape",
}
# `json` without a domain: nobody casts it.
OUTCOMES: dict[str, str | None] = PAYLOADS | {"'[\"\\u0000\"]'": None}
LONG_TEXT = {"repeat('x', 1000000)": None, "E'a\\nb'": None, "''": None}

ODD: dict[str, dict[str, str | None]] = {
    # Not 9223372036854775807: that there is nothing behind it is for pages to know.
    "id": {"-9223372036854775807": None, "-1": None, "0": None, "9223372036854775806": None},
    "claim": {
        "-9223372036854775808": CLAIM,
        "-1": CLAIM,
        "8999999999999999999": None,
        "9000000000000000000": None,
        "9000000000000000001": CLAIM,
        "9223372036854775807": CLAIM,
    },
    "worker_id": {
        "NULL": None,
        "-9223372036854775807": None,
        "0": None,
        "9223372036854775807": None,
    },
    "enqueued_at": TIME_VALUES,
    "run_after": TIME_VALUES,
    "due_at": TIME_VALUES,
    "ready_at": TIME_VALUES,
    "expires_at": TIME_VALUES,
    "started_at": TIME_VALUES,
    "last_attempted_at": TIME_VALUES,
    "finished_at": TIME_VALUES,
    "cancel_requested_at": TIME_VALUES,
    "timeout": {
        "'NaN'": "pgjobs_timeout_is_positive_and_finite",
        "'Infinity'": "pgjobs_timeout_is_positive_and_finite",
        "-1": "pgjobs_timeout_is_positive_and_finite",
        "5e-324": None,
        "1.7e308": None,
    },
    "attempts": COUNTS,
    "max_attempts": {
        "-2147483648": "pgjobs_max_attempts_is_positive",
        "0": "pgjobs_max_attempts_is_positive",
        "2147483647": None,
    },
    "lost_count": COUNTS,
    "max_losses": {
        "-2147483648": "pgjobs_max_losses_is_positive",
        "0": "pgjobs_max_losses_is_positive",
        "2147483647": None,
    },
    "interruptions": COUNTS,
    # Not -32768: no index could hold minus that.
    "priority": {
        "-32767": "pgjobs_priority_is_from_minus_100_to_100",
        "32767": "pgjobs_priority_is_from_minus_100_to_100",
        "-100": None,
    },
    "status": {"'bogus'": "no partition of relation", "NULL": "no partition of relation"},
    "queue_name": {
        "''": "pgjobs_queue_name_has_1_to_128_bytes",
        "repeat('q', 129)": "pgjobs_queue_name_has_1_to_128_bytes",
        "E'a\\nb'": None,
        "'%'": None,
    },
    "task_path": {
        "''": "pgjobs_task_path_has_1_to_512_bytes",
        "repeat('t', 513)": "pgjobs_task_path_has_1_to_512_bytes",
        "'.'": None,
        "E'a\\n.b'": None,
    },
    "backend": {"''": "pgjobs_backend_has_1_to_128_bytes", "'%'": None},
    "args": PAYLOADS,
    "kwargs": PAYLOADS,
    "metadata": PAYLOADS,
    "correlation_id": {
        "repeat('x', 257)": "pgjobs_correlation_id_has_at_most_256_bytes",
        "repeat('x', 256)": None,
        "E'a\\nb'": None,
    },
    "tags": TEXT_LISTS
    | {
        "array_fill('a'::text, ARRAY[100000])": TAGS,
        "array_fill('a'::text, ARRAY[65])": TAGS,
        "ARRAY[repeat('x', 16385)]": TAGS,
        "array_fill(repeat('x', 256), ARRAY[64])": None,
    },
    "errors": {
        "'{}'": ERRORS,
        "'5'": ERRORS,
        "'\"text\"'": ERRORS,
        "'null'": ERRORS,
        '\'[null, 5, "x", [], {"exception_class": 5, "traceback": []}]\'': None,
        "to_jsonb(array_fill(1, ARRAY[1000]))": None,
    },
    "result": OUTCOMES,
    "progress": OUTCOMES,
    "worker_ids": TEXT_LISTS,
    "note": LONG_TEXT,
    "hold": {"'dependencies'": None, "'predecessor failed'": None, "'?'": "pgjobs_hold_is_known"},
    "waits_for": COUNTS,
    "concurrency_key": {
        "''": "pgjobs_concurrency_key_has_1_to_512_bytes",
        "E'a\\nb'": "pgjobs_concurrency_key_has_1_to_512_bytes",
        "'%'": None,
    },
    "concurrency_limit": {
        "0": "pgjobs_concurrency_limit_is_positive",
        "-2147483648": "pgjobs_concurrency_limit_is_positive",
        "2147483647": None,
    },
    "skips_waiting": {"TRUE": None},
    "rate_limit_keys": {
        "''": "pgjobs_rate_limit_keys_have_1_to_1024_bytes",
        "E'\\n\\n'": None,
        "E'limit\\nlimit'": None,
        "'limit:'": None,
        "'no limit'": None,
    },
    "rate_cost": {
        "0": "pgjobs_rate_cost_is_positive",
        "-2147483648": "pgjobs_rate_cost_is_positive",
        "2147483647": None,
    },
    "unique_key": {"''": "pgjobs_unique_key_has_1_to_512_bytes", "E'\\n'": None},
    "unique_until_claimed": {"TRUE": None},
    "is_declared": {"TRUE": None},
    "is_async": {"TRUE": None},
    "merged_count": COUNTS,
    "on_failure": {
        "'null'": ON_FAILURE,
        "'5'": ON_FAILURE,
        "'[]'": ON_FAILURE,
        "'{}'": ON_FAILURE,
        '\'{"task_path": ""}\'': ON_FAILURE,
        '\'{"task_path": "a.b", "priority": "1e9"}\'': ON_FAILURE,
        '\'{"task_path": "a.b", "queue_name": ""}\'': ON_FAILURE,
        '\'{"task_path": "a.b", "kwargs": [1]}\'': ON_FAILURE,
        '\'{"task_path": "a.b", "kwargs": null}\'': ON_FAILURE,
        '\'{"task_path": "a.b", "kwargs": {"n": 1}}\'': None,
        '\'{"task_path": [1], "priority": -100, "queue_name": {}, "backend": 5,'
        ' "is_async": [1]}\'': None,
    },
    # Whatever is written there, the server computes it anew.
    "lane": {"''": None, "'x'": None, "E'key\\nlimit'": None, "repeat('x', 9000)": None},
    "schedule": {"''": "pgjobs_schedule_name_has_1_to_200_bytes", "E'\\n'": None},
    "scheduled_for": TIME_VALUES,
    "subject": {"''": "pgjobs_subject_has_1_to_512_bytes", "':'": None},
    "batch_id": {"17": NO_BATCH},
    "source_id": {"-1": None, "9223372036854775807": None},
}
ODD_VALUES = [
    Odd(column, value, refused_by)
    for column, values in ODD.items()
    for value, refused_by in values.items()
]
# No partition takes a row of another status, whatever the bounds are; no batch is there. The bound
# of on_failure is as old as its column, and a failure copies the value to other columns.
STORABLE = [
    odd
    for odd in ODD_VALUES
    if odd.column not in ("status", "batch_id") and odd.refused_by != ON_FAILURE
]

CONSTRAINT = """
SELECT domain.typname, pg_get_constraintdef(bound.oid)
FROM pg_constraint AS bound
JOIN pg_type AS domain ON domain.oid = bound.contypid
WHERE bound.conname = %s
"""
# What a constraint that raises is called.
CAST = "pgjobs_payload_casts_to_jsonb"
# Those that are younger than the table. The others could never be passed.
YOUNG = (CLAIM, COUNT, TIMES, TEXTS, ERRORS)


class Rows:
    """Makes the odd row and the healthy one, and tells what became of them."""

    def __init__(self, odd: Odd) -> None:
        self._odd = odd
        self.odd = self.healthy = 0

    def make(self, **columns: Any) -> list[int]:
        """Insert both, the odd one before its bound."""
        bound = self._odd.refused_by
        name = bound if bound is None or bound.startswith("pgjobs_") else CAST
        found = execute(CONSTRAINT, name)
        for domain, _ in found:
            execute(f"ALTER DOMAIN {domain} DROP CONSTRAINT {name}")
        given = columns | {self._odd.column: sql.SQL(self._odd.value)}
        self.odd = make_job(**given)
        for domain, definition in found:
            if name in YOUNG:
                text = definition.removesuffix(" NOT VALID")
                execute(f"ALTER DOMAIN {domain} ADD CONSTRAINT {name} {text} NOT VALID")
        self.healthy = make_job(**columns)
        return [self.odd, self.healthy]

    def status(self, job_id: int) -> str:
        """Return where a row is now."""
        [(status,)] = execute("SELECT status FROM pgjobs_job WHERE id = %s", job_id)
        return str(status)

    def expect(self, *statuses: str) -> None:
        """Fail unless the healthy row has the first status, and the odd one any of them."""
        assert self.status(self.healthy) == statuses[0]
        assert self.status(self.odd) in statuses


def admit_odd_values() -> None:
    """Let them into the table, as before the younger bounds, until the test's rollback."""
    for name in YOUNG:
        [(domain, _)] = execute(CONSTRAINT, name)
        execute(f"ALTER DOMAIN {domain} DROP CONSTRAINT {name}")
