"""Whether what was promised has happened, asked of the database and of the other side."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import groupby, pairwise

from django.db.models import Max, Min, Sum

from django_pgjobs.models import Job
from example_project.integrations import limits
from example_project.integrations.demo.play import SYNCS_AT_A_TIME, Played
from example_project.integrations.demo.world import World
from example_project.integrations.models import Company, Delivery, Product, Trade
from example_project.integrations.outside import OutsideApi
from example_project.integrations.syncing import SENT, compare_catalogue, sync_product
from example_project.integrations.trades import settle_trade
from example_project.shop.demo.checks import Check

# Of the edits, how many may become a sync of their own.
MAX_SYNC_SHARE = 3
# Of the calls, one in so many may be refused: a token is taken a little before the call.
MAX_REFUSED_SHARE = 50
# Of the integrations, how many must not have waited for the big one, if that is big enough to
# tell: a few dozen products are done in no time.
FAIR_SHARE = 0.9
BIG = 400


def check_integrations(world: World, played: Played, api: OutsideApi) -> list[Check]:
    """Return all checks of this part."""
    return [
        *check_products(world, api),
        *check_coalescing(world, played),
        *check_limits(world, api),
        *check_fairness(world, played),
        *check_trades(world, played),
    ]


def check_products(world: World, api: OutsideApi) -> list[Check]:
    """Check that the last value of everything has arrived."""
    products = Product.objects.filter(integration__in=world.ids, price__gt=0)
    right = 0
    for product in products:
        ours = {name: getattr(product, name) for name in SENT}
        right += api.product(product.integration_id, product.pk) == ours
    return [Check("products whose last price and text arrived", len(world.products), right)]


def check_coalescing(world: World, played: Played) -> list[Check]:
    """Check that no edit got lost, and that most did not need a call of their own."""
    syncs = played.jobs.filter(task_path=sync_product.module_path)
    merged = syncs.aggregate(n=Sum("merged_count", default=0))["n"]
    enqueues = played.catalogue_jobs + played.edits
    more = syncs.count() - played.catalogue_jobs
    refused = syncs.filter(status="failed").count()
    compared = Job.objects.filter(
        id__gt=played.after_job, task_path=compare_catalogue.module_path
    ).values_list("result", flat=True)
    different = sum(result["different"] for result in compared if result)
    return [
        Check("syncs and edits merged into them", enqueues, syncs.count() + merged),
        Check("syncs that edits came to", played.edits // MAX_SYNC_SHARE, more, "at most "),
        Check("products refused by the outside API for good", len(world.unpriced), refused),
        Check("catalogues compared afterwards", len(world.integrations), len(compared)),
        Check("products that differ outside", 0, different),
    ]


def check_limits(world: World, api: OutsideApi) -> list[Check]:
    """Check that no integration had more than it may: at a time, and in a second.

    The other side counts the seconds, since it is there that a limit counts.
    """
    deliveries = Delivery.objects.filter(integration__in=world.ids)
    spans = defaultdict(list)
    for key, *span in deliveries.values_list("integration", "started_at", "delivered_at"):
        spans[key].append(tuple(span))
    most = max((most_at_a_time(of_key) for of_key in spans.values()), default=0)
    calls = sum(api.answers.values())
    return [
        Check("most syncs of an integration at a time", SYNCS_AT_A_TIME, most, "at most "),
        Check("calls answered with 429", calls // MAX_REFUSED_SHARE, api.refused, "at most "),
    ]


def check_fairness(world: World, played: Played) -> list[Check]:
    """Check that nobody had to wait for the big integration, which was enqueued first.

    The starts tell: the ends also depend on when the outside API was down.
    """
    if world.big.products.count() < BIG:
        return []
    starts = played.untouched.values_list("concurrency_key").annotate(at=Max("started_at"))
    last = dict(starts)
    big = last.pop(limits.concurrency_key(world.big.pk), None)
    earlier = sum(big is not None and at is not None and at < big for at in last.values())
    least = round(len(last) * FAIR_SHARE)
    return [Check("integrations under way before the big one", least, earlier, "at least ")]


def check_trades(world: World, played: Played) -> list[Check]:
    """Check that each company's trades were settled in order and one at a time."""
    companies = {trade.company_id for trade in world.trades}
    trades = Trade.objects.filter(company__in=companies).order_by("company", "pk")
    settled = crossed = wrong = 0
    balances = dict(Company.objects.filter(pk__in=companies).values_list("pk", "balance"))
    for company, group in groupby(trades, key=lambda trade: trade.company_id):
        in_order = list(group)
        settled += sum(trade.settled_at is not None for trade in in_order)
        crossed += sum(not follows(after, before) for before, after in pairwise(in_order))
        wrong += sum(found != right for found, right in balances_of(in_order))
        wrong += balances[company] != sum(trade.amount for trade in in_order)
    retried = played.jobs.filter(task_path=settle_trade.module_path, attempts__gt=1)
    refused = sum(trade.refusals > 0 for trade in world.trades)
    return [
        Check("trades settled", len(world.trades), settled),
        Check("trades that began before the one before had ended", 0, crossed),
        Check("balances that are not those of the right order", 0, wrong),
        Check("trades that made later ones wait for a retry", refused, retried.count()),
    ]


def done_at(played: Played) -> dict[str, datetime]:
    """Return concurrency key -> when the last sync of its catalogue had ended."""
    ends = played.untouched.values_list("concurrency_key").annotate(at=Max("finished_at"))
    return {str(key): at for key, at in ends if at is not None}


def started_at(world: World) -> datetime | None:
    """Return when the first delivery of all began."""
    deliveries = Delivery.objects.filter(integration__in=world.ids)
    return deliveries.aggregate(at=Min("started_at"))["at"]


def last_trade_at(world: World) -> datetime | None:
    """Return when the last trade was settled."""
    companies = {trade.company_id for trade in world.trades}
    return Trade.objects.filter(company__in=companies).aggregate(at=Max("settled_at"))["at"]


def follows(after: Trade, before: Trade) -> bool:
    """Did *after* begin when *before* had ended?"""
    return bool(after.started_at and before.settled_at and after.started_at >= before.settled_at)


def balances_of(trades: Iterable[Trade]) -> Iterator[tuple[int | None, int]]:
    """Yield the balance found after each trade and the right one."""
    balance = 0
    for trade in trades:
        balance += trade.amount
        yield trade.balance_after, balance


def most_at_a_time(spans: Iterable[tuple[datetime, datetime]]) -> int:
    """Return how many of the (begin, end) hold at the busiest instant."""
    # An end sorts before a begin at the same instant.
    edges = sorted(edge for begin, end in spans for edge in ((begin, 1), (end, -1)))
    running = most = 0
    for _, change in edges:
        running += change
        most = max(most, running)
    return most
