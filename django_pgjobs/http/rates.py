"""How many requests a second a token may send, counted in this process alone.

Nothing is written for it: a limit that a table holds would cost a commit a request.
"""

from __future__ import annotations

import math
import threading
import time

from django_pgjobs.http.access import Access
from django_pgjobs.http.problems import Problem


class Rates:
    """What is left of each token's requests; a second's worth, at least one, may come at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Token id -> requests that are left, and when that was so.
        self._left: dict[int, tuple[float, float]] = {}

    def spend(self, access: Access) -> None:
        """Count a request; raise Problem (429) if it is one too many."""
        if access.per_second is None:
            return
        burst = max(1.0, access.per_second)
        now = time.monotonic()
        with self._lock:
            left, since = self._left.get(access.token_id, (burst, now))
            left = min(burst, left + (now - since) * access.per_second)
            if left >= 1.0:
                self._left[access.token_id] = left - 1.0, now
                return
            self._left[access.token_id] = left, now
        wait = math.ceil((1.0 - left) / access.per_second)
        raise Problem(
            "too-many-requests",
            detail=f"This token may send {access.per_second:g} requests per second.",
            headers={"Retry-After": str(max(1, wait))},
        )


rates = Rates()
