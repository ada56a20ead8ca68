"""With which status a worker's process ends; docs/workers.md says what each means to others."""

from __future__ import annotations

EXIT_OK = 0
EXIT_CRASHED = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3
# Something in the process cannot be ended: start me again.
EXIT_RESTART = 75
# The code changed, or HUP: start me again. A supervisor does.
EXIT_RELOAD = 76
# Of a child that somebody stopped by its row in the table: its supervisor leaves it alone.
EXIT_DISMISSED = 77
# Of a child that has reached a limit of its own: whether it is replaced is for its supervisor.
EXIT_DONE = 78
EXIT_INTERRUPTED = 130
EXIT_QUIT = 131
