"""What the tests of the HTTP API share: a client with a token, and an end to its connections."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from django_pgjobs.http import waiting as listening
from django_pgjobs.http.access import known_tokens
from django_pgjobs.http.looking import looks
from django_pgjobs.http.members import recent_members
from django_pgjobs.http.memory import memory
from django_pgjobs.http.pool import pool, turn
from django_pgjobs.http.station import station
from django_pgjobs.http.waiting import waiting
from django_pgjobs.queries import claims
from tests.factories import make_token
from tests.http.support import Api, ApiClient


@pytest.fixture(autouse=True)
def nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget tokens and close connections: another test has other rows."""
    # The thread that listens sees sooner that it is to end.
    monkeypatch.setattr(listening, "RETRY_SECONDS", 0.1)
    known_tokens.forget()
    looks.begin_anew()
    recent_members.forget()
    memory.begin_anew()
    yield
    known_tokens.forget()
    # What was counted is for nobody: the tables of the next test are to be empty.
    station.tally.take(is_last=True)
    station.end()
    waiting.end()
    pool.close()


@pytest.fixture(params=["wsgi", pytest.param("with_api", marks=pytest.mark.slow)])
def api(
    transactional_db: None, settings: Any, monkeypatch: pytest.MonkeyPatch, request: Any
) -> Api:
    """A client with a token that may do everything; own connections see committed rows only.

    A test of what only a server with threads does takes `ONLY_WSGI`.
    """
    settings.ROOT_URLCONF = "tests.http.urls"
    if request.param == "with_api":
        monkeypatch.setattr(Api, "make_client", ApiClient)
    return Api(make_token())


@pytest.fixture
def hold(api: Api) -> None:
    """Django's flush has emptied the table of the row that is held by who claims jobs with keys."""
    turn([claims.send_hold])
