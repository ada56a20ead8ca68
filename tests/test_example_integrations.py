"""The example's integration service: edits, catalogues and trades, run on the test's connection."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from django_pgjobs.models import Job, RateLimit
from django_pgjobs.testing import run_jobs
from example_project.integrations import limits, outside_client, syncing, trades
from example_project.integrations.models import Company, Delivery, Integration, Product, Trade
from example_project.integrations.outside import OutsideApi
from example_project.integrations.status import status_of
from example_project.integrations.syncing import compare_catalogue, edit_product, resync
from example_project.integrations.trades import record_trades, settle_trade

pytestmark = [pytest.mark.django_db, pytest.mark.urls("example_project.urls")]

BASIC = Integration.Plan.BASIC
ENTERPRISE = Integration.Plan.ENTERPRISE


@pytest.fixture
def api(settings: Any) -> Iterator[OutsideApi]:
    with OutsideApi(limit=10_000) as running:
        settings.OUTSIDE_API_URL = running.url
        yield running


@pytest.fixture
def integration(api: OutsideApi) -> Integration:
    RateLimit.objects.create(name=limits.OUTSIDE_API, count=20, period=1)
    return Integration.objects.create(name="Ada's shop")


@pytest.fixture
def product(integration: Integration) -> Product:
    return Product.objects.create(integration=integration, title="Mug", price=1290)


# --- Edits


def test_edits_of_a_product_coalesce_into_one_sync(product: Product, api: OutsideApi) -> None:
    """S4.6: one call with what has changed, and S4.5: the values are read when it runs."""
    jobs = {
        edit_product(product.pk, title="Big mug"),
        edit_product(product.pk, price=1300),
        edit_product(product.pk, title="Huge mug"),
    }
    [job] = Job.objects.all()
    assert jobs == {str(job.pk)}
    assert job.merged_count == 2
    assert sorted(job.kwargs["fields"]) == ["price", "title"]
    assert run_jobs() == 1
    assert api.product(product.integration_id, product.pk) == {"title": "Huge mug", "price": 1300}
    assert sum(api.answers.values()) == 1
    delivery = Delivery.objects.get()
    assert (delivery.fields, delivery.revision) == (["title", "price"], 4)
    assert (delivery.price, delivery.job_id) == (1300, job.pk)


def test_a_job_says_what_has_changed_and_the_worker_reads_what_it_is(
    product: Product, api: OutsideApi
) -> None:
    """S4.5: no value is in the row, so what was written since without a job is sent, too."""
    edit_product(product.pk, title="Big mug", price=1300)
    stored = Job.objects.get()
    names = {"fields": ["price", "title"]}
    keys = {"integration_id": product.integration_id, "product_id": product.pk}
    assert (stored.args, stored.kwargs) == ([], keys | names)
    assert len(json.dumps(stored.kwargs)) < 100
    Product.objects.update(title="Written by an import")
    run_jobs()
    sent = api.product(product.integration_id, product.pk)
    assert sent == {"title": "Written by an import", "price": 1300}


def test_only_what_has_changed_is_sent(product: Product, api: OutsideApi) -> None:
    """S4.4: delta updates."""
    edit_product(product.pk, description="Blue.")
    run_jobs()
    assert api.product(product.integration_id, product.pk) == {"description": "Blue."}


def test_a_sync_waits_for_the_window_but_not_for_ever(product: Product) -> None:
    edit_product(product.pk, title="Big mug")
    job = Job.objects.get()
    assert job.due_at == job.enqueued_at + syncing.WINDOW
    aged = job.enqueued_at - timedelta(minutes=1)
    Job.objects.update(enqueued_at=aged)
    edit_product(product.pk, title="Huge mug")
    job.refresh_from_db()
    assert job.run_after == aged + syncing.MAX_WAIT
    assert job.due_at is None


def test_a_price_raises_the_priority_of_the_sync_it_is_merged_into(product: Product) -> None:
    """S4.19, and a later text does not take it back."""
    edit_product(product.pk, title="Big mug")
    assert Job.objects.get().priority == 0
    edit_product(product.pk, price=1300)
    edit_product(product.pk, title="Huge mug")
    assert Job.objects.get().priority == syncing.PRICE_PRIORITY


def test_a_price_overtakes_the_catalogue(integration: Integration, product: Product) -> None:
    others = [Product(integration=integration, title=f"Tin {n}", price=1) for n in range(5)]
    Product.objects.bulk_create(others)
    resync(integration.pk)
    last = Product.objects.latest("pk")
    edit_product(last.pk, price=2)
    run_jobs()
    assert Delivery.objects.earliest("pk").product == last
    assert Delivery.objects.count() == 6


def test_an_edit_during_a_sync_becomes_a_sync_of_its_own(
    product: Product, api: OutsideApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is merged into a job that runs, so no change is lost."""
    send = outside_client.send_product

    def edit_meanwhile(*args: Any, **kwargs: Any) -> None:
        send(*args, **kwargs)
        if product.price == Product.objects.get().price:
            edit_product(product.pk, price=1)

    monkeypatch.setattr(outside_client, "send_product", edit_meanwhile)
    edit_product(product.pk, title="Big mug")
    assert run_jobs() == 2
    assert api.product(product.integration_id, product.pk) == {"title": "Big mug", "price": 1}


