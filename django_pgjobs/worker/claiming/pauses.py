"""How long a worker leaves a costly read alone, so that it takes a share of the time only."""

from __future__ import annotations

# A process that was stopped during the read (SIGSTOP, a machine that slept) has measured its stop,
# which may be hours: jobs do not wait for more than this.
MOST_SECONDS = 5.0


def pause_after(seconds: float, factor: int) -> float:
    """Return for how many seconds not to repeat what took so long: *factor* times that."""
    return min(factor * seconds, MOST_SECONDS)
