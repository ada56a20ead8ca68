"""What a batch comes to: its numbers, its results, and its end."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NamedTuple

from asgiref.sync import sync_to_async
from django.db import connections

from django_pgjobs.declaring.job_result import FIRST_GAP, LONGEST_GAP
from django_pgjobs.exceptions import JobError, seconds_or_none
from django_pgjobs.queries import batches
from django_pgjobs.queries.database import job_cursor, job_database
from django_pgjobs.values.payload import decode_value
from django_pgjobs.workflows.blocks import AnyBatch, B, id_of, is_of_caller, row_of, rows, unknown

PAGE = 1_000


class Counts(NamedTuple):
    """How many jobs there are, and how many of them have ended in each way."""

    jobs: int
    successful: int
    failed: int
    cancelled: int

    @property
    def unfinished(self) -> int:
        """How many wait or run."""
        return self.jobs - self.successful - self.failed - self.cancelled


def counts(batch: AnyBatch, *, of_tree: bool) -> Counts:
    """Return the numbers of a batch, or of all below it, in one look."""
    with job_cursor() as cursor:
        found = batches.count_jobs(cursor, id_of(batch), of_tree=of_tree)
    if found is None:
        raise unknown(batch.pk)
    return Counts(*found)


def results(batch: AnyBatch) -> Iterator[Any]:
    """Yield the results of the batches below one that nothing follows; see `Batch.results`."""
    with job_cursor() as cursor:
        final = batches.list_final(cursor, id_of(batch))
    if not final:
        raise unknown(batch.pk)
    for first in range(0, len(final), PAGE):
        some, behind = final[first : first + PAGE], 0
        while True:
            with job_cursor() as cursor:
                page = batches.page_of_results(cursor, some, behind=behind, max_results=PAGE)
            for *_, text in page:
                yield None if text is None else decode_value(text)
            if len(page) < PAGE:
                break
            batch_id, behind, _ = page[-1]
            some = some[some.index(batch_id) :]


def wait(batch: B, timeout: float | timedelta | None) -> B:
    """Wait until a tree is complete; see `Batch.wait`."""
    _refuse_own(batch)
    gaps = _gaps(batch, seconds_or_none(timeout, name="timeout"))
    while not _look(batch):
        time.sleep(next(gaps))
    return batch


async def async_wait(batch: B, timeout: float | timedelta | None) -> B:
    """Do as `wait`, in async code."""
    _refuse_own(batch)
    gaps = _gaps(batch, seconds_or_none(timeout, name="timeout"))
    look = sync_to_async(_look, thread_sensitive=True)
    while not await look(batch):
        await asyncio.sleep(next(gaps))
    return batch


def _refuse_own(batch: AnyBatch) -> None:
    if batch.asking is not None:
        raise RuntimeError(
            f"job {batch.asking.job_id} waits for batch {batch.pk}, which waits for that job."
        )


def _gaps(batch: AnyBatch, seconds: float | None) -> Iterator[float]:
    """Yield the seconds until each look; raise TimeoutError when the time is over."""
    began, gap = time.monotonic(), FIRST_GAP
    while True:
        left = math.inf if seconds is None else began + seconds - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"batch {batch.pk} is not complete after {seconds:g} s.")
        yield min(gap, left)
        gap = min(2 * gap, LONGEST_GAP)


def _is_below(row: Any, batch_id: int) -> bool:
    """Is a batch the one with that id, or somewhere below it?"""
    # A batch has a higher id than the one above it.
    while row is not None and row.pk > batch_id:
        row = rows().filter(pk=row.parent_id).first()
    return row is not None and row.pk == batch_id


def _look(batch: AnyBatch) -> bool:
    """Return whether a tree is complete, and read its row again then."""
    connection = connections[job_database()]
    if is_of_caller(connection):
        raise RuntimeError(
            f"expected no open transaction while waiting for batch {batch.pk}, got one. "
            "Workers do not see what is added in it before it commits. Wait after the "
            "atomic() block."
        )
    found = row_of(batch)
    if found.tree_completed_at is not None:
        batch.refresh_from_db(using=job_database())
        return True
    for broken in rows().filter(root_id=found.root_id).exclude(broken="").order_by("pk"):
        if _is_below(broken, batch.pk):
            raise JobError(f"batch {broken.pk} cannot be counted: {broken.broken}")
    if connection.in_atomic_block:
        raise RuntimeError(
            f"batch {batch.pk} is not complete, and no worker sees the transaction of a "
            "TestCase. Call run_jobs() of django_pgjobs.testing (in async code arun_jobs()) before."
        )
    return False
