"""How much of each lane a walk is to take.

Where the first jobs of the lanes of one priority fill a batch, nothing needs to be weighed or
shared out, and the claim is cheaper. A batch tells whether the next one will be like it. One that
stays short though lanes may have more is followed by a whole claim, and each scan from the heads,
once a second, is one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from django_pgjobs.queries.claims import ClaimedRow, Depth, Segment, first_jobs


class Spread:
    """What the last walk of one worker tells of the next."""

    def __init__(self) -> None:
        # Did the first jobs of the lanes fill its batch?
        self._fills = False

    def note_walk(self, rows: Collection[ClaimedRow], wanted: int) -> None:
        """Note what came of a walk that *wanted* so many jobs."""
        self._fills = len(rows) >= wanted and _most(rows) <= first_jobs(wanted)

    def depth(self, segments: Sequence[Segment], wanted: int, *, gives_heads: bool) -> Depth:
        """Return how much of each lane a walk of these segments and nothing else is to take.

        Heads only where a lane *gives heads*: one whose first job is passed over, because its
        task is paused, say, would wait as long as others fill the batches.
        """
        if not self._fills or len({segment.group for segment in segments}) != 1:
            return Depth.SHARE
        return Depth.HEAD if gives_heads and first_jobs(wanted) == 1 else Depth.FIRSTS


def may_have_more(rows: Collection[ClaimedRow], wanted: int, depth: Depth) -> bool:
    """May the lanes have more for a batch that they were asked little for and did not fill?

    Not if each gave less than it was asked for.
    """
    if depth is Depth.SHARE or len(rows) >= wanted:
        return False
    return depth is Depth.HEAD or _most(rows) >= first_jobs(wanted)


def _most(rows: Collection[ClaimedRow]) -> int:
    """Return how many jobs a lane gave at most."""
    return max(Counter(row.lane for row in rows).values(), default=0)
