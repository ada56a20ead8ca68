"""What the flags of the commands accept: each function reads one kind of value."""

from __future__ import annotations

import argparse
import math
from typing import NamedTuple

from django_pgjobs.conf import automatic_concurrency


def whole_number(text: str) -> int:
    """Return a whole number of at least 1."""
    number = int(text) if text.isascii() and text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of 1 or more, got {text!r}.")
    return number


def concurrency(text: str) -> int:
    """Return a number of threads, or the automatic one."""
    return automatic_concurrency() if text == "auto" else whole_number(text)


def duration(text: str) -> float:
    """Return a number of seconds, 0 or more."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not (math.isfinite(seconds) and seconds >= 0):
        raise argparse.ArgumentTypeError(f"expected seconds, 0 or more, got {text!r}.")
    return seconds


class QueueSlots(NamedTuple):
    """The queues to serve, None for all, and the most slots that some of them may take."""

    text: str
    names: tuple[str, ...] | None
    slots: dict[str, int]


def queue_slots(text: str) -> QueueSlots:
    """Return the queues of a list such as "mail,billing:4" or "billing:4,*"."""
    names, slots = [], {}
    for entry in queue_names(text):
        name, colon, number = entry.rpartition(":")
        if colon:
            slots[name] = whole_number(number)
        names.append(name if colon else entry)
    if not all(names) or "*" in slots:
        raise argparse.ArgumentTypeError(
            f"expected queues such as mail,billing:4 or billing:4,*, got {text!r}."
        )
    return QueueSlots(text, None if "*" in names else tuple(names), slots)


def queue_names(text: str) -> tuple[str, ...]:
    """Return the names in a comma-separated list."""
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise argparse.ArgumentTypeError(f"expected queue names with commas between, got {text!r}.")
    return names
