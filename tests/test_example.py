"""The example shop: its pages through Django's client, its tasks by calling them."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import django
import pytest
from django.contrib.auth.models import User
from django.core import mail
from django.db import transaction
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse

from django_pgjobs import Discard, Retry
from django_pgjobs.models import Job
from example_project.shop import payments, provider, signatures, signup
from example_project.shop.forms import TAKEN, SignUpForm
from example_project.shop.models import Customer, Order, PaymentEvent, Product, WelcomeMail
from example_project.shop.orders import place_order

pytestmark = [pytest.mark.django_db, pytest.mark.urls("example_project.urls")]

SECRET = "whsec_test"


@pytest.fixture(autouse=True)
def _shop_settings(settings: Any) -> None:
    settings.SHOP_WEBHOOK_SECRET = SECRET
    if django.VERSION >= (6, 1):
        settings.MAILERS = {"default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}


@pytest.fixture
def run_task(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Call a task's function as if a worker ran it: `run_task(task, attempt=1, **kwargs)`."""

    def run(task: Any, *, attempt: int = 1, **kwargs: Any) -> Any:
        job = SimpleNamespace(id=4711, attempt=attempt)
        for module in (payments, signup):
            monkeypatch.setattr(module, "current_job", lambda: job)
        with transaction.atomic():
            return task.func(**kwargs)

    return run


@pytest.fixture
def customer() -> Customer:
    return signup.sign_up(name="Ada", email="ada@example.com")


@pytest.fixture
def order(customer: Customer) -> Order:
    tea = Product.objects.create(sku="TEA", name="Green tea", unit_amount=890)
    return place_order(customer, [(tea, 2)])


def event(event_type: str, order: Order, amount: int | None = None, **fields: Any) -> str:
    """Return the body of a webhook about *order*."""
    fields = {"order_reference": order.reference, "amount": order.total_amount} | fields
    if amount is not None:
        fields["amount"] = amount
    return provider.encode(provider.build_event(event_type, **fields)).decode()


def deliver(body: bytes, *, header: str | None = None) -> HttpResponse:
    """Post *body* to the webhook, correctly signed unless *header* is given."""
    if header is None:
        header = signatures.sign(body, SECRET, time.time())
    client = Client(enforce_csrf_checks=True, headers={signatures.HEADER: header})
    return client.post("/webhooks/payments/", body, content_type="application/json")


# --- Signing up


def test_the_sign_up_page_stores_user_customer_and_job_and_answers(client: Client) -> None:
    """S1.17, S5.2, S5.3: one transaction, and the confirmation is immediate."""
    data = {"name": "Grace", "email": "Grace@Example.com"}
    response = client.post("/signup/", data, follow=True)
    assert "take it from here" in response.content.decode()
    customer = Customer.objects.get(user__email="grace@example.com")
    job = Job.objects.get(pk=customer.welcome_job_id)
    assert (job.status, job.kwargs) == ("ready", {"customer_id": customer.pk})
    assert job.task_path == "example_project.shop.signup.send_welcome_mail"
    assert not mail.outbox
    assert not customer.user.has_usable_password()


def test_a_rolled_back_sign_up_leaves_neither_user_nor_job() -> None:
    """S5.4: nothing is written to two places."""
    with transaction.atomic():
        signup.sign_up(name="Ada", email="ada@example.com")
        assert Job.objects.count() == 1
        transaction.set_rollback(True)
    assert not User.objects.exists()
    assert not Job.objects.exists()


def test_a_taken_address_is_refused(client: Client, customer: Customer) -> None:
    response = client.post("/signup/", {"name": "Ada", "email": "ADA@example.com"})
    assert TAKEN in response.content.decode()
    assert Job.objects.count() == 1


