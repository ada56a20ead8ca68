"""Amounts as people write them."""

from __future__ import annotations

from django import template

register = template.Library()


@register.filter
def money(amount: int, currency: str) -> str:
    """Write *amount*, in cents, with its currency: `12.90 EUR`."""
    return f"{amount / 100:,.2f} {currency}"
