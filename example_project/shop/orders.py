"""Placing orders."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from django.db import transaction

from example_project.shop.models import Customer, Order, OrderLine, Product

# Without letters and digits that look alike.
REFERENCE_ALPHABET = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"


def new_reference() -> str:
    """Make up an order reference that is easy to read out and hard to guess."""
    return "R-" + "".join(secrets.choice(REFERENCE_ALPHABET) for _ in range(8))


def place_order(customer: Customer, items: Sequence[tuple[Product, int]]) -> Order:
    """Create an order of *items*, pairs of product and quantity."""
    if not items:
        raise ValueError("expected at least one item, got none. Choose a product.")
    with transaction.atomic():
        order = Order.objects.create(
            reference=new_reference(),
            customer=customer,
            total_amount=sum(product.unit_amount * quantity for product, quantity in items),
        )
        OrderLine.objects.bulk_create(
            OrderLine(
                order=order,
                product=product,
                quantity=quantity,
                unit_amount=product.unit_amount,
            )
            for product, quantity in items
        )
    return order
