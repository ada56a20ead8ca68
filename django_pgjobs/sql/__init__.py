"""The hot statements, one per file, and how to read them.

Static text that runs in psql after its placeholders are filled in, as `load` returns it; nothing
is ever composed from data. Each file opens with what it does, its parameters, what it returns,
which rows it locks in which order, and the index it relies on.

Each UPDATE of jobs sets `rate_limit_keys` to what it is, so that the column `lane`, generated of
it, is computed. Where an UPDATE sets nothing that a generated column depends on, PostgreSQL 16 to
18 parse the column's expression from the catalogue for every row, only to find that out
(ExecInitGenerated keeps nothing if nothing is to be computed): a third of a claim's time.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

# All of them, read at import: once an upgrade has replaced the files, a worker that still runs
# would find the statements of another release, or none.
TEXTS = {
    path.stem: path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("*.sql")
}

SECTION = re.compile(
    r"^ *-- Section: (?P<name>\w+)\n(?P<text>.*?)"
    r"(?:^ *-- Else: (?P=name)\n(?P<otherwise>.*?))?^ *-- End: (?P=name)\n",
    re.MULTILINE | re.DOTALL,
)


def load(name: str, *left_out: str) -> str:
    """Return the statement in `<name>.sql`, without comments and indents: they are for people.

    A file may mark parts that the statement can do without, each from `-- Section: <name>` to
    `-- End: <name>`; a name may mark several, and parts may lie in others. Those that are *left
    out* cost nothing; what follows `-- Else: <name>` stands in their place.
    """
    lines = [line.strip() for line in _without(TEXTS[name], left_out).splitlines()]
    return "\n".join(line for line in lines if not line.startswith("--"))


def _without(text: str, left_out: Collection[str]) -> str:
    def chosen(found: re.Match[str]) -> str:
        part = found["otherwise"] if found["name"] in left_out else found["text"]
        return _without(part or "", left_out)

    return SECTION.sub(chosen, text)
