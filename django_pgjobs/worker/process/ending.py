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


class Ending:
    """The end of a process as far as it is decided: the first reason stays.

    Safe from any thread; *on_asked* is called whenever somebody asks for the end.
    """

    def __init__(
        self, *, shutdown_timeout: float, is_child: bool, on_asked: Callable[[], None]
    ) -> None:
        self._on_asked = on_asked
        codes = (EXIT_DISMISSED, EXIT_DONE) if is_child else (EXIT_OK, EXIT_OK)
        self._dismissed_code, self._done_code = codes
        self._shutdown_timeout = shutdown_timeout
        self.reason = ""
        self.code = EXIT_OK

    @property
    def is_broken(self) -> bool:
        """Does the process end because a part of it, or a job in it, cannot go on?"""
        return self.code in (EXIT_CRASHED, EXIT_RESTART)

    @property
    def timeout(self) -> float:
        """How many seconds running jobs may take to finish."""
        return 0.0 if self.is_broken else self._shutdown_timeout

    def ask(self, reason: str) -> None:
        """Ask for an end in good order."""
        self.reason = self.reason or reason
        self._on_asked()

    def hang_up(self) -> None:
        """Ask for an end in good order after HUP, to be started again by a supervisor."""
        self.code = EXIT_RELOAD
        self.ask("HUP")

    def reload(self, reason: str) -> None:
        """Ask for an end soon, to be started again."""
        self.code = EXIT_RELOAD
        self._shutdown_timeout = min(self._shutdown_timeout, RELOAD_SECONDS)
        self.ask(reason)

    def reach_limit(self, reason: str) -> None:
        """Ask for an end because of a limit of the process, or because a drain is done."""
        if self.code == EXIT_OK:
            self.code = self._done_code
        self.ask(reason)

    def dismiss(self) -> None:
        """Ask for an end as somebody wanted in the worker's row."""
        if self.code in (EXIT_OK, EXIT_RELOAD):
            self.code = self._dismissed_code
        self.ask("asked to stop in the table")

    def crash(self, role: str) -> None:
        """Ask for an end because a role has crashed."""
        self.code = EXIT_CRASHED
        self.ask(f"role {role} crashed")

    def give_up(self, reason: str) -> None:
        """Ask for an end because a job cannot be ended, to be started again."""
        self.code = EXIT_RESTART
        self.ask(reason)
