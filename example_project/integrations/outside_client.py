"""Calling the outside API, and what its answers mean for a job."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings

from django_pgjobs import Discard, Retry

# Shorter than the timeouts of the tasks: a thread cannot be interrupted while it waits here.
TIMEOUT_SECONDS = 10
# What may go well next time: too many calls, too slow, or something broke over there.
TEMPORARY = frozenset({408, 425, 429, 500, 502, 503, 504})
# An answer that tells us to stay away for longer is not believed.
LONGEST_RETRY_SECONDS = 3600
PAGE_SIZE = 100


def send_product(
    integration_id: int, product_id: int, *, revision: int, fields: dict[str, Any]
) -> None:
    """Send the *fields* of a product; what is older than what they have is ignored there."""
    body = {"revision": revision, "fields": fields}
    call("PUT", f"/integrations/{integration_id}/products/{product_id}", body)


def get_prices(integration_id: int, *, after: int) -> dict[int, int]:
    """Return product id -> price of the next PAGE_SIZE products after the id *after*."""
    path = f"/integrations/{integration_id}/products?after={after}&limit={PAGE_SIZE}"
    return {int(row["id"]): int(row["price"]) for row in call("GET", path)}


def call(method: str, path: str, body: object = None) -> Any:
    """Call the outside API and return what it says.

    Raise Retry if it may go well later, Discard if it never will, and OSError or HTTPException
    if there is no answer: the backoff of the task decides then.
    """
    address = urlsplit(settings.OUTSIDE_API_URL)
    # The demo's API is on this machine, so no proxy is asked. A new connection per call costs
    # little here; over a distance keep one per thread.
    connection = http.client.HTTPConnection(
        address.hostname or "", address.port, timeout=TIMEOUT_SECONDS
    )
    try:
        payload = None if body is None else json.dumps(body)
        connection.request(method, path, payload, {"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read()
    finally:
        connection.close()
    if response.status >= 300:
        raise verdict(response.status, response.headers.get("Retry-After"), text)
    return json.loads(text) if text else None


def verdict(status: int, retry_after: str | None, text: bytes) -> Exception:
    """Return what an attempt ends with that got the answer *status*."""
    said = text[:200].decode(errors="replace").strip()
    reason = f"the outside API answered {status}: {said}".removesuffix(": ")
    if status not in TEMPORARY:
        return Discard(reason)
    return Retry(reason, after=seconds_to_wait(retry_after))


def seconds_to_wait(retry_after: str | None) -> float | None:
    """Return what a Retry-After header asks for; None, for the task's backoff, if it is none.

    Only the form with seconds: the one with a date needs clocks that agree.
    """
    text = (retry_after or "").strip()
    if not (text.isascii() and text.isdecimal()):
        return None
    return float(min(int(text[:10]), LONGEST_RETRY_SECONDS))
