"""What decides in a row when its job starts, and filling in what its task declares."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from django_pgjobs.queries.arrays import array_text, text_array_text
from django_pgjobs.queries.cursor import Cursor, execute
from django_pgjobs.queries.notifications import JOBS_CHANNEL
from django_pgjobs.values import notes


class Control(NamedTuple):
    """What decides when a job starts.

    Where another live job has its unique key, a job that *yields* ends; else it does without.
    """

    queue_name: str
    priority: int
    concurrency_key: str | None
    concurrency_limit: int | None
    skips_waiting: bool
    rate_limit_keys: str | None
    rate_cost: int
    unique_key: str | None
    unique_until_claimed: bool
    yields: bool = False


class ReturnedRow(Protocol):
    """A row as statements return it; *undeclared* is None unless it may lack something."""

    @property
    def queue_name(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def undeclared(self) -> str | None: ...


class Filling(NamedTuple):
    """A claimed job and what its row gets."""

    id: int
    claim: int
    control: Control
    is_async: bool


def control_of(row: ReturnedRow) -> Control:
    """Return what the row of a job says that may lack something."""
    return Control(row.queue_name, row.priority, *json.loads(row.undeclared or "[]"))


def send_fillings(
    cursor: Cursor, outcomes: Sequence[Filling], *, skips_locked: bool = False
) -> None:
    """Send what jobs are to have; they go back to wait, their attempts do not count.

    The rows are the ids of those that did, and of those that ended for a unique key.
    """
    controls = [outcome.control for outcome in outcomes]
    params = {
        "ids": array_text(outcome.id for outcome in outcomes),
        "claims": array_text(outcome.claim for outcome in outcomes),
        "queue_names": text_array_text(control.queue_name for control in controls),
        "priorities": array_text(control.priority for control in controls),
        "concurrency_keys": text_array_text(control.concurrency_key for control in controls),
        "concurrency_limits": [control.concurrency_limit for control in controls],
        "skips_waiting": [control.skips_waiting for control in controls],
        "rate_limit_keys": text_array_text(control.rate_limit_keys for control in controls),
        "rate_costs": array_text(control.rate_cost for control in controls),
        "unique_keys": text_array_text(control.unique_key for control in controls),
        "until_claimed": [control.unique_until_claimed for control in controls],
        "yields": [control.yields for control in controls],
        "asyncs": [outcome.is_async for outcome in outcomes],
        "note": notes.YIELDED,
        "channel": JOBS_CHANNEL,
    }
    execute(cursor, "fill_in_jobs", params | {"waits": not skips_locked})