def test_an_address_taken_in_the_meantime_is_refused(
    client: Client, customer: Customer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(SignUpForm, "clean_email")
    response = client.post("/signup/", {"name": "Ada", "email": "ada@example.com"})
    assert TAKEN in response.content.decode()
    assert Job.objects.count() == 1


def test_the_welcome_mail_is_sent_and_recorded(
    customer: Customer, run_task: Callable[..., Any]
) -> None:
    """S4.5."""
    run_task(signup.send_welcome_mail, customer_id=customer.pk)
    [message] = mail.outbox
    assert message.to == ["ada@example.com"]
    assert "Hello Ada" in message.body
    assert WelcomeMail.objects.get().job_id == 4711


def test_a_mail_that_cannot_be_sent_is_not_recorded(
    customer: Customer, run_task: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """S5.12."""

    def refuse(*args: object) -> None:
        raise ConnectionRefusedError

    monkeypatch.setattr(signup.EmailMessage, "send", refuse)
    with pytest.raises(ConnectionRefusedError):
        run_task(signup.send_welcome_mail, customer_id=customer.pk)
    assert not WelcomeMail.objects.exists()


def test_a_customer_who_is_gone_gets_no_mail_and_no_retry(run_task: Callable[..., Any]) -> None:
    with pytest.raises(signup.send_welcome_mail.discard_on):
        run_task(signup.send_welcome_mail, customer_id=1)


# --- The webhook


def test_the_webhook_stores_the_job_and_nothing_else(order: Order) -> None:
    """S1.5, S5.1: the request ends at once; parsing and updating are the job's business."""
    body = event("payment.captured", order)
    response = deliver(body.encode())
    assert response.status_code == 202
    job = Job.objects.get(pk=response.json()["job"])
    assert (job.status, job.queue_name, job.kwargs) == ("ready", "payments", {"body": body})
    assert not PaymentEvent.objects.exists()


@pytest.mark.parametrize(
    "header",
    [
        "",
        "t=1,v1=" + "0" * 64,
        "v1=abc",
        signatures.sign(b"{}", "another secret", time.time()),
        signatures.sign(b"another body", SECRET, time.time()),
        signatures.sign(b"{}", SECRET, time.time() - 3600),
        signatures.sign(b"{}", SECRET, time.time() + 3600),
    ],
    ids=["none", "wrong", "no time", "other secret", "other body", "too old", "too new"],
)
def test_a_webhook_without_a_good_signature_is_refused(header: str) -> None:
    assert deliver(b"{}", header=header).status_code == 403
    assert not Job.objects.exists()


@pytest.mark.parametrize(("body", "status"), [(b"\xff", 400), (b"a\0b", 400), (b"x" * 70_000, 413)])
def test_a_body_that_cannot_be_stored_is_refused(body: bytes, status: int) -> None:
    response = deliver(body)
    assert response.status_code == status
    assert response.json()["error"]
    assert not Job.objects.exists()  # and the transaction is usable


def test_the_webhook_takes_posts_only(client: Client) -> None:
    assert client.get("/webhooks/payments/").status_code == 405


# --- Applying events


def test_a_captured_payment_pays_the_order(order: Order, run_task: Callable[..., Any]) -> None:
    body = event("payment.captured", order)
    assert run_task(payments.apply_payment_event, body=body) == "applied"
    order.refresh_from_db()
    assert (order.status, order.captured_amount, order.revision) == ("paid", 1780, 1)
    assert order.payment_events.get().job_id == 4711


def test_a_second_delivery_has_no_effect(order: Order, run_task: Callable[..., Any]) -> None:
    body = event("payment.captured", order)
    assert run_task(payments.apply_payment_event, body=body) == "applied"
    assert run_task(payments.apply_payment_event, body=body) == "duplicate"
    order.refresh_from_db()
    assert (order.captured_amount, order.revision) == (1780, 1)


def test_an_event_for_an_unknown_order_is_retried_ever_later_and_then_discarded(
    order: Order, run_task: Callable[..., Any]
) -> None:
    body = event("payment.captured", order, order_reference="R-UNKNOWN")
    last = payments.UNKNOWN_ORDER_ATTEMPTS
    waits = []
    for attempt in range(1, last):
        with pytest.raises(Retry, match="R-UNKNOWN") as retry:
            run_task(payments.apply_payment_event, attempt=attempt, body=body)
        waits.append(retry.value.after)
    assert waits == [2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300, 300]
    with pytest.raises(Discard, match=f"after {last} attempts"):
        run_task(payments.apply_payment_event, attempt=last, body=body)


@pytest.mark.parametrize(
    ("fields", "named"), [({"currency": "USD"}, "got USD"), ({"amount": -5}, "malformed")]
)
def test_an_event_that_can_never_be_applied_is_discarded(
    order: Order, run_task: Callable[..., Any], fields: dict[str, Any], named: str
) -> None:
    body = event("payment.captured", order, **fields)
    with pytest.raises(Discard, match=named):
        run_task(payments.apply_payment_event, body=body)
    assert not PaymentEvent.objects.exists()


def test_an_event_of_another_kind_is_ignored(run_task: Callable[..., Any]) -> None:
    assert run_task(payments.apply_payment_event, body='{"type": "payout.paid"}') == "ignored"


# --- Pages


def set_status(job_id: int | None, status: str) -> None:
    Job.objects.filter(pk=job_id).update(status=status)


def test_the_customer_page_follows_the_welcome_mail(client: Client, customer: Customer) -> None:
    page = client.get(customer.get_absolute_url()).content.decode()
    assert "waiting" in page
    assert "data-waiting" in page
    set_status(customer.welcome_job_id, "successful")
    WelcomeMail.objects.create(customer=customer, recipient=customer.user.email)
    page = client.get(customer.get_absolute_url()).content.decode()
    assert "✓ done" in page
    assert "to ada@example.com" in page
    assert "data-waiting" not in page


def test_a_job_that_is_no_longer_kept_leaves_the_page_working(
    client: Client, customer: Customer
) -> None:
    Customer.objects.update(welcome_job_id=2**62)
    assert "no longer kept" in client.get(customer.get_absolute_url()).content.decode()


def test_a_customer_orders_and_pays(
    client: Client, order: Order, run_task: Callable[..., Any]
) -> None:
    product = Product.objects.get()
    data = {"product": product.pk, "quantity": 3}
    response = client.post(order.customer.get_absolute_url(), data, follow=True)
    assert "26.70 EUR" in response.content.decode()
    newest = Order.objects.latest("pk")
    paid = {"event_type": "payment.captured"}
    response = client.post(reverse("shop:provider", args=[newest.reference]), paid, follow=True)
    page = response.content.decode()
    assert "Webhook accepted" in page
    assert "data-waiting" in page
    run_task(payments.apply_payment_event, **Job.objects.latest("pk").kwargs)
    assert 'good">paid' in client.get(newest.get_absolute_url()).content.decode()


@pytest.mark.parametrize("job", ["", "x", "²", "9" * 30])
def test_the_order_page_ignores_a_senseless_job(client: Client, order: Order, job: str) -> None:
    assert client.get(order.get_absolute_url(), {"job": job}).status_code == 200


def test_an_unknown_event_type_is_refused(client: Client, order: Order) -> None:
    address = reverse("shop:provider", args=[order.reference])
    assert client.post(address, {"event_type": "payout.paid"}).status_code == 400


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        ("ready", "waiting"),
        ("running", "running"),
        ("failed", "failed"),
        ("cancelled", "cancelled"),
    ],
)
def test_the_job_page_shows_its_status(
    client: Client, customer: Customer, status: str, shown: str
) -> None:
    set_status(customer.welcome_job_id, status)
    assert shown in client.get(f"/jobs/{customer.welcome_job_id}/").content.decode()


def test_an_unknown_job_is_not_found(client: Client) -> None:
    assert client.get("/jobs/4711/").status_code == 404


def test_the_home_page_counts_waiting_jobs(client: Client, order: Order) -> None:
    page = client.get("/").content.decode()
    assert "1 job waiting, 0 running" in page
    assert order.reference in page


@pytest.mark.parametrize("model", ["customer", "product", "order", "paymentevent"])
def test_the_shop_is_in_the_admin(
    admin_client: Client, order: Order, run_task: Callable[..., Any], model: str
) -> None:
    run_task(payments.apply_payment_event, body=event("payment.captured", order))
    run_task(signup.send_welcome_mail, customer_id=order.customer.pk)
    address = f"/admin/shop/{model}/"
    response = admin_client.get(address)
    assert response.status_code == 200
    first = response.context["cl"].queryset.first()
    assert admin_client.get(f"{address}{first.pk}/change/").status_code == 200
