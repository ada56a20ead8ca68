"""Forty integrations of very different size, and companies with trades to settle."""

from __future__ import annotations

import random
from dataclasses import dataclass

from example_project.integrations.limits import set_plan
from example_project.integrations.models import Company, Integration, Product, Trade

INTEGRATIONS = 40
MIDDLE_SIZED = 3
COMPANIES = 20
TRADES_EACH = 10
BUSY_SHARE = 0.03  # of trades that the exchange refuses at first
UNPRICED = 3  # products without a price, which the outside API refuses for good
NOUNS = ["Mug", "Teapot", "Kettle", "Tin", "Spoon", "Tray", "Bowl", "Filter"]


@dataclass(slots=True)
class World:
    """What the demo has made; the big integration is the first one."""

    integrations: list[Integration]
    products: list[Product]  # those with a price
    unpriced: list[Product]
    trades: list[Trade]  # not stored yet, in the order in which they are to be settled

    @property
    def big(self) -> Integration:
        """The integration with most of the products."""
        return self.integrations[0]

    @property
    def ids(self) -> list[int]:
        """The ids of the integrations."""
        return [integration.pk for integration in self.integrations]


def make_world(run: str, *, products: int) -> World:
    """Store everything; the big integration has so many *products*, the others much fewer."""
    dice = random.Random(products)
    integrations = Integration.objects.bulk_create(
        Integration(name=f"{'Big' if number == 0 else 'Shop'} {run}-{number}")
        for number in range(INTEGRATIONS)
    )
    set_plan(integrations[0], Integration.Plan.ENTERPRISE)
    stored = Product.objects.bulk_create(
        _product(integration, number, dice)
        for integration, size in zip(integrations, _sizes(products, dice), strict=True)
        for number in range(size)
    )
    unpriced = Product.objects.bulk_create(
        Product(integration=integrations[1], title=f"Sample {number}", price=0)
        for number in range(UNPRICED)
    )
    return World(integrations, stored, unpriced, _trades(run, dice))


def _sizes(products: int, dice: random.Random) -> list[int]:
    middle = [max(2, products // 20)] * MIDDLE_SIZED
    rest = INTEGRATIONS - 1 - MIDDLE_SIZED
    small = [dice.randint(max(2, products // 400), max(3, products // 100)) for _ in range(rest)]
    return [products, *middle, *small]


def _product(integration: Integration, number: int, dice: random.Random) -> Product:
    title = f"{dice.choice(NOUNS)} {number}"
    return Product(integration=integration, title=title, price=dice.randint(100, 20_000))


def _trades(run: str, dice: random.Random) -> list[Trade]:
    companies = Company.objects.bulk_create(
        Company(name=f"Company {run}-{number}") for number in range(COMPANIES)
    )
    trades = [
        Trade(
            company=company,
            amount=dice.randint(-10_000, 10_000),
            refusals=int(dice.random() < BUSY_SHARE),
        )
        for company in companies
        for _ in range(TRADES_EACH)
    ]
    dice.shuffle(trades)
    trades[0].refusals = 1  # one at least, with others behind it
    return trades
