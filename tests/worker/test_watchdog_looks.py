"""How often the watchdog looks at what runs, by a clock of the test's own."""

from __future__ import annotations

import math
from typing import Any

import pytest

from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.running import watchdog
from tests.worker.support import make_attempt_of

GRACE = 1e6
STEP_SECONDS = 1e-5


class Simulated(watchdog.Watchdog):
    """A watchdog whose sleep passes the time, and which ends when that is over."""

    def __init__(self, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.seconds = seconds
        self.until = self.now + seconds
        self.looking = 0.0
        self.interrupted: dict[int, float] = {}
        monkeypatch.setattr(watchdog.time, "monotonic", lambda: self.now)
        nothing: Any = lambda *_: None  # noqa: E731
        super().__init__(
            [],
            grace=GRACE,
            is_running=self.ask,
            on_stuck=nothing,
            on_look=nothing,
            on_crash=nothing,
        )

    def ask(self, attempt: Attempt) -> bool:
        """Say that it runs, which takes so long."""
        self.now += STEP_SECONDS
        self.looking += STEP_SECONDS
        return True

    def _end(self, attempt: Attempt, step: watchdog.AtDeadline) -> None:
        self.interrupted[attempt.id] = self.now

    def wait(self, timeout: float | None) -> None:
        assert timeout is not None
        self.now += max(timeout, 1e-6)
        self.stop_requested = self.now > self.until


@pytest.mark.parametrize("attempts", [10, 1_000, 5_000])
def test_however_many_run_and_end_a_look_takes_a_tenth_of_the_time(
    attempts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deadline comes each 10 ms, and each look goes through all that run."""
    dog = Simulated(20.0, monkeypatch)
    for number in range(attempts):
        timeout = 0.01 * number if number < 1_000 else math.inf
        dog.watch(make_attempt_of(number + 1), timeout)
    dog.run()
    assert dog.looking <= 0.11 * dog.seconds
    late = [at - (1000.0 + 0.01 * (job_id - 1)) for job_id, at in dog.interrupted.items()]
    assert len(late) == min(attempts, 1_000)
    assert max(late) <= 0.02 + 11 * attempts * STEP_SECONDS


class Fed(Simulated):
    """One to which another thread gives an attempt with a short timeout each 10 ms."""

    fed_at = 1000.0
    fed = 10_000

    def overdue(self) -> list[tuple[float, float]]:
        """Return when each timeout was over, and when its attempt was interrupted."""
        return [
            (1000.0 + 0.01 * (job_id - 10_001) + 0.2, at) for job_id, at in self.interrupted.items()
        ]

    def wait(self, timeout: float | None) -> None:
        assert timeout is not None
        ends_at = self.now + timeout
        while self.fed_at < ends_at and not self._wake.is_set():
            self.now = max(self.now, self.fed_at)
            self.fed_at += 0.01
            self.fed += 1
            self.watch(make_attempt_of(self.fed), 0.2)
        self.now = max(self.now, self.now if self._wake.is_set() else ends_at)
        self._wake.clear()
        self.stop_requested = self.now > self.until


@pytest.mark.slow
def test_a_timeout_that_is_shorter_than_the_rest_does_not_end_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dog = Fed(20.0, monkeypatch)
    for number in range(5_000):
        dog.watch(make_attempt_of(number + 1), math.inf)
    dog.run()
    assert dog.looking <= 0.12 * dog.seconds
    late = [at - attempt_at for attempt_at, at in dog.overdue()]
    assert max(late) <= 0.6


def test_a_timeout_that_is_shorter_than_the_next_look_is_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dog = Fed(5.0, monkeypatch)
    dog.run()
    assert max(at - attempt_at for attempt_at, at in dog.overdue()) <= 0.03
