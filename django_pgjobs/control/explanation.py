"""What `explain()` returns."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reason:
    """One reason: a code for programs, a text for people, the ids of the jobs it names."""

    code: str
    text: str
    refs: tuple[int, ...] = ()

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Explanation:
    """Why a job is not running, blocking reasons first.

    *is_ready_to_run*: no row holds it back, so a worker that serves its queue and has a free
    slot will claim it.
    """

    job_id: int
    status: str
    is_ready_to_run: bool
    reasons: tuple[Reason, ...]

    def __str__(self) -> str:
        return "\n".join(reason.text for reason in self.reasons)
