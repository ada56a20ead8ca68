"""Who may use the API: tokens, and what they are for."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from django_pgjobs.http import access
from django_pgjobs.http.access import known_tokens
from django_pgjobs.http.problems import Problem
from django_pgjobs.models import Token
from tests.factories import make_token
from tests.http.support import Api, problem_of


def test_a_token_says_what_it_may_do(api: Api) -> None:
    answer = api.get("token")
    assert answer.status_code == 200
    body = json.loads(answer.content)
    assert body["name"] == "test"
    assert body["verbs"] == ["work", "enqueue", "read", "manage"]
    assert (body["queues"], body["tasks"], body["expires_at"]) == (None, None, None)


def test_without_a_token_there_is_no_answer(api: Api) -> None:
    for secret in (None, "", "pgj_" + "x" * 43, "Basic x"):
        answer = Api(secret).get("token")
        assert answer.status_code == 401
        assert answer["WWW-Authenticate"].startswith("Bearer")
        assert problem_of(answer) == "unauthorized"


def test_the_description_needs_no_token(api: Api) -> None:
    answer = Api(None).get("openapi.json")
    assert json.loads(answer.content)["openapi"] == "3.1.0"


def test_who_tries_many_tokens_drives_out_no_good_one(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "MAX_CACHED", 5)
    assert api.get("token").status_code == 200
    for number in range(20):
        assert Api(f"pgj_{number:043}").get("token").status_code == 401
    asked: list[str] = []
    monkeypatch.setattr(access, "get_token", lambda cursor, digest: asked.append(digest))
    assert api.get("token").status_code == 200
    assert asked == []


def test_the_last_use_is_written_once_a_minute(api: Api) -> None:
    def last() -> Any:
        return Token.objects.get().last_used_at

    assert last() is None
    api.get("token")
    first = last()
    assert first is not None
    access.known_tokens.forget()
    api.get("token")
    assert last() == first
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgjobs_token SET last_used_at = now() - interval '61 seconds'")
    access.known_tokens.forget()
    api.get("token")
    assert last() >= first


def test_a_token_that_somebody_has_locked_works_all_the_same(
    api: Api, open_connection: Callable[..., Any]
) -> None:
    other = open_connection(autocommit=False)
    other.execute("SELECT id FROM pgjobs_token FOR UPDATE")
    assert api.get("token").status_code == 200
    other.rollback()


def test_a_known_token_costs_no_query(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    get_token = access.get_token
    monkeypatch.setattr(
        access,
        "get_token",
        lambda cursor, digest: asked.append(digest) or get_token(cursor, digest),
    )
    for _ in range(5):
        assert api.get("token").status_code == 200
        assert Api("pgj_" + "x" * 43).get("token").status_code == 401
    assert len(asked) == 2


def test_a_scope_is_of_queues_and_tasks() -> None:
    everything = make_access()
    some = make_access(queues={"node"}, tasks={"a.b"})
    nothing = make_access(queues=set())
    assert everything.may_use("mail", "x.y") and not nothing.may_use("mail", "x.y")
    assert some.may_use("node", "a.b")
    assert not some.may_use("node", "x.y") and not some.may_use("mail", "a.b")
    with pytest.raises(Problem, match="forbidden"):
        some.require_use("mail", "a.b")
    with pytest.raises(Problem, match="forbidden"):
        everything.require("manage")


def make_access(**given: Any) -> access.Access:
    """Return what a token may do that works."""
    scope = {
        name: frozenset(given[name]) if name in given else None for name in ("queues", "tasks")
    }
    return access.Access(1, "n", frozenset({"work"}), scope["queues"], scope["tasks"], None, None)


def test_an_odd_name_in_a_scope_allows_nothing_and_harms_nobody(api: Api) -> None:
    """SQL may put NULL into a list."""
    own = Api(make_token("odd"))
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgjobs_token SET queues = '{NULL,node}', tasks = '{NULL}' WHERE name = 'odd'"
        )
    known_tokens.forget()
    answer = own.get("token")
    assert json.loads(answer.content)["queues"] == ["node"]
    assert own.get("jobs").status_code == 200
