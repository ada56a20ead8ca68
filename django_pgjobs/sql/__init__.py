"""The hot statements, one per file, and how to read them.

Static text that runs in psql after its placeholders are filled in, as `load` returns it; nothing
is ever composed from data. Each file opens with what it does, its parameters, what it returns,
which rows it locks in which order, and the index it relies on.

Each UPDATE of jobs sets `rate_limit_keys` to what it is, so that the column `lane`, generated of
it, is computed. Where an UPDATE sets nothing that a generated column depends on, PostgreSQL 16 to
18 parse the column's expression from the catalogue for every row, only to find that out
(ExecInitGenerated keeps nothing if nothing is to be computed): a third of a claim's time.

One row that makes a statement raise would stop it for all. So nothing that is calculated of stored
values can, whatever a raw INSERT put there before the bounds of the columns (migration 0007), and
what comes out is within them. The forms, the same everywhere:

- the next claim: `mod(GREATEST(job.claim, 0), 9000000000000000000) + 1`, another one each time;
- a count: `LEAST(GREATEST(job.attempts, 0), 2147483646) + 1`, `GREATEST(job.attempts, 1) - 1`;
- an instant of the engine's: `GREATEST(LEAST(job.started_at, statement_timestamp()), 'epoch')`,
  which is the time now where there is none;
- a length of time: the difference of two `date_part('epoch', ...)`, because PostgreSQL up to 16
  has no interval between an instant and infinity;
- an array: taken up if it has one dimension and begins at 1, else begun anew; the same with
  `errors` that are no list.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

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
    text = (Path(__file__).parent / f"{name}.sql").read_text(encoding="utf-8")
    lines = [line.strip() for line in _without(text, left_out).splitlines()]
    return "\n".join(line for line in lines if not line.startswith("--"))


def _without(text: str, left_out: Collection[str]) -> str:
    def chosen(found: re.Match[str]) -> str:
        part = found["otherwise"] if found["name"] in left_out else found["text"]
        return _without(part or "", left_out)

    return SECTION.sub(chosen, text)
