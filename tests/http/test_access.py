"""Who may use the API: tokens, and what they are for."""

from __future__ import annotations

import json

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
