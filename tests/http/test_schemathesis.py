"""What schemathesis makes of `openapi.json`, sent to the live views.

Right and wrong bodies of every kind: none is a 500, what is wrong is refused, and every answer is
one that the description knows.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.wsgi import get_wsgi_application

from django_pgjobs.http.views.description import OPENAPI
from django_pgjobs.models import Job
from tests.factories import make_batch
from tests.http import tasks
from tests.http.described import operations
from tests.http.support import Api
from tests.http.workers import Remote

schemathesis = pytest.importorskip("schemathesis")
hypothesis = pytest.importorskip("hypothesis")

pytestmark = [
    pytest.mark.slow,
    # Threads of ours may ask for random numbers while it makes a request up.
    pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies"),
]

EXAMPLES = 6
# With ids of rows that are there, and with any.
REQUESTS = [
    pytest.param(address, method, has_ids, id=f"{method} {address}{', real ids' * has_ids}")
    for address, method, _ in operations()
    for has_ids in ([False, True] if "{" in address else [False])
]


@pytest.fixture
def described(settings: Any) -> Any:
    """The description with the views behind it; no claim waits."""
    settings.ROOT_URLCONF = "tests.http.urls"
    settings.ALLOWED_HOSTS = ["localhost", "testserver"]
    settings.PGJOBS = {**settings.PGJOBS, "HTTP_MAX_WAITING": 0}
    schema = schemathesis.openapi.from_dict(json.loads(OPENAPI))
    schema.app = get_wsgi_application()
    return schema


def real_ids(api: Api) -> dict[str, str]:
    """Return the ids of a worker, of a job that it might claim, of one that it runs, of a batch."""
    for width in (1, 2):
        tasks.resize.enqueue(width)
    remote = Remote(api)
    [given] = remote.claim()
    [waiting] = Job.objects.filter(status="ready")
    return {
        "worker": str(remote.id),
        "job": str(waiting.pk),
        "assignment": given["assignment"],
        "batch": str(make_batch("tree", sealed_at=None)),
    }


@pytest.mark.parametrize("is_right", [True, False], ids=["right", "wrong"])
@pytest.mark.parametrize(("address", "method", "has_ids"), REQUESTS)
def test_every_answer_is_described(
    api: Api, described: Any, address: str, method: str, has_ids: bool, is_right: bool
) -> None:
    """S2.31."""
    modes = schemathesis.GenerationMode
    mode = modes.POSITIVE if is_right else modes.NEGATIVE
    strategy = described[address][method].as_strategy(generation_mode=mode)
    ids = real_ids(api) if has_ids else {}

    @hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(case=strategy)
    def send(case: Any) -> None:
        if ids:
            case.path_parameters = {name: ids[name] for name in case.path_parameters}
        response = case.call(headers={"Authorization": f"Bearer {api.secret}"})
        case.validate_response(response, excluded_checks=excluded(is_right, ids))
        # A wrong request may have no token.
        assert not is_right or response.status_code not in (401, 403, 405), response.text

    try:
        send()
    except hypothesis.errors.Unsatisfiable:
        assert not is_right, "nothing fits the description"  # else nothing can be wrong


def excluded(is_right: bool, ids: dict[str, str]) -> list[Any]:
    """Return the checks that ask for what is not so here."""
    names = ["use_after_free", "ignored_auth"]
    # A body that fits may name a task that is not there, or have NUL in a text.
    names.append("positive_data_acceptance")
    if ids and not is_right:
        # What was wrong may have been the id.
        names.append("negative_data_rejection")
    return [schemathesis.checks.CHECKS.get_one(name) for name in names]
