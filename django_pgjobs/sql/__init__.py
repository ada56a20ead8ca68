"""The hot statements, one per file, and how to read them.

Static text that runs in psql after its placeholders are filled in; nothing is ever composed
from data. Each file opens with what it does, its parameters, what it returns, which rows it
locks in which order, and the index it relies on.
"""

from __future__ import annotations

from pathlib import Path


def load(name: str) -> str:
    """Return the statement in `<name>.sql`, without its comments: they are for people."""
    text = (Path(__file__).parent / f"{name}.sql").read_text(encoding="utf-8")
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))
