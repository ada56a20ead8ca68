"""The results of whole batches, for the job that gets them as arguments.

Its row refers to the batches, so nothing is copied when they are complete, however many results
there are; they are read where the job runs, and again if it is run again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from django_pgjobs.exceptions import PayloadError
from django_pgjobs.queries import batches
from django_pgjobs.queries.database import job_cursor
from django_pgjobs.values.payload import decode_value

PAGE = 1_000
# The most that one job is given, as JSON: a bound for the memory of a worker.
MAX_BYTES = 64 * 1024 * 1024


def gather_results(batch_ids: Iterable[int]) -> list[list[Any]]:
    """Return the results of each batch in the order of its jobs.

    Raise PayloadError if they are too many for one job, or cannot be decoded.
    """
    size = 0
    gathered = []
    for batch_id in batch_ids:
        results = []
        # Before they are read: a page of large ones takes more by itself.
        with job_cursor() as cursor:
            size += batches.measure_results(cursor, batch_id)
        if size > MAX_BYTES:
            raise PayloadError(
                f"the results of batch {batch_id} take more than {MAX_BYTES} bytes as JSON, too "
                "much for one job. Give it what follows with then(), and read results page by page "
                "there."
            )
        for text in _texts(batch_id):
            try:
                results.append(decode_value(text))
            except ValueError as error:
                raise PayloadError(f"a result of batch {batch_id}: {error}") from error
        gathered.append(results)
    return gathered


def _texts(batch_id: int) -> Iterator[str]:
    behind = 0
    while True:
        with job_cursor() as cursor:
            page = batches.page_of_results(cursor, [batch_id], behind=behind, max_results=PAGE)
        for *_, text in page:
            yield "null" if text is None else text
        if len(page) < PAGE:
            return
        behind = page[-1][1]
