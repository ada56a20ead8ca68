"""What the demo will send, and what must come of it: known before anything is sent.

The numbers of customers and webhooks decide the plan; a run only adds its own name to
addresses and references, so that runs on one database do not meet.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from example_project.shop import provider
from example_project.shop.mail import SLOW_DOMAIN
from example_project.shop.models import Order

# SKU, name, price in cents.
PRODUCTS = [
    ("MUG", "Mug", 1290),
    ("TEA", "Green tea, 100 g", 890),
    ("POT", "Teapot", 4900),
    ("BOX", "Tea box, oak", 6450),
    ("SPOON", "Measuring spoon", 590),
]
NAMES = ["Ada", "Alan", "Barbara", "Donald", "Edsger", "Frances", "Grace", "Katherine", "Ken"]
# Most people come alone; partners hand over lists, each imported in one transaction.
BATCH_SIZES = [1] * 30 + [10] * 2 + [25]
ROLLED_BACK_SHARE = 0.05
DUPLICATE_SHARE = 0.10
SLOW_MAILS = 24  # enough to be running at any time, few enough not to hold up the rest
EARLY_ORDERS = 10

Status = Order.Status
# What happens to an order: (share in percent, events as (type, share of the total), outcome).
STORIES = [
    (66, [("payment.captured", 1.0)], Status.PAID),
    (4, [("payment.failed", 1.0)], Status.PAYMENT_FAILED),
    (10, [("payment.failed", 1.0), ("payment.captured", 1.0)], Status.PAID),
    (10, [("payment.captured", 1.0), ("refund.created", 0.25)], Status.PARTLY_REFUNDED),
    (5, [("payment.captured", 1.0), ("refund.created", 1.0)], Status.REFUNDED),
    (3, [("payment.captured", 1.0), ("dispute.opened", 1.0)], Status.DISPUTED),
    (
        2,
        [("payment.captured", 1.0), ("dispute.opened", 1.0), ("dispute.won", 1.0)],
        Status.PAID,
    ),
]
MALFORMED_BODIES = [
    b"payment=captured&amount=12.90",
    b'{"id":"evt_without_data","type":"payment.captured","created_at":"2026-01-01T00:00:00Z"}',
    b"[1, 2, 3",
]


@dataclass(frozen=True, slots=True)
class SignUps:
    """People who sign up in one transaction, and whether that is rolled back."""

    people: list[tuple[str, str]]  # name, e-mail
    rolls_back: bool


@dataclass(frozen=True, slots=True)
class PlannedOrder:
    """An order, the events that will arrive for it, and what it must have come to."""

    reference: str
    items: list[tuple[str, int]]  # SKU, quantity
    status: Order.Status
    total_amount: int
    events: list[dict[str, object]]
    captured_amount: int
    refunded_amount: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything one run sends."""

    sign_ups: list[SignUps]
    orders: list[PlannedOrder]
    early: list[PlannedOrder]  # placed only after their webhooks have arrived
    early_bodies: list[bytes] = field(repr=False)
    bodies: list[bytes] = field(repr=False)  # valid and malformed ones, duplicates included
    duplicates: int
    malformed: int

    @property
    def committed(self) -> list[str]:
        """The addresses of everybody whose sign-up is committed."""
        return list(_addresses(self.sign_ups, rolls_back=False))

    @property
    def rolled_back(self) -> list[str]:
        """The addresses of everybody whose sign-up is rolled back."""
        return list(_addresses(self.sign_ups, rolls_back=True))

    @property
    def webhooks(self) -> int:
        """How many webhooks are delivered."""
        return len(self.early_bodies) + len(self.bodies)


def make_plan(run: str, *, customers: int, webhooks: int) -> Plan:
    """Plan *customers* sign-ups and *webhooks* deliveries for the run named *run*."""
    dice = random.Random(f"{customers} {webhooks}")
    malformed = max(1, webhooks // 500)
    duplicates = max(1, round(webhooks * DUPLICATE_SHARE))
    wanted = max(2, webhooks - malformed - duplicates)
    orders = list(_orders(run, dice, wanted))
    early_count = min(EARLY_ORDERS, len(orders) // 2)
    early, orders = orders[:early_count], orders[early_count:]
    bodies = list(_bodies(orders))
    bodies += dice.choices(bodies, k=duplicates)
    bodies += [MALFORMED_BODIES[n % len(MALFORMED_BODIES)] for n in range(malformed)]
    dice.shuffle(bodies)
    return Plan(
        sign_ups=list(_sign_ups(run, dice, customers)),
        orders=orders,
        early=early,
        early_bodies=list(_bodies(early)),
        bodies=bodies,
        duplicates=duplicates,
        malformed=malformed,
    )


def _sign_ups(run: str, dice: random.Random, customers: int) -> Iterator[SignUps]:
    """Plan transactions; the second is rolled back, so that there always is one."""
    every = max(5, customers // SLOW_MAILS)
    number = transactions = 0
    while number < customers:
        size = dice.choice(BATCH_SIZES) if transactions > 1 else 1
        size = min(size, customers - number)
        people = []
        for _ in range(size):
            name = dice.choice(NAMES)
            # Slow ones late as well as early: whenever the worker is killed, one is running.
            domain = SLOW_DOMAIN if number % every == every - 1 else "example.com"
            people.append((name, f"{name}.{run}.{number}@{domain}".lower()))
            number += 1
        rolls_back = transactions == 1 or dice.random() < ROLLED_BACK_SHARE
        transactions += 1
        yield SignUps(people, rolls_back)


def _orders(run: str, dice: random.Random, events: int) -> Iterator[PlannedOrder]:
    """Plan orders with *events* events in all."""
    prices = {sku: price for sku, _, price in PRODUCTS}
    number = 0
    while events > 0:
        [(_, story, status)] = dice.choices(STORIES, weights=[share for share, _, _ in STORIES])
        if len(story) > events:
            _, story, status = STORIES[0]
        skus = dice.sample(sorted(prices), k=dice.choice([1, 1, 1, 2, 3]))
        items = [(sku, dice.choice([1, 1, 2, 4])) for sku in skus]
        total = sum(prices[sku] * quantity for sku, quantity in items)
        amounts = Counter[str]()
        for event_type, share in story:
            amounts[event_type] += round(total * share)
        reference = f"R-{run.upper()}-{number}"
        yield PlannedOrder(
            reference=reference,
            items=items,
            status=status,
            total_amount=total,
            events=_events(reference, total, story),
            captured_amount=amounts["payment.captured"],
            refunded_amount=amounts["refund.created"],
        )
        events -= len(story)
        number += 1


def _events(reference: str, total: int, story: list[tuple[str, float]]) -> list[dict[str, object]]:
    # One minute apart: the provider's times, not the order of arrival, tell what came first.
    start = datetime.now(UTC) - timedelta(minutes=len(story))
    return [
        provider.build_event(
            event_type,
            order_reference=reference,
            amount=round(total * share),
            occurred_at=start + timedelta(minutes=minute),
        )
        for minute, (event_type, share) in enumerate(story)
    ]


def _bodies(orders: list[PlannedOrder]) -> Iterator[bytes]:
    return (provider.encode(event) for order in orders for event in order.events)


def _addresses(sign_ups: list[SignUps], *, rolls_back: bool) -> Iterator[str]:
    return (
        address
        for transaction in sign_ups
        if transaction.rolls_back is rolls_back
        for _, address in transaction.people
    )
