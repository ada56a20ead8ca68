"""The payment provider's side: the webhooks it would send, for the demo and the tests."""

from __future__ import annotations

import json
import secrets
from datetime import UTC, datetime
from typing import Any

from example_project.shop.events import AMOUNT_OF

API_VERSION = "2026-03-01"


def build_event(
    event_type: str,
    *,
    order_reference: str,
    amount: int,
    currency: str = "EUR",
    payment_id: str | None = None,
    event_id: str | None = None,
    occurred_at: datetime | None = None,
) -> dict[str, Any]:
    """Return an event as the provider sends it; *amount* is in minor units."""
    subject = AMOUNT_OF[event_type]
    money = {"value": amount, "currency": currency}
    data: dict[str, Any] = {
        "payment": _payment(event_type, order_reference, payment_id, money),
    }
    if subject == "refund":
        data["refund"] = {
            "id": f"re_{secrets.token_hex(8)}",
            "amount": money,
            "reason": "requested_by_customer",
            "status": "succeeded",
        }
    elif subject == "dispute":
        data["dispute"] = {
            "id": f"dp_{secrets.token_hex(8)}",
            "amount": money,
            "reason": "product_not_received",
            "evidence_due_by": "2030-01-01T00:00:00Z",
        }
    return {
        "id": event_id or f"evt_{secrets.token_hex(12)}",
        "object": "event",
        "api_version": API_VERSION,
        "created_at": (occurred_at or datetime.now(UTC)).isoformat(),
        "livemode": False,
        "type": event_type,
        "data": data,
    }


def encode(event: dict[str, Any]) -> bytes:
    """Return the body of the webhook for *event*."""
    return json.dumps(event, separators=(",", ":")).encode()


def _payment(
    event_type: str, order_reference: str, payment_id: str | None, money: dict[str, Any]
) -> dict[str, Any]:
    failed = event_type == "payment.failed"
    return {
        "id": payment_id or f"pay_{secrets.token_hex(8)}",
        "object": "payment",
        "status": "failed" if failed else "captured",
        "failure": {"code": "card_declined", "message": "Declined."} if failed else None,
        "amount": money,
        "order": {"reference": order_reference, "channel": "web"},
        "method": {
            "type": "card",
            "card": {
                "brand": "visa",
                "masked": "**** **** **** 4242",
                "exp_month": 4,
                "exp_year": 2031,
                "three_d_secure": {"version": "2.2.0", "status": "authenticated"},
            },
        },
        "billing": {"country": "DE", "postal_code": "10115"},
        "fees": [{"type": "processing", "amount": {"value": 35, "currency": "EUR"}}],
    }
