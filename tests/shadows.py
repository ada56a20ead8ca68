"""Operators in somebody's schema that fit a statement better than PostgreSQL's own.

PostgreSQL takes the operator or function whose argument types fit exactly, wherever in the
search path it is, before one of pg_catalog that needs a cast or is polymorphic. So whoever may
create objects in a schema of a role's path can have code run as that role.
"""

from __future__ import annotations

from itertools import product
from typing import Any

NUMBERS = ("smallint", "integer", "bigint", "real", "double precision", "numeric")
TEXTS = ("text", "varchar", "name", '"char"', "pgjobs_payload", "json", "jsonb", "text[]", "bigint")
ARRAYS = ("text[]", "varchar[]", "bigint[]", "integer[]")
OBJECTS = ("oid", "regclass", "bigint", "integer")
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
# Operators with the types that they are made for, on each side.
SHADOWED = (
    *((COMPARISONS, types, types) for types in (NUMBERS, TEXTS, ARRAYS, OBJECTS)),
    (COMPARISONS, ("timestamptz", "date", "text"), ("timestamptz", "date", "text")),
    (("+", "-", "*", "/", "%", "^"), NUMBERS, NUMBERS),
    (("+", "-", "*", "/"), ("timestamptz", "interval"), ("timestamptz", "interval", *NUMBERS)),
    (("||",), (*TEXTS, *ARRAYS), (*TEXTS, *ARRAYS, "integer")),
    (("->", "->>", "@>", "?"), ("json", "jsonb"), ("json", "jsonb", "text", "integer", "bigint")),
    (("~~", "!~~", "~~*", "~", "^@"), TEXTS[:4], (*TEXTS[:4], "text[]")),
    (("@>", "<@", "&&"), ARRAYS, ARRAYS),
)
CREATE = """
CREATE SCHEMA shadow;
CREATE FUNCTION shadow.was_called() RETURNS void LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION 'a shadow was called'; END $$;
CREATE FUNCTION shadow.unnest(text[]) RETURNS SETOF text LANGUAGE plpgsql
    AS $$ BEGIN PERFORM shadow.was_called(); END $$;
CREATE FUNCTION shadow.unnest(bigint[]) RETURNS SETOF bigint LANGUAGE plpgsql
    AS $$ BEGIN PERFORM shadow.was_called(); END $$;
"""
CREATE_OPERATORS = """
DO $do$
DECLARE
    wanted record;
BEGIN
    FOR wanted IN
        SELECT DISTINCT symbol, l, r, result
        FROM unnest(
            %(symbols)s::text[], %(lefts)s::text[], %(rights)s::text[], %(results)s::text[]
        ) AS operator (symbol, l, r, result)
        WHERE NOT EXISTS (
            SELECT FROM pg_operator AS known
            WHERE known.oprname = symbol AND known.oprnamespace = 'pg_catalog'::regnamespace
            AND known.oprleft = l::regtype AND known.oprright = r::regtype
        )
    LOOP
        EXECUTE format(
            'CREATE OR REPLACE FUNCTION shadow.%%I(%%s, %%s) RETURNS %%s LANGUAGE plpgsql'
            ' AS $$ BEGIN PERFORM shadow.was_called(); END $$',
            'gives ' || wanted.result, wanted.l, wanted.r, wanted.result
        );
        EXECUTE format(
            'CREATE OPERATOR shadow.%%s (LEFTARG = %%s, RIGHTARG = %%s, FUNCTION = shadow.%%I)',
            wanted.symbol, wanted.l, wanted.r, 'gives ' || wanted.result
        );
    END LOOP;
END
$do$
"""


def create_shadows(cursor: Any) -> None:
    """Make a schema `shadow` with every operator that statements like ours could be caught by."""
    made = [
        (symbol, left, right, _result(symbol, left, right))
        for symbols, lefts, rights in SHADOWED
        for symbol, left, right in product(symbols, lefts, rights)
    ]
    names = ("symbols", "lefts", "rights", "results")
    columns = [list(column) for column in zip(*made, strict=True)]
    cursor.execute(CREATE)
    cursor.execute(CREATE_OPERATORS, dict(zip(names, columns, strict=True)))


def _result(symbol: str, left: str, right: str) -> str:
    """Return a type with which the rest of a statement still fits."""
    if symbol in ("+", "-", "*", "/", "%", "^", "->"):
        return left
    if symbol == "||":
        return next((type_ for type_ in (left, right) if type_.endswith(("[]", "jsonb"))), "text")
    return "text" if symbol == "->>" else "boolean"
