"""Which jobs existed before an enqueue, for callers that see only the ids that it returns.

`enqueue()` returns the job that has the unique key, whoever made it. Its times do not tell: another
transaction may have made it a moment ago.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from django_pgjobs.queries.enqueue import KnownJob


class Met:
    """The jobs with unique keys of some enqueues; called with an id: did that job exist before?"""

    def __init__(self) -> None:
        self._is_met: dict[int, bool] = {}

    def __contains__(self, job_id: object) -> bool:
        return self._is_met.get(job_id, False) if isinstance(job_id, int) else False

    def add(self, known: Sequence[KnownJob]) -> None:
        """Note the result of an enqueue."""
        for job in known:
            # The first word counts: what was made here may be met here again.
            self._is_met.setdefault(job.id, not job.is_new)


_met: ContextVar[Met | None] = ContextVar("django_pgjobs_met", default=None)


@contextmanager
def noting_met() -> Iterator[Met]:
    """Collect which jobs the enqueues in this context met instead of inserting them."""
    met = Met()
    token = _met.set(met)
    try:
        yield met
    finally:
        _met.reset(token)


def note_met(known: Sequence[KnownJob]) -> None:
    """Report the result of an enqueue to the block that collects it, if there is one."""
    met = _met.get()
    if met is not None:
        met.add(known)
