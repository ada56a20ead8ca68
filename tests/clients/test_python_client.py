"""The client for Python, as a module: what no server and no signal brings about."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

CLIENT = Path(__file__).parents[2] / "clients" / "python" / "pgjobs_worker.py"


class Server:
    """Gives one job to whoever claims."""

    def call(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """Answer."""
        if path == "workers":
            return {"worker": "1", "heartbeat_seconds": 60}
        given = {"assignment": "a", "job": "1", "task": "t", "seconds_left": None}
        return {"assignments": [given | {"args": [], "kwargs": {}}]}


@pytest.fixture
def client() -> ModuleType:
    """The module, as somebody has copied it."""
    spec = importlib.util.spec_from_file_location("copied_client", CLIENT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_job_that_gets_no_thread_is_not_held(
    client: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would be named in each heartbeat, and nobody would ever run it."""

    def refuse(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    worker = client.Worker("http://127.0.0.1:1/", "token")
    worker.task("t")(lambda job: None)
    monkeypatch.setattr(client, "start", refuse)
    with pytest.raises(RuntimeError):
        worker._claim(Server())
    assert not worker._jobs
