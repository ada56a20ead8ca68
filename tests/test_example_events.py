"""The example shop: reading the payment provider's events, and what they come to."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime, timedelta

import pytest

from example_project.shop import events, payments, provider
from example_project.shop.models import Order, PaymentEvent

DELIVERY_TIME = datetime(2026, 5, 4, 12, 30, tzinfo=UTC)


@pytest.mark.parametrize("event_type", sorted(events.AMOUNT_OF))
def test_an_event_is_read(event_type: str) -> None:
    payload = provider.build_event(
        event_type,
        order_reference="R-1",
        amount=1290,
        payment_id="pay_1",
        event_id="evt_1",
        occurred_at=DELIVERY_TIME,
    )
    assert events.parse_event(json.dumps(payload)) == events.ProviderEvent(
        id="evt_1",
        type=event_type,
        occurred_at=DELIVERY_TIME,
        order_reference="R-1",
        payment_id="pay_1",
        amount=1290,
        currency="EUR",
        card="visa *4242",
    )


def test_event_types_we_have_no_use_for_are_none() -> None:
    assert events.parse_event('{"type": "payout.paid"}') is None


GOOD = provider.build_event("payment.captured", order_reference="R-1", amount=5)


def changed(value: object, *path: str) -> str:
    """Return a good event with *value* at *path*."""
    payload = json.loads(json.dumps(GOOD))
    part = payload
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    return json.dumps(payload)


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ("", "expected JSON"),
        ("[" * 50_000, "expected JSON"),
        ("9" * 5_000, "expected JSON"),
        ("[]", "expected type"),
        ('{"type": 5}', "expected type to be text"),
        ('{"type": "payment.captured"}', "expected id"),
        (changed("x" * 65, "id"), "expected id"),
        (changed("a\0b", "id"), "expected id"),
        (changed("yesterday", "created_at"), "ISO 8601"),
        (changed("2026-05-04T12:30:00", "created_at"), "time zone"),
        (changed({}, "data", "payment", "order"), "data.payment.order.reference"),
        (changed(True, "data", "payment", "amount", "value"), "whole number"),
        (changed(-1, "data", "payment", "amount", "value"), "whole number"),
        (changed(2**31, "data", "payment", "amount", "value"), "whole number"),
        (changed(12.9, "data", "payment", "amount", "value"), "whole number"),
        (changed("euro", "data", "payment", "amount", "currency"), "like EUR"),
        (changed(None, "data", "payment", "method", "card"), "card.brand"),
    ],
)
def test_a_malformed_event_is_named(body: str, named: str) -> None:
    with pytest.raises(events.MalformedEventError, match=named):
        events.parse_event(body)


def test_a_payment_without_a_card_is_read() -> None:
    parsed = events.parse_event(changed({"type": "sepa"}, "data", "payment", "method"))
    assert parsed is not None
    assert parsed.card == ""


STORIES = [
    (["payment.failed"], 100, "payment_failed"),
    (["payment.failed", "payment.captured"], 100, "paid"),
    (["payment.captured"], 99, "placed"),
    (["payment.captured", "refund.created"], 100, "refunded"),
    (["payment.captured", "refund.created", "dispute.opened"], 100, "disputed"),
    (["payment.captured", "dispute.opened", "dispute.won"], 100, "paid"),
    (["payment.captured", "dispute.opened", "dispute.lost"], 100, "refunded"),
]


@pytest.mark.parametrize(("types", "amount", "status"), STORIES)
def test_what_events_come_to_does_not_depend_on_their_order(
    types: list[str], amount: int, status: str
) -> None:
    story = [
        PaymentEvent(type=kind, amount=amount, occurred_at=DELIVERY_TIME + timedelta(minutes=n))
        for n, kind in enumerate(types)
    ]
    for arrival in itertools.permutations(story):
        assert payments.settlement(100, arrival).status == status


def test_a_refund_of_a_part_is_a_part() -> None:
    captured = PaymentEvent(type="payment.captured", amount=100, occurred_at=DELIVERY_TIME)
    refund = PaymentEvent(type="refund.created", amount=30, occurred_at=DELIVERY_TIME)
    result = payments.settlement(100, [refund, captured])
    assert result == payments.Settlement(Order.Status.PARTLY_REFUNDED, 100, 30)
