"""Why a worker's process ends, with which status, and how long its jobs may go on."""

from __future__ import annotations

from collections.abc import Callable

from django_pgjobs.worker.process.exit_status import (
    EXIT_CRASHED,
    EXIT_DISMISSED,
    EXIT_DONE,
    EXIT_OK,
    EXIT_RELOAD,
    EXIT_RESTART,
)

# How long running jobs may take when the process is to start again with other code.
RELOAD_SECONDS = 3.0
# A part that cannot go on, or an order in the worker's row, decides about the status, whatever was
# asked for before; else the first reason does.
BROKEN = (EXIT_CRASHED, EXIT_RESTART)
DECISIVE = (*BROKEN, EXIT_DISMISSED)
# What only a supervisor understands.
OF_CHILDREN = (EXIT_DISMISSED, EXIT_DONE)


class Ending:
    """The end of a process as far as it is decided.

    Safe from any thread; *on_asked* is called whenever somebody asks for the end.
    """

    def __init__(
        self, *, shutdown_timeout: float, is_child: bool, on_asked: Callable[[], None]
    ) -> None:
        self._shutdown_timeout = shutdown_timeout
        self._is_child = is_child
        self._on_asked = on_asked
        # Reasons and statuses, the first one first.
        self._asked: list[tuple[str, int]] = []

    @property
    def reason(self) -> str:
        """Why the process ends, empty if it does not."""
        return self._asked[0][0] if self._asked else ""

    @property
    def code(self) -> int:
        """With which status it ends."""
        codes = [code for _, code in self._asked] or [EXIT_OK]
        code = next((each for each in DECISIVE if each in codes), codes[0])
        return EXIT_OK if code in OF_CHILDREN and not self._is_child else code

    @property
    def is_broken(self) -> bool:
        """Does the process end because a part of it, or a job in it, cannot go on?"""
        return self.code in BROKEN

    @property
    def timeout(self) -> float:
        """How many seconds running jobs may take to finish."""
        return 0.0 if self.is_broken else self._shutdown_timeout

    def ask(self, reason: str, code: int = EXIT_OK) -> None:
        """Ask for an end in good order, with this status."""
        if (reason, code) not in self._asked:
            self._asked.append((reason, code))
        self._on_asked()

    def hang_up(self) -> None:
        """Ask for an end in good order after HUP, to be started again by a supervisor."""
        self.ask("HUP", EXIT_RELOAD)

    def reload(self, reason: str) -> None:
        """Ask for an end soon, to be started again."""
        self._shutdown_timeout = min(self._shutdown_timeout, RELOAD_SECONDS)
        self.ask(reason, EXIT_RELOAD)

    def reach_limit(self, reason: str) -> None:
        """Ask for an end because of a limit of the process, or because a drain is done."""
        self.ask(reason, EXIT_DONE)

    def dismiss(self) -> None:
        """Ask for an end as somebody wanted in the worker's row."""
        self.ask("asked to stop in the table", EXIT_DISMISSED)

    def crash(self, role: str) -> None:
        """Ask for an end because a role has crashed."""
        self.ask(f"role {role} crashed", EXIT_CRASHED)

    def give_up(self, reason: str) -> None:
        """Ask for an end because a job cannot be ended, to be started again."""
        self.ask(reason, EXIT_RESTART)
