"""Rows as nobody should write them: each column at odd values, one row after the other.

What the database refuses is refused. What it takes must come to an end that can be seen, and
harm nobody else. *may_wait*: it asks for something that never comes, so it may stay ready.
"""

from __future__ import annotations

from typing import NamedTuple


class OddRow(NamedTuple):
    """SQL of the columns that are not as usual."""

    columns: dict[str, str]
    may_wait: bool = False


RUNNING = {"status": "'running'", "claim": "1", "attempts": "1"}
HUGE_BIGINT, HUGE_INTEGER = "9223372036854775807", "2147483647"
JSON_SHAPES = ("5", "null", '"x"', "{}", "[]", "[1,[2,{}],null]", '{"a":{"b":[]}}', "1e400")
TIMES = (
    *("'infinity'", "'-infinity'", "'20000-01-01'", "'4713-01-01 BC'"),
    *("'0001-01-02'", "'9999-12-29'"),
)
TIME_COLUMNS = (
    *("enqueued_at", "started_at", "last_attempted_at"),
    *("finished_at", "cancel_requested_at"),
)


def odd_rows() -> list[OddRow]:
    """Return one row per oddity."""
    return [*_odd_numbers(), *_odd_arrays(), *_odd_texts(), *_odd_json(), *_odd_times(), *_lost()]


def _odd_numbers() -> list[OddRow]:
    integers = ("attempts", "lost_count", "waits_for", "merged_count")
    return [
        OddRow({"claim": HUGE_BIGINT}),
        OddRow({"claim": "-9223372036854775808"}),
        OddRow({"worker_id": HUGE_BIGINT}),
        *(OddRow({name: HUGE_INTEGER}) for name in integers),
        *(OddRow({name: "-2147483648"}) for name in integers),
        OddRow({"max_attempts": HUGE_INTEGER}),
        OddRow({"max_attempts": "1", "attempts": "7"}),
        *(OddRow({"timeout": value}) for value in ("5e-324", "1e308", "'NaN'", "'infinity'")),
        *(OddRow({"priority": value}) for value in ("100", "-100", "101")),
        OddRow({"rate_limit_keys": "'chaos:dirt'", "rate_cost": HUGE_INTEGER}, may_wait=True),
        OddRow({"concurrency_key": "'dirt'", "concurrency_limit": HUGE_INTEGER}),
        OddRow({"concurrency_limit": "5"}),
    ]


def _odd_arrays() -> list[OddRow]:
    arrays = (
        *("'{{a,b},{c,d}}'", "'[2147483646:2147483646]={a}'", "'{NULL}'", "'[-5:-3]={a,b,c}'"),
        "array_fill('x'::text, ARRAY[20000])",
    )
    return [
        OddRow({name: array, **more})
        for name in ("worker_ids", "tags")
        for array in arrays
        for more in ({}, RUNNING)
    ]


def _odd_texts() -> list[OddRow]:
    return [
        *(
            OddRow({"task_path": path}, may_wait=True)
            for path in ("'no.such.task'", "E'a\\nb'", "'os.system'", "'.'", "'täsk.💥'")
        ),
        OddRow({"task_path": "'os.system'", **RUNNING}, may_wait=True),
        OddRow({"backend": "'elsewhere'"}, may_wait=True),
        OddRow({"queue_name": "E'odd\\n\\t \\u2028 queue'"}),
        OddRow({"queue_name": "'*'"}),
        OddRow({"rate_limit_keys": "'no such limit'"}, may_wait=True),
        OddRow({"rate_limit_keys": "E'\\n\\n'"}, may_wait=True),
        OddRow({"concurrency_key": "'%_*'"}),
        OddRow({"unique_key": "repeat('x', 512)"}),
        OddRow({"unique_key": "'twice'", "unique_until_claimed": "true"}),
        OddRow({"note": "repeat('x', 1000000)"}),
        OddRow({"correlation_id": "E'a\\nb\\u2028'"}),
        OddRow({"subject": "'no such row'"}),
        OddRow({"hold": "'dependencies'", "waits_for": "3"}, may_wait=True),
        OddRow({"hold": "'dependencies'", "waits_for": "-3"}, may_wait=True),
        OddRow({"hold": "'predecessor failed'"}, may_wait=True),
        *(OddRow({"status": f"'{status}'"}) for status in ("failed", "successful", "odd")),
    ]


def _odd_json() -> list[OddRow]:
    columns = ("args", "kwargs", "metadata", "errors", "result", "progress")
    return [
        OddRow({name: f"'{shape}'", **more})
        for name in columns
        for shape in JSON_SHAPES
        for more in ({}, RUNNING)
    ]


def _odd_times() -> list[OddRow]:
    return [
        *(OddRow({name: time}) for name in TIME_COLUMNS for time in TIMES),
        *(OddRow({name: time, **RUNNING}) for name in TIME_COLUMNS for time in TIMES[:3]),
        *(OddRow({name: t}, may_wait=True) for name in ("run_after", "due_at") for t in TIMES),
    ]


def _lost() -> list[OddRow]:
    """Return rows that run, with nobody who runs them."""
    return [
        OddRow(RUNNING),
        *(OddRow({**RUNNING, "worker_id": number}) for number in ("-1", "0", HUGE_BIGINT)),
        OddRow({**RUNNING, "claim": HUGE_BIGINT}),
        OddRow({**RUNNING, "lost_count": HUGE_INTEGER}),
        OddRow({**RUNNING, "attempts": HUGE_INTEGER}),
        OddRow({**RUNNING, "hold": "'dependencies'", "waits_for": "1"}, may_wait=True),
        OddRow({**RUNNING, "cancel_requested_at": "now()"}),
    ]
