"""From a request to a handler and back: what every route has in common."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import threading
from typing import Any

import pytest
from django.contrib.auth.middleware import AuthenticationMiddleware
from django.db import OperationalError
from django.test import AsyncClient, RequestFactory
from django.urls import reverse

from django_pgjobs.http import pool as pool_module
from django_pgjobs.http.pool import Pool, borrowed, pool
from django_pgjobs.http.problems import SLUGS, Problem, unavailable
from django_pgjobs.http.routing import response_to
from django_pgjobs.http.threads import in_thread
from tests.factories import make_token
from tests.helpers import ROOT
from tests.http.support import ONLY_WSGI, Api, problem_of
from tests.http.views import ERRORS

TRIED = "/tried/"


def tried(api: Api, method: str, address: str, body: Any = None, **headers: str) -> Any:
    """Send a request to a handler of the tests."""
    return api.send(method, address, body, base=TRIED, **headers)


def content(answer: Any) -> Any:
    """Return the JSON of an answer that is no problem."""
    assert answer.status_code < 300, answer.content
    assert answer["Content-Type"] == "application/json"
    return json.loads(answer.content)


# Addresses, methods, parameters


@pytest.mark.parametrize(
    "address", ["", "nothing", "a%0Ab", "token/", "workers/0", "jobs/x/workers/1"]
)
def test_what_is_not_there_is_a_problem(api: Api, address: str) -> None:
    for method in ("GET", "POST"):
        assert problem_of(api.send(method, address)) == "not-found"


def test_a_slash_too_many_is_told(api: Api) -> None:
    answer = api.send("GET", "token/")
    assert "without the slash at the end" in json.loads(answer.content)["detail"]
    assert "slash" not in json.loads(api.send("GET", "nothing").content)["detail"]


def test_an_address_with_the_version_twice_is_told_from_an_unknown_one(api: Api) -> None:
    """Clients add it, and so does who copies an address with it."""
    answer = api.send("POST", "v1/workers", {})
    assert "v1/ is there twice" in json.loads(answer.content)["detail"]


def test_a_project_with_the_api_can_reverse_its_addresses() -> None:
    """Django writes all patterns of a project backwards for that, those of the API too."""
    assert reverse("pgjobs_http:openapi", "tests.http.urls") == "/pgjobs/api/v1/openapi.json"
    assert reverse("pgjobs_http:claim", "tests.http.urls", [7]).endswith("/7/claim")


@pytest.mark.parametrize("base", ["/pgjobs/api/v2/", "/pgjobs/api/v0/", "/pgjobs/api/"])
def test_another_version_is_not_there(api: Api, base: str) -> None:
    answer = api.send("GET", "token", base=base)
    assert problem_of(answer) == "not-found"
    assert "below v1/" in json.loads(answer.content)["detail"]


def test_a_method_that_a_route_has_not_is_told_the_ones_it_has(api: Api) -> None:
    answer = api.send("PATCH", "token", {})
    assert problem_of(answer) == "method-not-allowed"
    assert answer["Allow"] == "GET"
    assert tried(api, "GET", "echo")["Allow"] == "DELETE, POST"
    assert problem_of(api.post("openapi.json")) == "method-not-allowed"


def test_head_is_a_get_without_its_body(api: Api) -> None:
    answer = api.send("HEAD", "token")
    assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize("job", ["0", "01", "-1", "9223372036854775808", "1" * 30, "١"])
def test_an_id_that_no_row_can_have_is_not_there(api: Api, job: str) -> None:
    assert problem_of(tried(api, "GET", f"ask/{job}")) == "not-found"


def test_parameters_are_read(api: Api) -> None:
    found = content(tried(api, "GET", "ask/17?limit=3&status=failed"))
    assert found == {"job": 17, "limit": 3, "status": "failed"}
    assert content(tried(api, "GET", "ask/17")) == {"job": 17, "limit": 50, "status": None}


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("limit=x", "limit"),
        ("limit=", "limit"),
        ("limit=%F0", "limit"),
        ("limit=1e2", "limit"),
        ("limit=%C2%B2", "limit"),
        ("limit=" + "9" * 5000, "limit"),
        ("status=x", "status"),
        ("status=%00", "status"),
        ("color=red", "color"),
        ("limit=1&x=", "x"),
    ],
)
def test_a_wrong_parameter_is_named(api: Api, query: str, name: str) -> None:
    answer = tried(api, "GET", f"ask/17?{query}")
    assert problem_of(answer) == "invalid"
    [error] = json.loads(answer.content)["errors"]
    assert error["parameter"] == name and error["detail"]


# Who may


def test_a_token_is_for_its_verbs_only(api: Api) -> None:
    """S2.6."""
    reader = Api(make_token(verbs=["read"]))
    assert tried(reader, "GET", "ask/1").status_code == 200
    answer = tried(reader, "POST", "echo", {"text": "x"})
    assert problem_of(answer) == "forbidden"
    assert "work" in json.loads(answer.content)["detail"]


def test_the_route_and_method_are_looked_at_before_the_token(api: Api) -> None:
    assert problem_of(tried(Api(None), "PATCH", "echo")) == "method-not-allowed"
    assert problem_of(tried(Api(None), "POST", "echo", b"{")) == "unauthorized"


def test_a_token_has_so_many_requests_a_second(api: Api, monkeypatch: Any) -> None:
    now = [1000.0]
    monkeypatch.setattr("django_pgjobs.http.rates.time.monotonic", lambda: now[0])
    limited, other = Api(make_token(per_second=2.0)), Api(make_token(per_second=0.1))
    for _ in range(2):
        assert limited.get("token").status_code == 200
    answer = limited.get("token")
    assert problem_of(answer) == "too-many-requests"
    assert answer["Retry-After"] == "1"
    assert api.get("token").status_code == 200
    assert other.get("token").status_code == 200
    assert other.get("token")["Retry-After"] == "10"
    now[0] += 0.5
    assert [limited.get("token").status_code for _ in range(2)] == [200, 429]
    now[0] += 3600
    assert [limited.get("token").status_code for _ in range(3)] == [200, 200, 429]


@ONLY_WSGI
def test_nobody_has_to_log_in_and_no_form_is_asked_for(api: Api, settings: Any) -> None:
    login = pytest.importorskip("django.contrib.auth.middleware")
    settings.MIDDLEWARE = [
        *settings.MIDDLEWARE,
        f"{AuthenticationMiddleware.__module__}.{login.LoginRequiredMiddleware.__name__}",
    ]
    api.client = api.client.__class__(enforce_csrf_checks=True)
    assert tried(api, "POST", "echo", {"text": "x"}).status_code == 200


def test_no_answer_is_kept_by_a_cache(api: Api) -> None:
    for answer in (api.get("token"), api.get("nothing"), Api(None).get("token")):
        assert "no-store" in answer["Cache-Control"]


@ONLY_WSGI
def test_an_answer_tells_its_length_whatever_middleware_there_is(api: Api, settings: Any) -> None:
    """Else web servers send it in chunks, each a call of its own."""
    settings.MIDDLEWARE = []
    api.client = api.client.__class__()
    for answer in (api.get("token"), api.get("nothing"), Api(None).get("token")):
        assert int(answer["Content-Length"]) == len(answer.content) > 0
    worker = json.loads(api.post("workers", {"name": "n"}).content)["worker"]
    gone = api.delete(f"workers/{worker}")
    assert gone.status_code == 204
    assert "Content-Length" not in gone


# What goes wrong inside


@pytest.mark.parametrize(
    ("error", "slug"),
    [
        ("database", "unavailable"),
        ("own", "unavailable"),
        ("suspicious", "bad-request"),
        ("bug", "internal-error"),
    ],
)
def test_an_exception_is_a_problem_that_tells_no_secret(
    api: Api, error: str, slug: str, caplog: Any
) -> None:
    api.client.raise_request_exception = False
    with caplog.at_level(logging.WARNING, "django_pgjobs.http"):
        answer = tried(api, "POST", "raise", {"error": error})
    assert problem_of(answer) == slug
    assert b"secret" not in answer.content and b"Traceback" not in answer.content
    logged = [record for record in caplog.records if record.name.startswith("django_pgjobs.http")]
    assert len(logged) == (error != "suspicious")
    assert (slug == "unavailable") == ("Retry-After" in answer)


def test_an_address_forges_no_line_of_the_log(caplog: Any) -> None:
    request = RequestFactory().get("/a%0AERROR forged")
    assert "\n" in request.path
    for error in (OperationalError("x"), ZeroDivisionError(), unavailable("x")):
        response_to(error, request)
    assert len(caplog.records) == 3
    assert not any("\n" in record.getMessage() for record in caplog.records)


@ONLY_WSGI
def test_a_bug_is_told_to_who_collects_exceptions(api: Api) -> None:
    with pytest.raises(type(ERRORS["bug"])):
        tried(api, "POST", "raise", {"error": "bug"})


def test_a_problem_is_of_the_list() -> None:
    for slug, (status, title) in SLUGS.items():
        answer = Problem(slug).response()
        assert (answer.status_code, json.loads(answer.content)["title"]) == (status, title)
    with pytest.raises(KeyError):
        Problem("misspelt")


def test_every_problem_is_documented_and_no_other() -> None:
    page = (ROOT / "docs" / "http-api.md").read_text()
    table = page.partition("\n## Errors\n")[2].partition("\n## ")[0]
    told = {slug: int(status) for status, slug in re.findall(r"(\d{3}) `([\w-]+)`", table)}
    assert told == {slug: status for slug, (status, _) in SLUGS.items()}


# Connections


def test_handlers_share_a_connection_of_our_own_outside_of_any_transaction(
    api: Api, settings: Any
) -> None:
    from django.db import connection

    connection.settings_dict["ATOMIC_REQUESTS"] = True
    try:
        found = [content(tried(api, "GET", "sessions")) for _ in range(3)]
    finally:
        connection.settings_dict["ATOMIC_REQUESTS"] = False
    assert len({each["pid"] for each in found}) == 1
    assert not any(each["atomic"] for each in found)


def test_a_connection_that_the_server_ended_is_not_lent_again(api: Api) -> None:
    from django.db import connection

    first = content(tried(api, "GET", "sessions"))["pid"]
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [first])
    assert content(tried(api, "GET", "sessions"))["pid"] != first


def test_who_finds_all_connections_lent_is_told_to_come_again(
    api: Api, settings: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(pool_module, "PATIENCE_SECONDS", 0.0)
    settings.PGJOBS = {**settings.PGJOBS, "HTTP_MAX_CONNECTIONS": 1}
    with borrowed():
        answer = tried(api, "GET", "sessions")
        assert problem_of(answer) == "unavailable"
        assert answer["Retry-After"] == "1"
    assert tried(api, "GET", "sessions").status_code == 200


def test_who_waits_for_a_connection_gets_the_next_one(api: Api, settings: Any) -> None:
    settings.PGJOBS = {**settings.PGJOBS, "HTTP_MAX_CONNECTIONS": 1}
    answers: list[Any] = []
    waiter = threading.Thread(target=lambda: answers.append(tried(api, "GET", "sessions")))
    api.get("token")  # the token is known, so the waiter's first connection is the handler's
    with borrowed():
        waiter.start()
    waiter.join(60)
    assert answers[0].status_code == 200


def test_a_forked_process_begins_with_no_connection(api: Api) -> None:
    content(tried(api, "GET", "sessions"))
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writer, str(len(pool._free) + pool._lent).encode())
        finally:
            # Nothing of the tests may go on in it.
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert os.read(reader, 10) == b"0"
    assert len(pool._free) == 1
    for end in (reader, writer):
        os.close(end)


def test_a_broken_connection_is_opened_anew(api: Api) -> None:
    fresh = Pool()
    connection = fresh.take()
    connection.open().close()
    fresh.give_back(connection)
    again = fresh.take()
    assert again is connection and not again.is_open
    fresh.give_back(again)
    fresh.close()


# In an event loop


def in_loop(method: str, address: str, secret: str | None, body: bytes = b"{}") -> Any:
    """Send a request as an ASGI server does."""
    headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
    send = AsyncClient(raise_request_exception=False).generic

    async def run() -> Any:
        return await send(method, address, body, content_type="application/json", headers=headers)

    return asyncio.run(run())


@ONLY_WSGI
def test_a_handler_with_a_twin_is_awaited_where_there_is_a_loop(api: Api) -> None:
    assert api.secret is not None
    assert content(tried(api, "POST", "wait", {})) == {"by": "a thread"}
    assert content(in_loop("POST", "/tried/wait", api.secret)) == {"by": "the loop"}
    assert content(in_loop("GET", "/tried/wait", api.secret)) == {"by": "a thread"}
    assert content(in_loop("GET", "/pgjobs/api/v1/token", api.secret))["name"] == "test"


def test_the_twin_is_guarded_as_the_handler_is(api: Api) -> None:
    reader = make_token(verbs=["read"])
    for secret, body, slug in (
        (None, b"{}", "unauthorized"),
        (reader, b"{}", "forbidden"),
        (api.secret, b"{", "not-json"),
        (api.secret, b'{"x": 1}', "invalid"),
    ):
        assert problem_of(in_loop("POST", "/tried/wait", secret, body)) == slug
    assert problem_of(in_loop("PUT", "/tried/wait", api.secret)) == "method-not-allowed"


def test_a_known_token_costs_the_loop_no_thread(api: Api, monkeypatch: Any) -> None:
    assert api.secret is not None
    in_loop("POST", "/tried/wait", api.secret)
    used: list[object] = []
    monkeypatch.setattr(
        "django_pgjobs.http.routing.in_thread",
        lambda function: used.append(function) or in_thread(function),
    )
    assert in_loop("POST", "/tried/wait", api.secret).status_code == 200
    assert used == []
