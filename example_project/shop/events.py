"""The payment provider's events: from the text of a webhook to values we can trust."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

# Event type -> the part of the payload's `data` that holds the event's amount.
AMOUNT_OF = {
    "payment.captured": "payment",
    "payment.failed": "payment",
    "refund.created": "refund",
    "dispute.opened": "dispute",
    "dispute.won": "dispute",
    "dispute.lost": "dispute",
}
MAX_TEXT = 64  # characters, as long as the longest column it may end in
MAX_AMOUNT = 2**31 - 1  # cents, what Order and PaymentEvent can hold


class MalformedEventError(ValueError):
    """The body is not an event of this provider, and never will be."""


@dataclass(frozen=True, slots=True)
class ProviderEvent:
    """One event, checked."""

    id: str
    type: str
    occurred_at: datetime
    order_reference: str
    payment_id: str
    amount: int  # minor units
    currency: str
    card: str  # such as "visa *4242", "" unless paid by card


def parse_event(body: str) -> ProviderEvent | None:
    """Read a webhook's body; return None for event types the shop has no use for.

    Raise MalformedEventError, naming the value, if the body is not what the provider documents.
    """
    try:
        payload = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise MalformedEventError(f"expected JSON, got {body[:40]!r}: {error}") from error
    event_type = _text(payload, "type")
    if event_type not in AMOUNT_OF:
        return None
    subject = AMOUNT_OF[event_type]
    return ProviderEvent(
        id=_text(payload, "id"),
        type=event_type,
        occurred_at=_instant(payload, "created_at"),
        order_reference=_text(payload, "data", "payment", "order", "reference"),
        payment_id=_text(payload, "data", "payment", "id"),
        amount=_amount(payload, "data", subject, "amount", "value"),
        currency=_currency(payload, "data", subject, "amount", "currency"),
        card=_card(payload),
    )


def _value(payload: object, path: tuple[str, ...]) -> Any:
    value = payload
    for key in path:
        if not isinstance(value, dict) or key not in value:
            raise MalformedEventError(f"expected {'.'.join(path)}, got nothing there")
        value = value[key]
    return value


def _text(payload: object, *path: str) -> str:
    value = _value(payload, path)
    if not (isinstance(value, str) and 0 < len(value) <= MAX_TEXT and value.isprintable()):
        raise MalformedEventError(
            f"expected {'.'.join(path)} to be text of 1 to {MAX_TEXT} characters, "
            f"got {repr(value)[:80]}"
        )
    return value


def _amount(payload: object, *path: str) -> int:
    value = _value(payload, path)
    if type(value) is not int or not 0 <= value <= MAX_AMOUNT:
        raise MalformedEventError(
            f"expected {'.'.join(path)} to be a whole number from 0 to {MAX_AMOUNT}, "
            f"got {repr(value)[:80]}"
        )
    return value


def _currency(payload: object, *path: str) -> str:
    value = _text(payload, *path)
    if not (len(value) == 3 and value.isascii() and value.isupper()):
        raise MalformedEventError(f"expected {'.'.join(path)} like EUR, got {value!r}")
    return value


def _instant(payload: object, *path: str) -> datetime:
    value = _text(payload, *path)
    try:
        instant = datetime.fromisoformat(value)
    except ValueError as error:
        raise MalformedEventError(
            f"expected {'.'.join(path)} in ISO 8601, got {value!r}"
        ) from error
    if instant.tzinfo is None:
        raise MalformedEventError(f"expected {'.'.join(path)} with a time zone, got {value!r}")
    return instant


def _card(payload: object) -> str:
    method = _value(payload, ("data", "payment", "method"))
    if not isinstance(method, dict) or method.get("type") != "card":
        return ""
    path = ("data", "payment", "method", "card")
    return f"{_text(payload, *path, 'brand')[:20]} *{_text(payload, *path, 'masked')[-4:]}"
