"""The hot statements, one per file, and how to read them.

Static text that runs in psql after its placeholders are filled in, as `load` returns it; nothing
is ever composed from data. (The INSERT of one job names the columns that are given:
`queries.enqueue.insert_job`.) Each file opens with what it does, its parameters, what it returns,
which rows it locks in which order, and the index it relies on. What several say of a row is told
once, in `terms.py` and its parts, and stands in the files as `{job.is_ready}`.

Names are plain in the files and qualified before they are sent (`qualified`). Operators cannot
be, so both sides have the very types of one of PostgreSQL's own, by casts where needed, or it is
written `OPERATOR(pg_catalog.||)`. Otherwise an operator that somebody made in a schema of the
search path, for just these types, would go before.

One row that makes a statement raise would stop it for all. So nothing that is calculated of stored
values can, whatever a raw INSERT put there before the bounds of the columns (the domains of
migration 0001), and what comes out is within them. The forms, the same everywhere:

- the next claim: `mod(GREATEST(job.claim, 0), 9000000000000000000) + 1`, another one each time; of
  who takes a job `mod(GREATEST(job.claim, 0), 8999999990000000000) + 1` and less than 2^31 by
  chance (`claim_terms.py` says why);
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
from pathlib import Path

from django_pgjobs.sql.terms import written_out


def bare(text: str) -> str:
    """Return SQL without comments and indents: they are for people."""
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if not line.startswith("--"))


# All of them, read at import: once an upgrade has replaced the files, a worker that still runs
# would find the statements of another release, or none.
TEXTS = {
    path.stem: bare(path.read_text(encoding="utf-8"))
    for path in Path(__file__).parent.glob("*.sql")
}

# What is ours: tables, functions, sequences; also in a literal that names one. Django keeps its
# record of migrations beside them.
OURS = re.compile(r"(?<![\w.])(?P<quote>'?)(?P<name>pgjobs_\w+|django_migrations\b)")
# A function of PostgreSQL's is written in lower case right before its parenthesis. An unnest of
# several arrays is syntax and bears no schema; one of a single array says it in its file.
CALL = re.compile(r"(?<![\w.])(?!pgjobs_|unnest\()(?=[a-z]\w*\()")
# A statement that does more than another begins like it, or selects of its rows.
PARTS = re.compile(r"\{(?P<part>head|rows) of (?P<name>\w+)\}")


def load(name: str) -> str:
    """Return the statement in `<name>.sql`, without comments and indents.

    `{head of other}` in it is what `other.sql` says before its last line, and `{rows of other}` all
    that it says.
    """

    def part(found: re.Match[str]) -> str:
        text = load(found["name"]).rstrip()
        return text.rpartition("\n")[0] if found["part"] == "head" else text

    return PARTS.sub(part, bare(written_out(TEXTS[name])))


def qualified(text: str, schema: str | None) -> str:
    """Return a statement that does not depend on who made what in the search path.

    Functions are PostgreSQL's own, and what is ours is in *schema*; None: where the path finds it.
    """
    text = CALL.sub("pg_catalog.", text)
    if schema is None:
        return text
    # The text is one with placeholders.
    identifier = '"{}".'.format(schema.replace('"', '""').replace("%", "%%"))

    def named(found: re.Match[str]) -> str:
        place = identifier.replace("'", "''") if found["quote"] else identifier
        return found["quote"] + place + found["name"]

    return OURS.sub(named, text)
