"""`openapi.json`, and whether an answer is one that it describes."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from django.http import HttpResponse

from django_pgjobs.http.views.description import OPENAPI

DESCRIBED: dict[str, Any] = json.loads(OPENAPI)
METHODS = ("get", "post", "put", "patch", "delete")


def resolved(node: Any) -> Any:
    """Return what a $ref leads to."""
    while isinstance(node, dict) and "$ref" in node:
        found: Any = DESCRIBED
        for word in node["$ref"].removeprefix("#/").split("/"):
            found = found[word]
        node = found
    return node


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield address, method and description of each operation."""
    for address, item in DESCRIBED["paths"].items():
        for method in METHODS:
            if method in item:
                shared = item.get("parameters", [])
                own = item[method].get("parameters", [])
                yield address, method, item[method] | {"parameters": [*shared, *own]}


@cache
def patterns() -> list[tuple[re.Pattern[str], str]]:
    """Return what matches an address below v1/, and the address as it is described."""
    return [(re.compile(re.sub(r"{\w+}", "[^/]+", path)), path) for path in DESCRIBED["paths"]]


def check_described(method: str, address: str, answer: HttpResponse) -> None:
    """Fail if an operation has given an answer that is not described.

    What is no operation, another address or another method, is not its business.
    """
    path = "/" + address.partition("?")[0]
    name = "get" if method == "HEAD" else method.lower()
    for pattern, described in patterns():
        item = DESCRIBED["paths"][described]
        # An id that no row can have makes an address that no route knows.
        if pattern.fullmatch(path) and name in item:
            responses = item[name]["responses"]
            status = str(answer.status_code)
            assert status in responses, f"{method} {described}: {status} is not described"
            if method != "HEAD":
                _check_body(f"{method} {described} {status}", resolved(responses[status]), answer)
            return


def _check_body(what: str, response: dict[str, Any], answer: HttpResponse) -> None:
    content = response.get("content")
    if content is None:
        assert not answer.content, what
        return
    [(content_type, described)] = content.items()
    assert answer["Content-Type"] == content_type, what
    for name in response.get("headers", ()):
        assert name in answer, f"{what}: there is no {name}"
    if (check := _validator(json.dumps(described["schema"]))) is not None:
        check(json.loads(answer.content))


@cache
def _validator(schema: str) -> Any:
    """Return what raises for an object that does not fit; None without the library."""
    if importlib.util.find_spec("jsonschema_rs") is None:
        return None
    import jsonschema_rs

    whole = {**json.loads(schema), "components": DESCRIBED["components"]}
    return jsonschema_rs.Draft202012Validator(whole).validate
