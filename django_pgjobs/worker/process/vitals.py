"""Does the process get on? Its parts are checked again and again, without needing any of them.

The thread that renews the lease goes on when others stand still, because one of them waits for ever
for a lock of the interpreter, or of logging that a task has kept. Such a worker would look alive
and run nothing. So each part leaves a mark of the time when it moves, and a mark of its own while
it waits, which is no standing still; the process ends when a mark stays the same for longer than
any step can take. Nothing in here may need a lock that other parts may hold: it writes past
logging, gives jobs back in a thread that it does not wait for long, and exits.

The sign of life for the supervisor comes from here too: it says that threads of the process run. A
task that keeps the interpreter's lock silences it, and then the supervisor ends the process.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import PurePath

from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.process.exit_status import EXIT_RESTART
from django_pgjobs.worker.process.farewell import Farewell
from django_pgjobs.worker.process.signal_pipe import say_past_log
from django_pgjobs.worker.role import Role
from django_pgjobs.worker.stillness import LOOK_SECONDS, Stillness

# More than an answer may take (ANSWER_SECONDS), and its connection to be cut.
STILL_SECONDS = 60.0
# How long giving jobs back may take.
GIVE_BACK_SECONDS = 3.0
# How many calls of each thread are shown.
DEPTH = 6


class Vitals(Role):
    """Ends the process if a part of it stands still, or if its end takes too long.

    *parts* are functions that return the mark of a part, by the part's name.
    """

    name = "vitals"

    def __init__(
        self,
        parts: Mapping[str, Callable[[], float]],
        *,
        farewell: Farewell,
        tell_alive: Callable[[], object],
        on_crash: Callable[[str], None],
    ) -> None:
        super().__init__(on_crash)
        self._parts = parts
        self._stillness = {name: Stillness() for name in parts}
        self._farewell = farewell
        self._tell_alive = tell_alive
        self._end: tuple[Stillness, float, int] | None = None
        self._looked_at = math.inf

    def end_within(self, seconds: float, code: int) -> None:
        """End the process after so many seconds with this status, whatever it is doing."""
        self._end = Stillness(), seconds, code
        self.wake()

    def run(self) -> None:
        while not self.stop_requested:
            self._tell_alive()
            for name, mark in self._parts.items():
                still = self._stillness[name].look(mark())
                if still > STILL_SECONDS:
                    self._farewell.loses_jobs = True
                    self._leave(f"{name} has stood still for {still:.0f} s", EXIT_RESTART)
            self._looked_at = time.monotonic()
            self._end_if_late()
            self.wait(LOOK_SECONDS)

    def name_still(self, seconds: float) -> str:
        """Return the part that has stood still for so many seconds, empty if none has.

        Safe from any thread.
        """
        for name, stillness in self._stillness.items():
            if stillness.seconds > seconds:
                return name
        return "the look at it" if time.monotonic() - self._looked_at > seconds else ""

    def _end_if_late(self) -> None:
        if self._end is None:
            return
        stillness, allowed, code = self._end
        if stillness.look(0.0) >= allowed:
            self._leave("the worker does not end", code)

    def _leave(self, reason: str, code: int) -> None:
        say_past_log(f"{reason}: the process does, with status {code}\n{_places()}")
        self._farewell.leave_everything(GIVE_BACK_SECONDS)
        os._exit(code)


def marks_of(
    roles: Iterable[Role], connections: Mapping[str, OwnConnection]
) -> dict[str, Callable[[], float]]:
    """Return the mark of each role, which moves with its connection, too."""
    return {f"the {role.name}": partial(_mark, role, connections.get(role.name)) for role in roles}


def _mark(role: Role, connection: OwnConnection | None) -> float:
    return max(role.moved_at, connection.moved_at) if connection else role.moved_at


def _places() -> str:
    """Return where the threads are, one a line; without locks, so without their names."""
    lines = []
    for frame in list(sys._current_frames().values()):
        calls: list[str] = []
        step = frame
        while step is not None and len(calls) < DEPTH:
            code = step.f_code
            calls.append(f"{PurePath(code.co_filename).name}:{step.f_lineno} {code.co_name}")
            step = step.f_back  # type: ignore[assignment]
        lines.append(f"    {' < '.join(calls)}\n")
    return "".join(lines)
