"""The buffer of claimed jobs: taken from the left by slots, from the right by the pump."""

from __future__ import annotations

import threading
import time
from collections import Counter

from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.running.buffer import Buffer
from tests.worker.support import make_attempt_of


def attempts(count: int) -> list[Attempt]:
    """Return attempts of jobs 1, 2, 3 ..."""
    return [make_attempt_of(number) for number in range(1, count + 1)]


def test_attempts_are_taken_in_the_order_of_the_claim() -> None:
    buffer = Buffer(attempts(3))
    taken = [buffer.take_first() for _ in range(4)]
    assert [attempt.id if attempt else None for attempt in taken] == [1, 2, 3, None]


def test_taking_back_empties_the_buffer() -> None:
    buffer = Buffer(attempts(3))
    assert [attempt.id for attempt in buffer.take_back()] == [3, 2, 1]
    assert buffer.take_back() == []
    assert not buffer


def test_only_a_buffer_that_has_waited_too_long_is_taken_back() -> None:
    buffer = Buffer(attempts(2))
    assert buffer.take_back(buffer[0].claimed_at) == []
    assert len(buffer) == 2
    assert len(buffer.take_back(time.monotonic() + 1)) == 2


def test_an_empty_buffer_has_nothing_to_take_back() -> None:
    assert Buffer().take_back(time.monotonic()) == []


def test_each_attempt_goes_to_one_taker_only() -> None:
    """S3.5: slots and the pump, which takes back, do not both get it."""
    buffer = Buffer(attempts(20_000))
    taken: list[int] = []
    start = threading.Barrier(4)

    def take_first() -> None:
        start.wait()
        while attempt := buffer.take_first():
            taken.append(attempt.id)

    def take_back() -> None:
        start.wait()
        taken.extend(attempt.id for attempt in buffer.take_back())

    threads = [threading.Thread(target=take_first) for _ in range(3)]
    threads.append(threading.Thread(target=take_back))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(Counter(taken).values()) == {1}
    assert sorted(taken) == list(range(1, 20_001))
