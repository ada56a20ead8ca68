"""The signature of a callback: how it is made, and how a receiver in Python checks it.

The header `Pgjobs-Signature` is `v1=` and the hexadecimal HMAC-SHA256, with the shared secret, of
the text of `Pgjobs-Timestamp`, a dot, and the body. So a body cannot be changed, and what somebody
has recorded is not accepted later.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from typing import Any

from django.core.signing import BadSignature

SIGNATURE = "Pgjobs-Signature"
TIMESTAMP = "Pgjobs-Timestamp"
VERSION = "v1"
# How far the clocks of both sides may be apart, and how long a callback may be on its way.
MAX_AGE_SECONDS = 300.0
# Seconds since 1970 have that many digits for a while.
MAX_DIGITS = 12


def sign(body: bytes, secret: str, *, at: int) -> dict[str, str]:
    """Return the headers that sign *body* at a time, in seconds since 1970."""
    return {TIMESTAMP: str(at), SIGNATURE: f"{VERSION}={_digest(body, secret, str(at))}"}


def verify(
    body: bytes,
    headers: Mapping[str, str],
    *secrets: str,
    max_age: float = MAX_AGE_SECONDS,
) -> dict[str, Any]:
    """Return what a callback says, once it is certain that it was signed with one of *secrets*.

    *body* is the body as it came, *headers* finds a header whatever the case, as those of Django's
    requests. Raise BadSignature if it is not signed, was changed, or its time is more than
    *max_age* seconds away.
    """
    if not secrets or not all(secrets):
        raise ValueError("expected the secret that the sender signs with, got none.")
    if not isinstance(body, bytes | bytearray):
        raise TypeError(f"expected the body to be bytes, as it came, got {type(body).__name__}.")
    for secret in secrets:
        if not isinstance(secret, str):
            raise TypeError(f"expected each secret to be text, got {type(secret).__name__}.")
    at, given = headers.get(TIMESTAMP) or "", headers.get(SIGNATURE) or ""
    if not (at.isascii() and at.isdecimal()) or len(at) > MAX_DIGITS:
        raise BadSignature(f"expected a header {TIMESTAMP} with seconds since 1970.")
    signatures = [part.removeprefix(f"{VERSION}=").encode() for part in given.split()]
    expected = [_digest(body, secret, at).encode() for secret in secrets]
    # No comparison ends early.
    matches = [hmac.compare_digest(one, other) for one in expected for other in signatures]
    if not any(matches):
        raise BadSignature(f"the header {SIGNATURE} is not of this body, time and secret.")
    if abs(time.time() - int(at)) > max_age:
        raise BadSignature(f"it was signed more than {max_age:g} s ago, or is yet to be.")
    told: dict[str, Any] = json.loads(body)
    return told


def _digest(body: bytes, secret: str, at: str) -> str:
    return hmac.new(secret.encode(), at.encode() + b"." + body, hashlib.sha256).hexdigest()
