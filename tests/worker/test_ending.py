"""Why a worker's process ends: who decides about its status, and how long its jobs may go on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from django_pgjobs.worker.process.ending import RELOAD_SECONDS, Ending

Ask = Callable[[Ending], None]


def stop(ending: Ending) -> None:
    """TERM."""
    ending.ask("SIGTERM")


def crash(ending: Ending) -> None:
    """A part of the worker raises."""
    ending.crash("pump")


def give_up(ending: Ending) -> None:
    """A job cannot be ended."""
    ending.give_up("job 1 is stuck")


def reach_limit(ending: Ending) -> None:
    """--max-jobs, say."""
    ending.reach_limit("10 jobs done")


def reload(ending: Ending) -> None:
    """The code changed."""
    ending.reload("tasks.py changed")


def make_ending(*asked: Ask, is_child: bool = True) -> Ending:
    """Return the end of a process for which this was asked, in that order."""
    ending = Ending(shutdown_timeout=30.0, is_child=is_child, on_asked=lambda: None)
    for ask in asked:
        ask(ending)
    return ending


@pytest.mark.parametrize(
    ("asked", "code", "alone"),
    [
        ((stop,), 0, 0),
        ((Ending.hang_up,), 76, 76),
        ((stop, Ending.hang_up), 0, 0),
        ((Ending.hang_up, stop), 76, 76),
        ((reach_limit,), 78, 0),
        ((reach_limit, Ending.hang_up), 78, 0),
        ((Ending.dismiss,), 77, 0),
        ((reach_limit, Ending.dismiss), 77, 0),
        ((Ending.hang_up, Ending.dismiss), 77, 0),
        ((Ending.dismiss, Ending.hang_up), 77, 0),
        ((stop, crash), 1, 1),
        ((crash, Ending.hang_up, Ending.dismiss), 1, 1),
        ((Ending.dismiss, give_up), 75, 75),
        ((give_up, reload), 75, 75),
    ],
)
def test_what_cannot_go_on_decides_then_an_order_then_who_came_first(
    asked: tuple[Ask, ...], code: int, alone: int
) -> None:
    """A child that has reached its limit and is asked to stop is not to be replaced."""
    assert make_ending(*asked).code == code
    assert make_ending(*asked, is_child=False).code == alone


def test_the_first_reason_is_the_one_that_is_told() -> None:
    assert make_ending().reason == ""
    assert make_ending(reach_limit, reach_limit, crash).reason == "10 jobs done"


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [(stop, 30.0), (reload, RELOAD_SECONDS), (crash, 0.0), (give_up, 0.0), (reach_limit, 30.0)],
)
def test_jobs_may_go_on_for_as_long_as_the_reason_allows(asked: Ask, seconds: float) -> None:
    assert make_ending(asked).timeout == seconds
