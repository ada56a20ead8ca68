"""`openapi.json` says what the views do: their addresses, methods, verbs, parameters and fields."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.http import HttpResponse

from django_pgjobs.http import problems
from django_pgjobs.http.routing import Handler
from django_pgjobs.http.urls import V1
from django_pgjobs.http.views.description import OPENAPI
from tests.helpers import ROOT
from tests.http.described import operations, resolved
from tests.http.support import Api, problem_of

ID = "1"
NO_FIELD = "no such field"
KNOWN = re.compile(r"known here: (.*)")
# Schemas may lead back to themselves.
DEEPEST = 3


def handlers() -> dict[tuple[str, str], Handler]:
    """Return what answers each address and method, in the form of the description."""
    found = {}
    for route in V1:
        address = "/" + re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", str(route.pattern))
        for method, handler in getattr(route.callback, "handlers", {}).items():
            found[address, method.lower()] = handler
    return found


def test_each_route_is_in_the_docs_with_its_verb_and_no_other() -> None:
    page = (ROOT / "docs" / "http-api.md").read_text()
    table = page.partition("\n## Routes\n")[2].partition("\n## ")[0]
    told = {
        route: verb
        for verb, routes in re.findall(r"^- (.+?): (.*)$", table, re.MULTILINE)
        for route in re.findall(r"`([A-Z]+ [^`]+)`", routes)
    }
    expected = {"GET openapi.json": "without a token"}
    for (address, method), handler in handlers().items():
        verb = f"`{handler.verb}`" if handler.verb else "any token"
        expected[f"{method.upper()} {address[1:]}"] = verb
    assert told == expected


BODIES = [
    pytest.param(address, method, operation, id=f"{method} {address}")
    for address, method, operation in operations()
    if "requestBody" in operation
]


def test_each_address_and_method_is_described_and_no_other() -> None:
    described = {(address, method) for address, method, _ in operations()}
    assert described - {("/openapi.json", "get")} == handlers().keys()


def test_each_reference_leads_to_something() -> None:
    text = OPENAPI.decode()
    for pointer in set(re.findall(r'"\$ref": "([^"]+)"', text)):
        assert resolved({"$ref": pointer}), pointer


def test_each_operation_has_a_name_of_its_own_and_says_which_answers_there_are() -> None:
    names = [operation["operationId"] for *_, operation in operations()]
    assert len(names) == len(set(names))
    statuses = {status for status, _ in problems.SLUGS.values()}
    for address, method, operation in operations():
        assert operation["summary"], (address, method)
        for status, answer in operation["responses"].items():
            if int(status) >= 400:
                content = resolved(answer)["content"]
                assert list(content) == [problems.CONTENT_TYPE], (address, method, status)
                assert int(status) in statuses, (address, method, status)


def test_the_verb_of_each_operation_is_the_one_that_is_asked_for() -> None:
    asked = handlers()
    for address, method, operation in operations():
        if (address, method) in asked:
            verb = asked[address, method].verb
            assert operation["security"] == [{"token": [verb] if verb else []}], (address, method)


def test_the_parameters_are_those_that_are_read() -> None:
    asked = handlers()
    for address, method, operation in operations():
        given = [resolved(parameter) for parameter in operation["parameters"]]
        names = {
            place: {each["name"] for each in given if each["in"] == place}
            for place in ("path", "query")
        }
        assert names["path"] == set(re.findall(r"{(\w+)}", address)), (address, method)
        query = asked[address, method].query if (address, method) in asked else ()
        assert names["query"] == set(query), (address, method)


def test_no_object_of_a_body_takes_what_is_not_named() -> None:
    for *_, operation in operations():
        if "requestBody" in operation:
            schema = body_schema(operation)
            assert schema["additionalProperties"] is False
            assert set(schema.get("required", ())) <= set(schema["properties"])


def body_schema(operation: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of the body of an operation."""
    content = resolved(operation["requestBody"])["content"]
    assert list(content) == ["application/json"]
    schema: dict[str, Any] = resolved(content["application/json"]["schema"])
    return schema


def with_wrong_fields(schema: dict[str, Any], depth: int = 0) -> dict[str, Any]:
    """Return an object with a field that nobody knows, and such objects wherever one may be."""
    wrong: dict[str, Any] = {NO_FIELD: 1}
    if depth == DEEPEST:
        return wrong
    for name, given in schema["properties"].items():
        inner = resolved(given)
        items = resolved(inner.get("items", {}))
        if "properties" in inner:
            wrong[name] = with_wrong_fields(inner, depth + 1)
        elif "properties" in items:
            wrong[name] = [with_wrong_fields(items, depth + 1)]
    return wrong


def expected_fields(
    schema: dict[str, Any], wrong: dict[str, Any], pointer: str = ""
) -> Iterator[tuple[str, set[str], set[str]]]:
    """Yield pointer, fields and required ones of each object of *wrong*."""
    yield pointer, set(schema["properties"]), set(schema.get("required", ())) - set(wrong)
    for name, value in wrong.items():
        if name == NO_FIELD:
            continue
        inner = resolved(schema["properties"][name])
        if isinstance(value, list):
            items = resolved(inner["items"])
            yield from expected_fields(items, value[0], f"{pointer}/{name}/0")
        else:
            yield from expected_fields(inner, value, f"{pointer}/{name}")


@pytest.mark.parametrize(("address", "method", "operation"), BODIES)
def test_the_fields_of_a_body_are_those_that_are_read(
    api: Api, address: str, method: str, operation: dict[str, Any]
) -> None:
    """The answer to one that nobody knows names those that somebody does."""
    schema = body_schema(operation)
    wrong = with_wrong_fields(schema)
    answer = api.send(method.upper(), re.sub(r"{\w+}", ID, address)[1:], wrong)
    assert problem_of(answer) == "invalid", answer.content
    details = details_of(answer)
    for pointer, fields, required in expected_fields(schema, wrong):
        found = KNOWN.search(details[f"{pointer}/{NO_FIELD}"])
        assert found, details
        assert set(found[1].split(", ")) - {"none"} == fields, pointer or "the body"
        missing = {name for name in fields if "missing" in details.get(f"{pointer}/{name}", "")}
        assert missing == required, pointer or "the body"


def details_of(answer: HttpResponse) -> dict[str, str]:
    """Return the errors of a problem, by pointer."""
    errors = json.loads(answer.content)["errors"]
    return {each["pointer"]: each["detail"] for each in errors}
