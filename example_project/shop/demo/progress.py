"""A progress bar: one line redrawn on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from io import TextIOBase
from time import monotonic

BAR_WIDTH = 28
REDRAW_SECONDS = 0.1
LINE_SECONDS = 3.0


class Progress:
    """Show how much of *total* is done, how fast it goes, and a note."""

    def __init__(self, out: TextIOBase, label: str, total: int) -> None:
        self._out = out
        self._label = label
        self._total = total
        self._tty = out.isatty()
        self._started = monotonic()
        self._shown = self._started if not self._tty else 0.0

    def show(self, done: int, note: str | Callable[[], str] = "") -> None:
        """Draw *done*, unless that was done a moment ago; *note* may be made on demand."""
        interval = REDRAW_SECONDS if self._tty else LINE_SECONDS
        if monotonic() - self._shown >= interval:
            self._draw(done, note() if callable(note) else note)

    def finish(self, done: int, note: str = "") -> None:
        """Draw *done* for the last time and go to the next line."""
        self._draw(done, note)
        if self._tty:
            self._out.write("\n")
            self._out.flush()

    def say(self, text: str) -> None:
        """Write a line above the bar."""
        self._out.write(f"\r\033[K{text}\n" if self._tty else f"{text}\n")
        self._out.flush()
        self._shown = 0.0 if self._tty else self._shown

    def _draw(self, done: int, note: str) -> None:
        now = monotonic()
        rate = done / max(now - self._started, 0.001)
        filled = min(BAR_WIDTH, BAR_WIDTH * done // max(self._total, 1))
        bar = "█" * filled + "░" * (BAR_WIDTH - filled)
        if not _can_encode(self._out, bar):
            bar = "#" * filled + "-" * (BAR_WIDTH - filled)
        line = f"  {self._label} {bar} {done:>6,} of {self._total:,}  {rate:5,.0f}/s  {note}"
        if self._tty:
            width = shutil.get_terminal_size().columns - 1
            self._out.write(f"\r\033[K{line[:width]}")
        else:
            self._out.write(f"{line.rstrip()}\n")
        self._out.flush()
        self._shown = now


def _can_encode(out: TextIOBase, text: str) -> bool:
    try:
        text.encode(out.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
