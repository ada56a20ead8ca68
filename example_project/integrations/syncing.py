"""Sending products: edits, the jobs they become, and the whole catalogue again.

A job says which fields of which product have changed; what they are now is read when it runs.
So edits of a product that come quickly after each other become one job and one call, and the
call carries nothing but what has changed.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from django_pgjobs import acquire, current_job, task
from example_project.integrations import outside_client
from example_project.integrations.limits import SYNCS_AT_A_TIME, rate_key
from example_project.integrations.models import Delivery, Product

SENT = ("title", "description", "price")
# A sync waits until a product was left alone for so long, but never longer than MAX_WAIT.
WINDOW = timedelta(seconds=1)
MAX_WAIT = timedelta(seconds=3)
# A wrong price costs money, a wrong description does not.
PRICE_PRIORITY = 50
# Seconds; the last one repeats. Eleven attempts are the first one and ten retries.
BACKOFF = [0, 10, 30, 60, 120, 300, 600, 900, 1200, 1800]
# How long to wait for a turn within a job before the job gives its slot to another.
LONGEST_TURN_SECONDS = 20


@task(
    queue_name="integrations",
    concurrency_key="integration:{integration_id}",
    concurrency_limit=SYNCS_AT_A_TIME,
    # One job is one call: so the job itself starts when the limit allows it, and no thread
    # waits for that.
    rate_limit="outside-api:{integration_id}",
    unique_key="product:{integration_id}:{product_id}",
    on_conflict="merge",
    max_wait=MAX_WAIT,
    max_attempts=11,
    backoff=BACKOFF,
    timeout=60,
    discard_on=(Product.DoesNotExist,),
)
def sync_product(integration_id: int, product_id: int, fields: list[str]) -> int:
    """Send what a product's *fields* are now; return the revision that was sent.

    The lists of jobs that meet are united. A job that runs is not changed any more: an edit
    from then on is a job of its own, which may even overtake this one. Hence the revision, by
    which the other side knows the newer value of a field.
    """
    started_at = timezone.now()
    product = Product.objects.get(pk=product_id, integration_id=integration_id)
    names = [name for name in SENT if name in fields]
    values = {name: getattr(product, name) for name in names}
    outside_client.send_product(
        integration_id, product_id, revision=product.revision, fields=values
    )
    Delivery.objects.create(
        integration_id=integration_id,
        product=product,
        fields=names,
        price=product.price,
        revision=product.revision,
        job_id=current_job().id,
        started_at=started_at,
        delivered_at=timezone.now(),
    )
    return product.revision


@task(
    queue_name="integrations",
    concurrency_key="integration:{integration_id}",
    concurrency_limit=SYNCS_AT_A_TIME,
    unique_key="compare:{integration_id}",
    max_attempts=11,
    backoff=BACKOFF,
    timeout=300,
)
def compare_catalogue(integration_id: int) -> dict[str, int]:
    """Ask for all prices on the other side, and sync the products that differ.

    Nobody knows beforehand how many calls that takes: so it takes its turn before each, of the
    same limit as `sync_product`, in the order of asking.
    """
    prices: dict[int, int] = {}
    calls, after = 0, 0
    while page := _next_prices(integration_id, after):
        prices |= page
        calls, after = calls + 1, max(page)
    ours = Product.objects.filter(integration_id=integration_id, price__gt=0)
    different = [pk for pk, price in ours.values_list("pk", "price") if prices.get(pk) != price]
    sync_product.enqueue_many(
        {"integration_id": integration_id, "product_id": pk, "fields": list(SENT)}
        for pk in different
    )
    return {"calls": calls + 1, "products": len(prices), "different": len(different)}


def _next_prices(integration_id: int, after: int) -> dict[int, int]:
    acquire(rate_key(integration_id), timeout=LONGEST_TURN_SECONDS)
    return outside_client.get_prices(integration_id, after=after)


def edit_product(product_id: int, **changes: Any) -> str:
    """Change a product and let the other side know; return the id of the job that will tell.

    The edit and its job commit together. Before the window is over the job is the one of the
    edit before.
    """
    unknown = sorted(changes.keys() - set(SENT))
    if unknown or not changes:
        raise ValueError(f"expected changes of some of {SENT}, got {unknown or 'none'}.")
    with transaction.atomic():
        product = Product.objects.select_for_update().get(pk=product_id)
        for name, value in changes.items():
            setattr(product, name, value)
        product.revision += 1
        product.save(update_fields=[*changes, "revision"])
        sync = sync_product.using(
            run_after=WINDOW,
            priority=PRICE_PRIORITY if "price" in changes else 0,
        )
        job = sync.enqueue(
            integration_id=product.integration_id, product_id=product.pk, fields=sorted(changes)
        )
    return job.id


def resync(integration_id: int) -> int:
    """Send the whole catalogue again; return how many jobs that is.

    One statement, however many products there are. Those that wait to be synced anyway are
    met by it and do not become a second job.
    """
    products = Product.objects.filter(integration_id=integration_id).order_by("pk")
    return sync_product.enqueue_from(
        products, integration_id=integration_id, product_id=F("pk"), fields=list(SENT)
    )
