"""The signature of a callback, as a receiver checks it."""

from __future__ import annotations

import hashlib
import hmac
import time
from typing import Any

import pytest
from django.core.signing import BadSignature
from django.http.request import HttpHeaders

from django_pgjobs.http.signatures import sign, verify
from tests.http.receivers import SECRET

BODY = b'{"id":"17"}'


def signed(**changes: Any) -> dict[str, str]:
    """Return the headers of a body that was signed now."""
    return sign(BODY, SECRET, at=int(time.time())) | changes


def test_what_was_signed_is_told() -> None:
    assert verify(BODY, signed(), SECRET) == {"id": "17"}
    # As a server gives it that has put it together from parts.
    assert verify(bytearray(BODY), signed(), SECRET) == {"id": "17"}


def test_it_is_what_the_page_says() -> None:
    """HMAC-SHA256 over timestamp, dot and body."""
    expected = hmac.new(SECRET.encode(), b"1790000000." + BODY, hashlib.sha256).hexdigest()
    assert sign(BODY, SECRET, at=1_790_000_000) == {
        "Pgjobs-Timestamp": "1790000000",
        "Pgjobs-Signature": f"v1={expected}",
    }


def test_headers_of_a_request_are_understood() -> None:
    environment = {
        f"HTTP_{name.upper().replace('-', '_')}": value for name, value in signed().items()
    }
    assert verify(BODY, HttpHeaders(environment), SECRET) == {"id": "17"}


def test_a_receiver_that_changes_its_secret_knows_both() -> None:
    assert verify(BODY, signed(), "the new one, which nobody signs with yet", SECRET)


@pytest.mark.parametrize("secrets", [(), ("",), (SECRET, "")])
def test_there_has_to_be_a_secret(secrets: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="secret"):
        verify(BODY, signed(), *secrets)


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (BODY + b" ", signed()),
        (BODY, {}),
        (BODY, signed(**{"Pgjobs-Signature": ""})),
        (BODY, signed(**{"Pgjobs-Signature": "v1="})),
        (BODY, signed(**{"Pgjobs-Signature": "v1=ünglücklich"})),
        (BODY, signed(**{"Pgjobs-Timestamp": ""})),
        (BODY, signed(**{"Pgjobs-Timestamp": "1790000000"})),
        (BODY, signed(**{"Pgjobs-Timestamp": "9" * 400})),
        (BODY, signed(**{"Pgjobs-Timestamp": "-5"})),
        (BODY, signed(**{"Pgjobs-Timestamp": "१७९००"})),
        (BODY, sign(BODY, "the secret of somebody else", at=int(time.time()))),
        (BODY, sign(BODY, SECRET, at=int(time.time()) - 3_600)),
        (BODY, sign(BODY, SECRET, at=int(time.time()) + 3_600)),
    ],
)
def test_what_was_changed_recorded_or_made_up_is_refused(
    body: bytes, headers: dict[str, str]
) -> None:
    with pytest.raises(BadSignature):
        verify(body, headers, SECRET)
