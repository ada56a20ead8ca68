"""Handlers of the tests' own, at addresses beside those of the API."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
from django.core.exceptions import SuspiciousOperation
from django.db import OperationalError, connection

from django_pgjobs.http.pool import turn
from django_pgjobs.http.requests import ApiRequest, Reply
from django_pgjobs.http.routing import Handler, route

# What `raising` raises.
ERRORS: dict[str, Exception] = {
    "database": OperationalError("the server is gone"),
    "own": psycopg.OperationalError("the server is gone: password=secret"),
    "suspicious": SuspiciousOperation("secret"),
    "bug": ZeroDivisionError("secret"),
}


def echo(request: ApiRequest) -> Reply:
    """Return one field of each type."""
    fields = request.fields()
    found: dict[str, Any] = {
        "text": fields.text("text", max_length=10),
        "choice": fields.text("choice", default=None, max_length=10, choices=("a", "b")),
        "integer": fields.integer("integer", 0, 100, default=7),
        "number": fields.number("number", 0, 1, default=0.5),
        "flag": fields.flag("flag", default=False),
        "texts": fields.texts("texts", default=[], max_items=2, max_length=3),
        "items": [
            inner.number("number", 1, 9)
            for inner in fields.objects("items", default=[], max_items=3)
        ],
        "mapping": fields.mapping("mapping", default={}, max_items=2),
        "json": fields.json("json", default=None),
    }
    when = fields.instant("when")
    inner = fields.object("inner", default=None)
    found["inner"] = inner and inner.text("name", max_length=5)
    found["when"] = when and when.isoformat()
    fields.check()
    return Reply(200, found)


def ask(request: ApiRequest, *, job: int) -> Reply:
    """Return parameters of the address."""
    return Reply(
        200,
        {
            "job": job,
            "limit": request.query_integer("limit", 1, 100, default=50),
            "status": request.query("status", choices=("ready", "failed")),
        },
    )


def raising(request: ApiRequest) -> Reply:
    """Raise what the body names."""
    raise ERRORS[request.fields().text("error", max_length=20)]


def sessions(request: ApiRequest) -> Reply:
    """Return the session on the server, and whether Django is in a transaction."""
    rows = turn([lambda cursor: cursor.execute("SELECT pg_catalog.pg_backend_pid()")])
    return Reply(200, {"pid": rows[0][0][0], "atomic": connection.in_atomic_block})


def wait(request: ApiRequest) -> Reply:
    """Say that a thread answers."""
    return Reply(200, {"by": "a thread"})


async def await_(request: ApiRequest) -> Reply:
    """Say that the event loop answers."""
    await asyncio.sleep(0)
    fields = request.fields()
    fields.check()
    return Reply(200, {"by": "the loop"})


ROUTES = [
    route("echo", {"POST": Handler(echo, "work"), "DELETE": Handler(echo, "manage")}),
    route("ask/<pgjobs_id:job>", {"GET": Handler(ask, "read", query=("limit", "status"))}),
    route("raise", {"POST": Handler(raising, None)}),
    route("sessions", {"GET": Handler(sessions, None)}),
    route("wait", {"POST": Handler(wait, "work", in_loop=await_), "GET": Handler(wait, "read")}),
]
