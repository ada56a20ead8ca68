"""What the tests of jobs and workflows over HTTP share: reading answers, and bodies."""

from __future__ import annotations

import json
from typing import Any

from django.http import HttpResponse

from tests.http.support import Api, problem_of
from tests.tasks import add, echo, fail_once

ADD, ECHO, FAIL = add.module_path, echo.module_path, fail_once.module_path


def read(answer: HttpResponse, status: int = 200) -> Any:
    """Return the body of an answer."""
    assert answer.status_code == status, answer.content
    return json.loads(answer.content)


def errors_of(answer: HttpResponse) -> dict[str, str]:
    """Return the errors of a problem, by pointer."""
    assert problem_of(answer) == "invalid", answer.content
    return {each["pointer"]: each["detail"] for each in read(answer, 422)["errors"]}


def sums(*pairs: tuple[int, int]) -> list[dict[str, Any]]:
    """Return jobs that add numbers."""
    return [{"task": ADD, "args": list(pair)} for pair in pairs]


def results(api: Api, batch_id: str) -> list[Any]:
    """Return all results of a tree."""
    return [each["result"] for each in read(api.get(f"workflows/{batch_id}/results"))["results"]]
