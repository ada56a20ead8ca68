"""Sending what was planned, through the shop's own code: sign_up() and the webhook's view."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from django.conf import settings
from django.db import transaction
from django.test import Client
from django.urls import reverse

from example_project.shop.demo.plan import PRODUCTS, Plan, PlannedOrder, SignUps
from example_project.shop.demo.progress import Progress
from example_project.shop.mail import SLOW_DOMAIN
from example_project.shop.models import Customer, Order, OrderLine, Product
from example_project.shop.signatures import HEADER, sign
from example_project.shop.signup import sign_up


class RollBackError(Exception):
    """Raised in a transaction to roll it back on purpose."""


class DemoError(Exception):
    """The demo cannot go on; the message says why."""


@dataclass(slots=True)
class Sent:
    """The ids of the jobs that were enqueued, and of those that were rolled back."""

    sign_up_jobs: list[int] = field(default_factory=list)
    slow_jobs: list[int] = field(default_factory=list)  # those of sign_up_jobs that take long
    rolled_back_jobs: list[int] = field(default_factory=list)
    early_jobs: list[int] = field(default_factory=list)
    webhook_jobs: list[int] = field(default_factory=list)
    customers: list[int] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def jobs(self) -> list[int]:
        """Every job that exists, in the order of enqueueing."""
        return self.early_jobs + self.sign_up_jobs + self.webhook_jobs


def feed(plan: Plan, progress: Progress) -> Sent:
    """Send all of *plan*; return what was enqueued."""
    sent = Sent()
    started = time.monotonic()
    # These are faster than the shop's own checkout: their orders are placed later.
    client = Client()
    sent.early_jobs = [_deliver(client, body) for body in plan.early_bodies]
    for sign_ups in plan.sign_ups:
        _commit_or_not(sign_ups, sent)
        progress.show(len(sent.sign_up_jobs) + len(sent.rolled_back_jobs), "sign-ups")
    place_orders(plan.orders, sent.customers)
    signed_up = len(sent.sign_up_jobs) + len(sent.rolled_back_jobs)
    for body in plan.bodies:
        sent.webhook_jobs.append(_deliver(client, body))
        progress.show(signed_up + len(sent.webhook_jobs), "webhooks")
    sent.seconds = time.monotonic() - started
    progress.finish(signed_up + plan.webhooks)
    return sent


def create_products() -> None:
    """Create the shop's products unless they exist."""
    Product.objects.bulk_create(
        [Product(sku=sku, name=name, unit_amount=price) for sku, name, price in PRODUCTS],
        ignore_conflicts=True,
    )


def place_orders(planned: Sequence[PlannedOrder], customers: Sequence[int]) -> None:
    """Place the *planned* orders, one customer after the other."""
    products = {product.sku: product for product in Product.objects.all()}
    with transaction.atomic():
        orders = Order.objects.bulk_create(
            Order(reference=plan.reference, customer_id=customer, total_amount=plan.total_amount)
            for plan, customer in zip(planned, itertools.cycle(customers), strict=False)
        )
        OrderLine.objects.bulk_create(
            OrderLine(
                order=order,
                product=products[sku],
                quantity=quantity,
                unit_amount=products[sku].unit_amount,
            )
            for order, plan in zip(orders, planned, strict=True)
            for sku, quantity in plan.items
        )


def _commit_or_not(sign_ups: SignUps, sent: Sent) -> None:
    """Sign people up in one transaction, and roll it back if that is the plan."""
    customers = []
    try:
        with transaction.atomic():
            for name, email in sign_ups.people:
                customers.append(sign_up(name=name, email=email))
            if sign_ups.rolls_back:
                raise RollBackError
    except RollBackError:
        sent.rolled_back_jobs += _welcome_jobs(customers)
        return
    sent.customers += [customer.pk for customer in customers]
    sent.sign_up_jobs += _welcome_jobs(customers)
    sent.slow_jobs += _welcome_jobs(
        customer for customer in customers if customer.user.email.endswith(SLOW_DOMAIN)
    )


def _welcome_jobs(customers: Iterable[Customer]) -> list[int]:
    return [customer.welcome_job_id for customer in customers if customer.welcome_job_id]


def _deliver(client: Client, body: bytes) -> int:
    """Post *body* to the webhook as the provider would; return the job's id."""
    response = client.post(
        reverse("shop:payment-webhook"),
        body,
        content_type="application/json",
        headers={HEADER: sign(body, settings.SHOP_WEBHOOK_SECRET, time.time())},
        SERVER_NAME="localhost",
    )
    if response.status_code != 202:
        raise DemoError(f"expected the webhook to answer 202, got {response.status_code}")
    return int(response.json()["job"])
