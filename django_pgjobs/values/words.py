"""Words in a sentence of the log, of an error or of a command: numbers of things, and values.

The sentences are English.
"""

from __future__ import annotations

# Characters that would begin a new line, control a terminal, or reverse the order of a line, and
# lone surrogates, which cannot be written at all.
CONTROL = {
    code: f"\\x{code:02x}"
    for code in (
        *range(32),
        *range(127, 160),
        *range(0x2028, 0x202F),
        *range(0x2066, 0x206A),
        *range(0xD800, 0xE000),
    )
}
# For texts of more lines, such as tracebacks.
IN_LINES = {code: text for code, text in CONTROL.items() if code != ord("\n")}


def with_text(name: str, error: BaseException) -> str:
    """Return the name of an exception with its text, as a traceback does: ValueError: no card."""
    text = str(error)
    return f"{name}: {text}" if text else name


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: 1 job, 2 jobs."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
