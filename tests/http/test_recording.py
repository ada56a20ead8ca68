"""The thread of a web process that writes what workers over HTTP ran."""

from __future__ import annotations

import pytest

from django_pgjobs.http import recording as module
from django_pgjobs.http.recording import Recording
from django_pgjobs.worker.running.tally import Tally
from tests.helpers import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


def test_it_ends_when_there_is_nothing_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would open a connection once a minute, for nobody."""
    monkeypatch.setattr(module, "SPREAD_SECONDS", 0.0)
    tally = Tally()
    monkeypatch.setattr(tally, "next_close", lambda: 0.0)
    recording = Recording(tally)
    for _ in range(2):
        recording.begin()
        wait_until(lambda: recording._thread is None)
