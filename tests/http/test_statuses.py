"""Each status that `openapi.json` has for an operation is answered by it, and by no other one.

That no other is answered in any test of the API is what `Api.send` looks after.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import pytest
from django.db import OperationalError
from django.http import HttpResponse

from django_pgjobs import task
from django_pgjobs.http import problems, routing
from tests.factories import make_token
from tests.http import tasks
from tests.http.described import operations
from tests.http.support import Api
from tests.http.workers import Remote
from tests.tasks import add

Send = Callable[[str, str], HttpResponse]

# Bodies that are right, where an empty object is not.
BODIES: dict[str, Any] = {
    "/workers": {"name": "n"},
    "/workers/{worker}/heartbeat": {"assignments": []},
    "/results": {"results": []},
    "/assignments/{assignment}/failure": {"error": {"type": "E"}},
    "/assignments/{assignment}/progress": {"progress": {"done": 1}},
    "/jobs": {"task": add.module_path, "args": [1, 2]},
    "/workflows": {"name": "n"},
    "/batches/{batch}/jobs": {"jobs": []},
}
NOBODY = "999999"
TOO_MANY = b'"' + b"x" * 3_000_000 + b'"'


def described(status: int) -> set[str]:
    """Return the operations that may answer so."""
    return {
        f"{method.upper()} {address}"
        for address, method, operation in operations()
        if str(status) in operation["responses"]
    }


def provoked(send: Send) -> dict[str, int]:
    """Return the status that each operation answers with."""
    return {
        f"{method.upper()} {address}": send(method.upper(), address).status_code
        for address, method, _ in operations()
    }


def filled(address: str) -> str:
    """Return an address with ids of nothing."""
    return re.sub(r"{\w+}", NOBODY, address)[1:]


def without_token(api: Api) -> Send:
    stranger = Api(None)
    return lambda method, address: stranger.send(method, filled(address))


def with_a_token_for_something_else(api: Api) -> Send:
    verbs = {
        (address, method.upper()): operation["security"]
        for address, method, operation in operations()
    }
    others = {
        verb: Api(make_token(verbs=[other]))
        for verb, other in zip(
            ["work", "enqueue", "read", "manage"],
            ["enqueue", "read", "manage", "work"],
            strict=True,
        )
    }

    def send(method: str, address: str) -> HttpResponse:
        asked = next(iter(verbs[address, method]), {"token": []})["token"]
        own = others[asked[0]] if asked else api
        return own.send(method, filled(address), BODIES.get(address))

    return send


def too_often(api: Api) -> Send:
    hasty = Api(make_token(per_second=0.001))
    hasty.get("token")
    return lambda method, address: hasty.send(method, filled(address))


def with_a_parameter_that_nobody_knows(api: Api) -> Send:
    return lambda method, address: api.send(
        method, f"{filled(address)}?nothing=1", BODIES.get(address)
    )


def with_ids_of_nothing(api: Api) -> Send:
    return lambda method, address: api.send(method, filled(address), BODIES.get(address))


def with_half_a_body(api: Api) -> Send:
    return lambda method, address: api.send(method, filled(address), b"{")


def with_another_type(api: Api) -> Send:
    return lambda method, address: api.send(
        method, filled(address), b"{}", Content_Type="text/plain"
    )


def with_too_much(api: Api) -> Send:
    return lambda method, address: api.send(method, filled(address), TOO_MANY)


def with_no_length(api: Api) -> Send:
    return lambda method, address: api.send(
        method, filled(address), b"", **{"Transfer-Encoding": "chunked"}
    )


@pytest.mark.parametrize(
    ("status", "wrong"),
    [
        (400, with_half_a_body),
        (401, without_token),
        (403, with_a_token_for_something_else),
        (404, with_ids_of_nothing),
        (411, with_no_length),
        (413, with_too_much),
        (415, with_another_type),
        (422, with_a_parameter_that_nobody_knows),
        (429, too_often),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else "",
)
def test_each_operation_answers_as_it_is_described(
    api: Api, status: int, wrong: Callable[[Api], Send]
) -> None:
    found = provoked(wrong(api))
    assert {name for name, answered in found.items() if answered == status} == described(status)


@pytest.mark.parametrize(
    ("status", "error"), [(500, ZeroDivisionError()), (503, OperationalError())], ids=str
)
def test_each_operation_may_find_a_bug_or_no_database(
    api: Api, monkeypatch: Any, status: int, error: Exception
) -> None:
    class Broken:
        def spend(self, access: object) -> None:
            raise error

    monkeypatch.setattr(routing, "rates", Broken())
    api.client.raise_request_exception = False
    found = provoked(lambda method, address: api.send(method, filled(address)))
    assert {name for name, answered in found.items() if answered == status} == described(status)


def said_twice(api: Api, what: str, body: Any) -> HttpResponse:
    tasks.resize.enqueue(1)
    remote = Remote(api)
    [given] = remote.claim()
    remote.finish(given)
    return remote.say(given, what, body)


def claimed_by_another(api: Api) -> HttpResponse:
    job = tasks.resize.enqueue(1)
    Remote(api).claim()
    return api.post(f"jobs/{job.id}/workers/{Remote(api, 'other').id}")


@task(unique_key="only", on_conflict="raise")
def only() -> None:
    """Be there once."""


def enqueued_twice(api: Api) -> HttpResponse:
    body = {"task": only.module_path}
    api.post("jobs", body)
    return api.post("jobs", body)


def opened_twice(api: Api) -> HttpResponse:
    body = {"name": "n", "dedupe_key": "k"}
    api.post("workflows", body)
    return api.post("workflows", body)


def added_too_late(api: Api) -> HttpResponse:
    flow = json.loads(api.post("workflows", {"name": "n"}).content)["id"]
    return api.post(f"batches/{flow}/jobs", {"jobs": [BODIES["/jobs"]]})


CONFLICTS: dict[str, Callable[[Api], HttpResponse]] = {
    "POST /jobs/{job}/workers/{worker}": claimed_by_another,
    **{
        f"POST /assignments/{{assignment}}/{what}": lambda api, what=what: said_twice(  # type: ignore[misc]
            api, what, BODIES.get(f"/assignments/{{assignment}}/{what}", {})
        )
        for what in ("result", "failure", "release", "progress")
    },
    "POST /jobs": enqueued_twice,
    "POST /workflows": opened_twice,
    "POST /batches/{batch}/jobs": added_too_late,
}


@pytest.mark.parametrize("operation", CONFLICTS)
def test_a_conflict_is_described(api: Api, operation: str) -> None:
    assert CONFLICTS[operation](api).status_code == HTTPStatus.CONFLICT


def test_every_status_of_the_description_is_provoked() -> None:
    """What goes well is so in the tests of each route."""
    assert described(HTTPStatus.CONFLICT) == set(CONFLICTS)
    told = {int(status) for *_, operation in operations() for status in operation["responses"]}
    assert told - {200, 201, 202, 204} == {status for status, _ in problems.SLUGS.values()} - {405}
