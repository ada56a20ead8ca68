"""How late a job may begin after the turn that its rate limit gave it: `HOARD_SECONDS`."""

from __future__ import annotations

import queue
import time

import pytest

from django_pgjobs.worker.attempt import HOARD_SECONDS, Attempt
from django_pgjobs.worker.running.async_slots import AsyncSlots
from django_pgjobs.worker.running.capacity import SlotCallbacks
from django_pgjobs.worker.running.outcome import NO_SLOT, Kind, Outcome
from django_pgjobs.worker.running.slots import Slots
from tests.helpers import ROOT, WAIT_SECONDS
from tests.worker.planning import ignore
from tests.worker.support import close_shared_thread, make_attempt_of, make_options

LIMITED = ["\nmail", "shop:1\nmail\npush"]
PATHS = {Slots: "tests.tasks.add", AsyncSlots: "tests.tasks.add_async"}


def run_late(kind: type[Slots] | type[AsyncSlots], lane: str | None, seconds: float) -> Outcome:
    """Let a slot take a job that was claimed so long ago."""
    done: queue.Queue[Outcome] = queue.Queue()

    def put(attempt: Attempt, outcome: Outcome) -> None:
        done.put(outcome)

    attempt = make_attempt_of(1, PATHS[kind], lane=lane)
    attempt.claimed_at = time.monotonic() - seconds
    slots = kind(make_options(), SlotCallbacks(ignore, put, ignore, pytest.fail))
    try:
        slots.submit([attempt])
        return done.get(timeout=WAIT_SECONDS)
    finally:
        slots.stop()
        assert slots.join(WAIT_SECONDS)
        close_shared_thread()


@pytest.mark.parametrize("kind", PATHS)
@pytest.mark.parametrize("lane", LIMITED)
def test_a_job_whose_tokens_are_too_old_goes_back_uncounted(
    kind: type[Slots] | type[AsyncSlots], lane: str
) -> None:
    """Whatever kept it: the pump may stand still, or no slot be free."""
    outcome = run_late(kind, lane, HOARD_SECONDS + 0.001)
    assert (outcome.kind, outcome.note, outcome.interrupted) == (Kind.RELEASE, NO_SLOT, False)


@pytest.mark.parametrize("kind", PATHS)
@pytest.mark.parametrize("lane", [None, "shop:1\n"])
def test_a_job_that_took_none_runs_however_late(
    kind: type[Slots] | type[AsyncSlots], lane: str | None
) -> None:
    assert run_late(kind, lane, 3600).kind is Kind.DONE


def test_the_docs_name_the_bound() -> None:
    text = (ROOT / "docs" / "rate-limits.md").read_text()
    margin = text.split("### Margin\n")[1].split("\n## ")[0]
    assert f"{HOARD_SECONDS:g} s" in margin
