"""The shop: customers sign up, order, and pay through a payment provider's webhooks."""
