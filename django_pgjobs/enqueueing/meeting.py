"""Which jobs were there already, for those who see only the ids that an enqueue returns.

`enqueue()` returns the job that has the unique key, whoever made it. Its times do not tell: another
transaction may have made it a moment ago.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from django_pgjobs.queries.enqueue import Known


class Met:
    """The jobs with unique keys of some enqueues; asked for an id: was that job met?"""

    def __init__(self) -> None:
        self._is_met: dict[int, bool] = {}

    def __contains__(self, job_id: object) -> bool:
        return self._is_met.get(job_id, False) if isinstance(job_id, int) else False

    def add(self, known: Sequence[Known]) -> None:
        """Note what came of the lines of an enqueue."""
        for job in known:
            # The first word counts: what was made here may be met here again.
            self._is_met.setdefault(job.id, not job.is_new)


_met: ContextVar[Met | None] = ContextVar("django_pgjobs_met", default=None)


@contextmanager
def noting_met() -> Iterator[Met]:
    """Tell which jobs the enqueues in this context have met instead of making them."""
    met = Met()
    token = _met.set(met)
    try:
        yield met
    finally:
        _met.reset(token)


def note_met(known: Sequence[Known]) -> None:
    """Tell whoever asks what came of the lines of an enqueue."""
    met = _met.get()
    if met is not None:
        met.add(known)
