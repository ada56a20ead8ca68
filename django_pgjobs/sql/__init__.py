"""The hot statements, one per file, and how to read them.

Static text that runs in psql after its placeholders are filled in; nothing is ever composed
from data. Each file opens with what it does, its parameters, what it returns, which rows it
locks in which order, and the index it relies on.

Each UPDATE of jobs sets `rate_limit_keys` to what it is, so that the column `lane`, generated of
it, is computed. Where an UPDATE sets nothing that a generated column depends on, PostgreSQL 16 to
18 parse the column's expression from the catalogue for every row, only to find that out
(ExecInitGenerated keeps nothing if nothing is to be computed): a third of a claim's time.
"""

from __future__ import annotations

from pathlib import Path


def load(name: str) -> str:
    """Return the statement in `<name>.sql`, without comments and indents: they are for people.

    psycopg remembers how it parsed a statement only up to 4,096 characters.
    """
    text = (Path(__file__).parent / f"{name}.sql").read_text(encoding="utf-8")
    lines = [line.strip() for line in text.splitlines()]
    return "\n".join(line for line in lines if not line.startswith("--"))
