"""Settling trades: of one company one at a time and in order, of many companies side by side."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction
from django.utils import timezone

from django_pgjobs import Retry, current_job, task
from example_project.integrations.models import Company, Trade

BUSY_SECONDS = 0.3


@task(queue_name="trades", concurrency_key="company:{company_id}", timeout=30, atomic=True)
def settle_trade(trade_id: int, company_id: int) -> int:
    """Settle a trade and return the balance after it.

    The balance is read and written without a lock: no other job of the company runs, on no
    worker. One that waits for another attempt holds up the later ones of its company, because
    they are to come after it; other companies go on.
    """
    trade = Trade.objects.get(pk=trade_id, company_id=company_id)
    trade.started_at = timezone.now()
    company = Company.objects.get(pk=company_id)
    if current_job().attempt <= trade.refusals:
        raise Retry("the exchange is busy", after=BUSY_SECONDS)
    trade.balance_after = company.balance + trade.amount
    Company.objects.filter(pk=company_id).update(balance=trade.balance_after)
    trade.settled_at = timezone.now()
    trade.save(update_fields=["balance_after", "started_at", "settled_at"])
    return trade.balance_after


def record_trades(trades: Sequence[Trade]) -> list[str]:
    """Store *trades*, to be settled in this order; return the ids of the jobs.

    Companies whose trades come from several places at once need an order among these first,
    such as a lock on the company's row: jobs keep the order in which they were enqueued.
    """
    with transaction.atomic():
        stored = Trade.objects.bulk_create(trades)
        return settle_trade.enqueue_many(
            {"trade_id": trade.pk, "company_id": trade.company_id} for trade in stored
        )
