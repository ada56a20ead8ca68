"""What happens: all catalogues at once, people who edit meanwhile, trades, a comparison."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from django.db import transaction
from django.db.models import Max, QuerySet
from django.utils import timezone

from django_pgjobs.models import ConcurrencyLimit, Job
from example_project.integrations.demo.world import World
from example_project.integrations.syncing import compare_catalogue, edit_product, resync
from example_project.integrations.trades import record_trades
from example_project.shop.demo.feed import DemoError
from example_project.shop.demo.progress import Progress

# Fewer than the tasks declare, so that the demo's few threads come to it.
SYNCS_AT_A_TIME = 5
POLL_SECONDS = 0.2
STALL_SECONDS = 20
EDITS_EACH = 5  # somebody who edits a product does not get it right at once
PRICE_SHARE = 0.4
EDIT_SECONDS = 0.002


class Correction(NamedTuple):
    """A product that was edited, its price or its text, and when the last edit was there."""

    product_id: int
    is_price: bool
    at: datetime


@dataclass(slots=True)
class Played:
    """What was done, for the checks."""

    after_job: int  # jobs with higher ids are ours
    last_catalogue_job: int = 0
    catalogue_jobs: int = 0
    edits: int = 0
    corrections: list[Correction] = field(default_factory=list)
    editing_seconds: float = 0.0
    seconds: float = 0.0

    @property
    def jobs(self) -> QuerySet[Job]:
        """All jobs of integrations and trades since the beginning."""
        return Job.objects.filter(id__gt=self.after_job, queue_name__in=("integrations", "trades"))

    @property
    def untouched(self) -> QuerySet[Job]:
        """The syncs of catalogues that no edit put off or hurried."""
        return self.jobs.filter(id__lte=self.last_catalogue_job, merged_count=0)


class Play:
    """One run, with workers that were started before."""

    def __init__(self, world: World, *, edits: int, check_workers: Callable[[], None]) -> None:
        self._world = world
        self._edits = edits
        self._check_workers = check_workers
        newest = Job.objects.aggregate(id=Max("pk"))["id"] or 0
        self._played = Played(after_job=newest)

    def run(self, progress: Progress) -> Played:
        """Do everything and wait until it is done; raise DemoError if that does not come."""
        started = time.monotonic()
        ConcurrencyLimit.objects.update_or_create(
            pattern="integration:*",
            defaults={"max_running": SYNCS_AT_A_TIME, "note": "made by the demo"},
        )
        self._enqueue()
        self._edit(progress)
        self._wait(progress)
        self._played.seconds = time.monotonic() - started
        for integration in self._world.ids:
            compare_catalogue.enqueue(integration_id=integration)
        self._wait(progress)
        progress.finish(self._played.jobs.count(), "all catalogues compared")
        return self._played

    def _enqueue(self) -> None:
        """Enqueue every catalogue, the big one first, and the trades behind them all."""
        with transaction.atomic():
            for integration in self._world.ids:
                self._played.catalogue_jobs += resync(integration)
            self._played.last_catalogue_job = self._played.jobs.latest("pk").pk
            record_trades(self._world.trades)

    def _edit(self, progress: Progress) -> None:
        """Let somebody correct a product, again and again, and then another one."""
        dice = random.Random(self._edits)
        started = time.monotonic()
        for number in range(self._edits):
            turn = number % EDITS_EACH
            if turn == 0:
                product = dice.choice(self._world.products)
                is_price = dice.random() < PRICE_SHARE
            if is_price:
                edit_product(product.pk, price=dice.randint(100, 20_000))
            else:
                edit_product(product.pk, description=f"Text number {number}")
            self._played.edits += 1
            if turn == EDITS_EACH - 1:
                self._played.corrections.append(Correction(product.pk, is_price, timezone.now()))
                progress.show(self._count_finished(), self._note)
            time.sleep(EDIT_SECONDS)
        self._played.editing_seconds = time.monotonic() - started

    def _wait(self, progress: Progress) -> None:
        """Wait until all of our jobs have finished."""
        changed, before = time.monotonic(), -1
        while left := self._played.jobs.filter(status__in=("ready", "running")).count():
            progress.show(self._count_finished(), self._note)
            self._check_workers()
            if left != before:
                changed, before = time.monotonic(), left
            elif time.monotonic() - changed > STALL_SECONDS:
                raise DemoError(f"no sync or trade finished for {STALL_SECONDS} s; {left} left")
            time.sleep(POLL_SECONDS)

    def _count_finished(self) -> int:
        finished = ("successful", "failed", "cancelled")
        return self._played.jobs.filter(status__in=finished).count()

    def _note(self) -> str:
        unfinished = self._played.jobs.filter(status__in=("ready", "running"))
        keys = unfinished.values("concurrency_key").distinct().count()
        return f"{self._played.edits} edits, {keys} keys with jobs left"
