"""What a tracer is: it begins spans, of enqueues and of attempts, and is told how they ended."""

from __future__ import annotations

from typing import NamedTuple, Protocol

# Queue and task, how attempts ended, and how many did.
Counted = tuple[tuple[str, str], str, int]


class Sent(NamedTuple):
    """What is enqueued."""

    task_path: str
    queue_name: str


class TracedAttempt(NamedTuple):
    """An attempt that begins; *headers* are those of the trace in which its job was enqueued."""

    id: int
    task_path: str
    queue_name: str
    attempt: int
    max_attempts: int
    waited: float
    correlation_id: str
    headers: dict[str, str]


class TracedEnd(NamedTuple):
    """How an attempt ended; *outcome* is a word, *duration* in seconds."""

    outcome: str
    duration: float
    is_failure: bool
    error: BaseException | None


class Sending(Protocol):
    """A span around an enqueue."""

    def headers(self) -> dict[str, str]:
        """Return what leads from the job back to this."""

    def end(self, ids: list[int] | int | None, error: BaseException | None) -> None:
        """End it: *ids* are the jobs, or how many, None if it raised."""


class Processing(Protocol):
    """A span around an attempt."""

    def end(self, end: TracedEnd) -> None:
        """End it."""


class Tracer(Protocol):
    """OpenTelemetry or Sentry."""

    def send(self, sent: Sent) -> Sending:
        """Begin to enqueue."""

    def process(self, run: TracedAttempt) -> Processing:
        """Begin an attempt, in a context of its own."""
