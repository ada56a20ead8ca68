"""What the demo prints about integrations."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from django.db.models import Sum

from example_project.integrations.demo.checks import done_at, last_trade_at, started_at
from example_project.integrations.demo.play import Played
from example_project.integrations.demo.world import World
from example_project.integrations.limits import concurrency_key
from example_project.integrations.models import Delivery
from example_project.integrations.outside import OutsideApi
from example_project.integrations.syncing import sync_product
from example_project.shop.demo.report import row


def summary(world: World, played: Played, api: OutsideApi) -> Iterator[str]:
    """Yield the lines of the table."""
    syncs = played.jobs.filter(task_path=sync_product.module_path)
    merged = syncs.aggregate(n=Sum("merged_count", default=0))["n"]
    yield row("integrations", len(world.integrations), _ends(world, played))
    yield row("  catalogue syncs", played.catalogue_jobs, "enqueued in 40 statements")
    yield row("  edits", played.edits, f"in {played.editing_seconds:.1f} s, meanwhile")
    yield row("    merged", merged, "into syncs that were waiting")
    yield row("    new syncs", syncs.count() - played.catalogue_jobs, "")
    for name, is_price in (("price", True), ("text", False)):
        waits = _waits(played, is_price=is_price)
        if waits:
            note = f"arrived {median(waits):.1f} s after the last edit (median)"
            yield row(f"    {name} changes", len(waits), note)
    calls = sum(api.answers.values())
    rate = f"in {played.seconds:.1f} s, {calls / max(played.seconds, 0.001):,.0f} per second"
    yield row("  outside calls", calls, rate)
    yield row("    429", api.refused, "above the limit")
    yield row("    503", api.answers[503], "the API was down for a moment")
    begin, end = started_at(world), last_trade_at(world)
    if begin and end:
        note = f"done after {(end - begin).total_seconds():.1f} s"
        yield row("trades", len(world.trades), note)


def _ends(world: World, played: Played) -> str:
    """Say when the small catalogues and the big one were done."""
    begin, done = started_at(world), done_at(played)
    big = done.pop(concurrency_key(world.big.pk), None)
    if begin is None or big is None or not done:
        return ""
    small = (max(done.values()) - begin).total_seconds()
    size = f"{world.big.products.count():,} products"
    after = (big - begin).total_seconds()
    return f"small ones done after {small:.1f} s, the first ({size}) after {after:.1f} s"


def _waits(played: Played, *, is_price: bool) -> list[float]:
    """Return seconds from the last edit of a product until it had arrived, of each product."""
    wanted = [edit for edit in played.corrections if edit.is_price is is_price]
    deliveries = Delivery.objects.filter(product__in=[edit.product_id for edit in wanted])
    rows = list(
        deliveries.order_by("started_at").values_list("product", "started_at", "delivered_at")
    )
    waits = []
    for edit in wanted:
        found = (end for pk, begin, end in rows if pk == edit.product_id and begin >= edit.at)
        if (end := next(found, None)) is not None:
            waits.append((end - edit.at).total_seconds())
    return waits