def test_an_edit_is_three_statements(product: Product, django_assert_num_queries: Any) -> None:
    """The product locked, changed, and its sync enqueued or merged; and two for a savepoint."""
    for price in (1, 2):
        with django_assert_num_queries(5):
            edit_product(product.pk, price=price)


def test_an_edit_of_nothing_or_of_something_else_is_refused(product: Product) -> None:
    for changes in ({}, {"revision": 7}):
        with pytest.raises(ValueError, match="expected changes of some of"):
            edit_product(product.pk, **changes)
    assert not Job.objects.exists()


# --- What the outside API answers


def test_a_refused_product_fails_for_good(product: Product, api: OutsideApi) -> None:
    """S4.23."""
    edit_product(product.pk, price=0)
    assert run_jobs() == 1
    job = Job.objects.get()
    assert (job.status, job.attempts) == ("failed", 1)
    assert "price must be more than 0" in job.errors[0]["message"]
    assert not Delivery.objects.exists()


def test_a_sync_above_the_outside_limit_is_put_off_as_told(
    product: Product, api: OutsideApi
) -> None:
    """S4.23, S4.27: should a call come too early in spite of all, nothing is lost."""
    api.limits[product.integration_id] = 0
    edit_product(product.pk, price=1)
    Job.objects.update(due_at=None)
    assert run_jobs(at_once=False) == 1
    job = Job.objects.get()
    assert (job.status, job.attempts) == ("ready", 1)
    assert job.due_at is not None
    assert job.last_attempted_at is not None
    assert 0.9 < (job.due_at - job.last_attempted_at).total_seconds() < 5


def test_there_are_ten_retries_with_the_delays_of_the_article(product: Product) -> None:
    """S4.11, S4.14."""
    task = syncing.sync_product
    assert task.max_attempts == 11
    assert task.backoff == [0, 10, 30, 60, 120, 300, 600, 900, 1200, 1800]
    assert task.concurrency_limit == 50


def test_a_product_that_is_gone_is_not_looked_for_again(product: Product) -> None:
    edit_product(product.pk, price=1)
    Product.objects.all().delete()
    assert run_jobs() == 1
    assert Job.objects.get().status == "failed"


# --- Whole catalogues


