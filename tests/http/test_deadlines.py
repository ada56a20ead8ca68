"""A database that does not answer keeps no request, and no process."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connections

from django_pgjobs.http import deadlines as module
from django_pgjobs.http.pool import pool
from tests.http.support import Api, problem_of
from tests.http.workers import Remote
from tests.proxy import TcpProxy


@pytest.mark.slow
def test_a_request_that_a_frozen_database_does_not_answer_is_told_so(
    api: Api, settings: Any, proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machine acknowledges what is sent, so TCP finds nothing wrong."""
    given = connections.settings["default"]
    options = given["OPTIONS"] | {"sslmode": "disable", "gssencmode": "disable"}
    proxied = given | {"HOST": "127.0.0.1", "PORT": proxy.port, "OPTIONS": options}
    # A name of its own: each thread keeps what it has found by one.
    alias = f"proxied {proxy.port}"
    monkeypatch.setitem(connections.settings, alias, proxied)
    settings.PGJOBS = {**settings.PGJOBS, "WORKER_DATABASE": alias}
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.05)
    worker = Remote(api)
    with pytest.MonkeyPatch.context() as patch:
        for connection in pool._free:
            patch.setattr(connection, "answer_seconds", 0.2)
        proxy.freeze()
        try:
            assert problem_of(worker.post("claim")) == "unavailable"
        finally:
            proxy.thaw()
    assert worker.claim() == []
