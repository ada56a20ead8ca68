"""Payments: what the webhook enqueues, and the task that makes sense of it later."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django_pgjobs import Discard, Retry, current_job, task
from example_project.shop.events import MalformedEventError, ProviderEvent, parse_event
from example_project.shop.models import Order, PaymentEvent

# Waits of 2, 4, 8 ... 300 s between attempts: about half an hour in all.
UNKNOWN_ORDER_ATTEMPTS = 13
UNKNOWN_ORDER_MAX_SECONDS = 300


def receive_event(body: bytes) -> str:
    """Store a webhook's body as a job, and nothing else; return the job's id.

    Not even the JSON is looked at: whatever is wrong with it is found where it can be
    seen, retried and corrected, and the provider has its answer in a millisecond.
    Raise ValueError if the body is not text that can be stored.
    """
    return apply_payment_event.enqueue(body=body.decode()).id


@task(queue_name="payments", timeout=30, atomic=True)
def apply_payment_event(body: str) -> str:
    """Apply one event of the payment provider to its order.

    Return "applied", "duplicate" (this event was applied before) or "ignored" (a type the
    shop has no use for). With `atomic=True` the changes commit together with the job's
    completion, so an attempt that dies half-way leaves nothing behind. That makes one
    *job* happen once; two deliveries of one event are two jobs, told apart by event id.
    """
    try:
        event = parse_event(body)
    except MalformedEventError as error:
        raise Discard(f"malformed event: {error}") from error
    if event is None:
        return "ignored"
    # The lock makes two events of one order wait for each other, so the second one sees
    # what the first has written.
    order = Order.objects.select_for_update().filter(reference=event.order_reference).first()
    if order is None:
        raise _unknown_order(event)
    if event.currency != order.currency:
        raise Discard(f"expected an amount in {order.currency}, got {event.currency}")
    known = list(order.payment_events.all())
    if any(other.event_id == event.id for other in known):
        return "duplicate"
    _settle(order, [*known, _record(event, order)])
    return "applied"


@task(queue_name="payments", timeout=30, atomic=True)
def settle_order(order_id: int) -> str:
    """Work out again what an order's events come to; return its status.

    For people, after somebody has corrected an event or the order by hand.
    """
    order = Order.objects.select_for_update().get(pk=order_id)
    _settle(order, order.payment_events.all())
    return order.status


@dataclass(frozen=True, slots=True)
class Settlement:
    """What an order's payment has come to; amounts in minor units."""

    status: Order.Status
    captured_amount: int
    refunded_amount: int


def settlement(total_amount: int, events: Iterable[PaymentEvent]) -> Settlement:
    """Say what *events* mean for an order of *total_amount*.

    The answer depends on the events, not on the order in which they arrived: webhooks
    overtake each other, and a refund may come in before the payment it gives back.
    """
    events = sorted(events, key=lambda event: event.occurred_at)
    types = [event.type for event in events]
    captured = sum(event.amount for event in events if event.type == "payment.captured")
    refunded = sum(event.amount for event in events if event.type == "refund.created")
    disputes = [event_type for event_type in types if event_type.startswith("dispute.")]
    if disputes and disputes[-1] == "dispute.opened":
        status = Order.Status.DISPUTED
    elif disputes and disputes[-1] == "dispute.lost":
        status = Order.Status.REFUNDED
    elif captured < total_amount:
        failed = not captured and "payment.failed" in types
        status = Order.Status.PAYMENT_FAILED if failed else Order.Status.PLACED
    elif not refunded:
        status = Order.Status.PAID
    else:
        whole = refunded >= captured
        status = Order.Status.REFUNDED if whole else Order.Status.PARTLY_REFUNDED
    return Settlement(status, captured, refunded)


def _unknown_order(event: ProviderEvent) -> Exception:
    """Ask for another attempt for a while: the webhook may have overtaken the checkout."""
    attempt = current_job().attempt
    if attempt >= UNKNOWN_ORDER_ATTEMPTS:
        return Discard(f"no order {event.order_reference} after {attempt} attempts")
    wait = min(2**attempt, UNKNOWN_ORDER_MAX_SECONDS)
    return Retry(f"no order {event.order_reference} yet", after=wait)


def _record(event: ProviderEvent, order: Order) -> PaymentEvent:
    return PaymentEvent.objects.create(
        event_id=event.id,
        type=event.type,
        order=order,
        payment_id=event.payment_id,
        amount=event.amount,
        currency=event.currency,
        card=event.card,
        occurred_at=event.occurred_at,
        job_id=current_job().id,
    )


def _settle(order: Order, events: Iterable[PaymentEvent]) -> None:
    result = settlement(order.total_amount, events)
    order.status = result.status
    order.captured_amount = result.captured_amount
    order.refunded_amount = result.refunded_amount
    order.revision += 1
    order.save(update_fields=["status", "captured_amount", "refunded_amount", "revision"])
