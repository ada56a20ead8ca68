"""Signatures of webhooks: HMAC-SHA256 over the time and the body.

A header looks like `t=1767225600,v1=<64 hex digits>`. The time is signed too, so that a
captured request cannot be replayed later.
"""

from __future__ import annotations

import hashlib
import hmac
import re

HEADER = "X-Payment-Signature"
TOLERANCE_SECONDS = 300
PATTERN = re.compile(r"t=(?P<time>[0-9]{1,12}),v1=(?P<digest>[0-9a-f]{64})")


class BadSignatureError(Exception):
    """The signature is missing, malformed, wrong or too old."""


def sign(body: bytes, secret: str, now: float) -> str:
    """Return the header for *body*, signed at *now* (seconds since 1970)."""
    return f"t={int(now)},v1={_digest(body, secret, int(now))}"


def verify(body: bytes, header: str, secret: str, now: float) -> None:
    """Raise BadSignatureError unless *header* signs *body* and is at most five minutes old."""
    match = PATTERN.fullmatch(header)
    if match is None:
        raise BadSignatureError(f"expected {HEADER}: t=<seconds>,v1=<digest>")
    signed_at = int(match["time"])
    if not hmac.compare_digest(match["digest"], _digest(body, secret, signed_at)):
        raise BadSignatureError("the signature does not fit the body")
    if abs(now - signed_at) > TOLERANCE_SECONDS:
        raise BadSignatureError(f"the signature is older than {TOLERANCE_SECONDS} s")


def _digest(body: bytes, secret: str, signed_at: int) -> str:
    message = str(signed_at).encode() + b"." + body
    return hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()
