"""How much of each lane a walk is to take.

Where many lanes of equal priority wait, the first jobs of each fill the batch, and nothing needs
to be weighed or shared out: that claim costs two thirds of the whole one. A batch tells whether
the next one will be like it. One that stays short is followed by a whole claim, and so is each
scan from the heads, once a second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from django_pgjobs.queries.claims import ClaimedRow, Depth, Segment


class Spread:
    """What the last walk of one worker tells of the next."""

    def __init__(self) -> None:
        # Did the first jobs of the lanes fill its batch?
        self._fills = False
        # May a lane be worth more than another?
        self._has_weights = True

    def note_weights(self, exist: bool) -> None:
        """Note whether a lane may have a larger share than others."""
        self._has_weights = exist

    def note_walk(self, rows: Collection[ClaimedRow], wanted: int) -> None:
        """Note what came of a walk that *wanted* so many jobs."""
        of_lanes = Counter(row.lane for row in rows)
        self._fills = len(rows) >= wanted and max(of_lanes.values(), default=0) <= _first(wanted)

    def depth(self, segments: Sequence[Segment], wanted: int) -> Depth:
        """Return how much of each lane a walk of these segments and nothing else is to take."""
        if not self._fills or len({segment.group for segment in segments}) != 1:
            return Depth.SHARE
        return Depth.FIRSTS if self._has_weights or _first(wanted) > 1 else Depth.HEAD


def _first(wanted: int) -> int:
    """Return how many jobs of a lane claim_keyed_jobs.sql locks at first."""
    return max(1, wanted // 50)
