"""What is no address of the web is refused as soon as a client gets it.

Else it would be asked for as a host, again and again: an outage may end, this does not.
"""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from tests.clients.support import LANGUAGES, command_of
from tests.helpers import WAIT_SECONDS


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    "url", ["", "localhost", "shop.example/pgjobs/api/", "ftp://shop.example/", "http:///pgjobs/"]
)
def test_what_is_no_address_of_the_web_is_refused_at_once(language: str, url: str) -> None:
    command: list[Any] = [*command_of(language), url, "token", "{}"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert ended.returncode == 1
    assert "expected https://host/..., got " in ended.stderr