def test_a_catalogue_is_one_statement_and_meets_what_waits(
    integration: Integration, product: Product, django_assert_num_queries: Any
) -> None:
    """S4.4: the customer's own re-sync."""
    Product.objects.create(integration=integration, title="Tin", price=900)
    edit_product(product.pk, price=1)
    with django_assert_num_queries(3):  # between a savepoint and its release
        resync(integration.pk)
    by_product = {job.kwargs["product_id"]: job for job in Job.objects.all()}
    assert len(by_product) == 2
    merged = by_product[product.pk]
    assert sorted(merged.kwargs["fields"]) == ["description", "price", "title"]
    assert (merged.priority, merged.due_at) == (syncing.PRICE_PRIORITY, None)
    assert merged.concurrency_key == limits.concurrency_key(integration.pk)
    assert merged.rate_limit_keys == limits.rate_key(integration.pk)


def test_a_comparison_finds_what_differs_and_takes_a_turn_before_each_call(
    integration: Integration, product: Product, api: OutsideApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S4.25: the same limit as that of the syncs, taken inside a task."""
    taken: list[str] = []
    acquire = syncing.acquire

    def record(key: str, **options: Any) -> Any:
        taken.append(key)
        return acquire(key, **options)

    monkeypatch.setattr(syncing, "acquire", record)
    right = Product.objects.create(integration=integration, title="Tin", price=900)
    Product.objects.create(integration=integration, title="Sample", price=0)
    for pk, price in ((product.pk, 1), (right.pk, 900)):
        outside_client.send_product(integration.pk, pk, revision=1, fields={"price": price})
    result = compare_catalogue.enqueue(integration_id=integration.pk)
    run_jobs()
    result.refresh()
    assert result.return_value == {"calls": 2, "products": 2, "different": 1}
    assert taken == [limits.rate_key(integration.pk)] * 2
    assert api.product(integration.pk, product.pk)["price"] == product.price


def test_a_plan_has_a_rate_limit_of_its_own(integration: Integration) -> None:
    name = limits.rate_key(integration.pk)
    limits.set_plan(integration, ENTERPRISE)
    row = RateLimit.objects.get(name=name)
    assert (row.count, row.period, limits.calls_per_second(ENTERPRISE)) == (250, 1.25, 200)
    limits.set_plan(integration, BASIC)
    assert not RateLimit.objects.filter(name=name).exists()
    assert limits.calls_per_second(BASIC) == 20


# --- Trades


def trades_of(*amounts: tuple[Company, int, int]) -> list[Trade]:
    """Record trades of (company, amount, refusals)."""
    trades = [Trade(company=c, amount=a, refusals=r) for c, a, r in amounts]
    record_trades(trades)
    return trades


def test_trades_of_a_company_are_settled_in_order_also_after_a_retry() -> None:
    """S1.9: one at a time; what waits for its next attempt keeps its place."""
    ada, bob = Company.objects.create(name="Ada"), Company.objects.create(name="Bob")
    trades_of((ada, 5, 1), (bob, 7, 0), (ada, -2, 0), (ada, 4, 1))
    assert run_jobs() == 6
    ledger = Trade.objects.filter(company=ada).order_by("pk")
    assert list(ledger.values_list("balance_after", flat=True)) == [5, 3, 7]
    stamps = [stamp for trade in ledger for stamp in (trade.started_at, trade.settled_at)]
    assert stamps == sorted(stamps)
    ada.refresh_from_db()
    bob.refresh_from_db()
    assert (ada.balance, bob.balance) == (7, 7)


def test_a_trade_that_waits_for_its_retry_holds_up_its_company_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trades, "BUSY_SECONDS", 3600)
    ada, bob = Company.objects.create(name="Ada"), Company.objects.create(name="Bob")
    _, _, other = trades_of((ada, 5, 1), (ada, -2, 0), (bob, 7, 0))
    assert run_jobs(at_once=False) == 2
    settled = Trade.objects.filter(settled_at__isnull=False)
    assert [trade.pk for trade in settled] == [other.pk]
    waiting = Job.objects.filter(status="ready").order_by("pk")
    assert list(waiting.values_list("attempts", flat=True)) == [1, 0]


def test_a_trade_is_settled_in_one_transaction() -> None:
    assert settle_trade.atomic
    assert settle_trade.concurrency_limit is None  # one at a time


# --- The pages


def test_the_page_of_an_integration_says_how_it_is_doing(
    client: Client, integration: Integration, product: Product
) -> None:
    """S4.4: what was sent, and what waits."""
    address = integration.get_absolute_url()
    assert "data-waiting" not in client.get(address).content.decode()
    edit_product(product.pk, price=1234)
    edit_product(product.pk, title="<b>Mug</b>")
    page = client.get(address).content.decode()
    assert "data-waiting" in page
    assert "edited a moment ago" in page
    assert "more edits, sent along" in page
    run_jobs()
    edit_product(product.pk, price=0)
    run_jobs()
    page = client.get(address).content.decode()
    assert "data-waiting" not in page
    assert "12.34 EUR" in page
    assert "&lt;b&gt;Mug&lt;/b&gt;" in page
    assert "price must be more than 0" in page


def test_the_status_counts_the_jobs_of_one_integration(
    integration: Integration, product: Product, api: OutsideApi
) -> None:
    other = Integration.objects.create(name="Bob's shop")
    tin = Product.objects.create(integration=other, title="Tin", price=900)
    edit_product(tin.pk, price=1)
    api.limits[integration.pk] = 0
    resync(integration.pk)
    run_jobs(at_once=False)
    edit_product(product.pk, price=1)
    status = status_of(integration)
    assert (status.waiting, status.later, status.retrying, status.running) == (2, 1, 1, 0)
    assert (status.failed, status.delivered, status.last_error) == (0, 0, "")
    assert status.is_busy


def test_a_customer_may_send_everything_again(
    client: Client, integration: Integration, product: Product
) -> None:
    """S4.4: self-service."""
    response = client.post(f"/integrations/{integration.pk}/resync/", follow=True)
    assert "1 products will be sent again" in response.content.decode()
    assert Job.objects.count() == 1
    assert client.get(f"/integrations/{integration.pk}/resync/").status_code == 405
    assert client.get("/integrations/999/").status_code == 404


def test_who_asks_again_and_again_for_a_resync_adds_no_jobs(
    client: Client, integration: Integration, product: Product
) -> None:
    """S4.4: a customer may press as often as he likes; what waits is sent once, edits included."""
    Product.objects.create(integration=integration, title="Tin", price=900)
    for _ in range(3):
        client.post(f"/integrations/{integration.pk}/resync/")
        edit_product(product.pk, price=5)
    assert Job.objects.count() == 2
    assert run_jobs() == 2
    client.post(f"/integrations/{integration.pk}/resync/")
    assert status_of(integration).waiting == 2, "after it has run it can be asked for again"


def test_the_list_shows_what_each_integration_has_left(
    client: Client, integration: Integration, product: Product
) -> None:
    assert "data-waiting" not in client.get("/integrations/").content.decode()
    resync(integration.pk)
    page = client.get("/integrations/").content.decode()
    assert "data-waiting" in page
    assert '<span class="status busy">1</span>' in page


def test_an_edit_in_the_admin_is_synced_too(admin_client: Client, product: Product) -> None:
    address = f"/admin/integrations/product/{product.pk}/change/"
    data = {"integration": product.integration_id, "title": "Mug", "description": "", "price": "5"}
    assert admin_client.post(address, data).status_code == 302
    product.refresh_from_db()
    assert (product.price, product.revision) == (5, 2)
    assert Job.objects.get().priority == syncing.PRICE_PRIORITY
    for model in ("integration", "product", "delivery", "company", "trade"):
        assert admin_client.get(f"/admin/integrations/{model}/").status_code == 200


def test_an_edit_of_a_text_in_the_admin_is_no_price_change(
    admin_client: Client, product: Product
) -> None:
    address = f"/admin/integrations/product/{product.pk}/change/"
    data = {"integration": product.integration_id, "title": "Cup", "description": "", "price": 1290}
    admin_client.post(address, data)
    job = Job.objects.get()
    assert (job.kwargs["fields"], job.priority) == (["title"], 0)
