"""What the docs take for granted: a shop with tasks, rows, and the world outside of it.

`tests/test_docs_code.py` loads this file afresh for each page, as the module `shop.tasks`. Every
name in here is known to the code on a page, and what `prepare` returns for it.
"""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from unittest import TestCase

from django.contrib import admin
from django.contrib.auth.models import User
from django.core.mail import send_mail
from django.db import connection, transaction
from django.db.models import F
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils import timezone

from django_pgjobs import acquire, current_job, pause, task
from django_pgjobs.models import Job, RateLimit
from django_pgjobs.testing import run_jobs
from example_project.shop.models import Customer, Order
from example_project.shop.models import Product as ProductOfExample
from tests.factories import make_job

__all__ = [
    "F",
    "Job",
    "Order",
    "TestCase",
    "User",
    "acquire",
    "current_job",
    "run_jobs",
    "task",
    "timedelta",
    "transaction",
]


@task
def push_product(shop_id: int, product_id: int) -> int:
    return call_the_shop(shop_id, product_id).revision


@task(queue_name="mail")
def send_welcome(user_id: int) -> str:
    send_mail("Welcome", "Your account is ready.", None, ["ada@example.com"])
    return f"welcome {user_id}"


@task(backoff=[0])
def upload(file_id: int) -> None:
    if current_job().attempt < 3:
        raise ConnectionError("refused")


@task
def build_report(shop_id: int = 0, month: str = "") -> None: ...


@task
def load_prices(shop_id: int) -> None: ...


@task
def send_report(shop_id: int) -> None: ...


@task
def archive(shop_id: int) -> None: ...


@task
def send_invoice(order_id: int) -> None: ...


@task
def calculate(employee_id: int) -> int:
    return 1000 + employee_id


@task
def send_cheque(amount: int, currency: str) -> str:
    return f"{amount} {currency}"


@task
def mail_summary(batch_id: int, month: str) -> None: ...


@task
def add(a: int, b: int) -> int:
    return a + b


@task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@task
def fetch(url: str) -> list[str]:
    return [f"{url}/1", f"{url}/2"]


@task
def notify(text: str) -> None: ...


def call_the_shop(shop_id: int, product_id: int) -> SimpleNamespace:
    return SimpleNamespace(status=200, revision=3)


def changes_of(product_id: int) -> list[str]:
    return ["price"]


def call_shopify() -> None:
    acquire("shopify")


def sign_up(request: HttpRequest) -> HttpResponse:
    with transaction.atomic():
        user = User.objects.create_user(request.POST["email"])
        send_welcome.enqueue(user_id=user.pk)
    return HttpResponse()


class Product:
    """A model with a column that the example's does not have."""

    objects = SimpleNamespace(filter=lambda **lookups: ProductOfExample.objects.all())


api = SimpleNamespace(send=print)
meeting = SimpleNamespace(begin=timezone.now() + timedelta(hours=1))
my_site = admin.AdminSite("mine")
pks = range(3)
self = TestCase()
urlpatterns = [path("sign-up/", sign_up)]


def prepare(page: str) -> dict[str, Any]:
    """Make the rows that the code on a page is about; return names for it."""
    if page == "testing":
        send_welcome.enqueue(user_id=1)
    elif page == "why-not-running":
        pause(queue="mail", by="anna", reason="PDF bug")
        waiting = send_welcome.using(queue_name="mail").enqueue(user_id=1)
        return {"job": Job.objects.get(pk=waiting.id)}
    elif page == "enqueueing":
        make_job("shop.tasks.push_product", id=4711, kwargs={"shop_id": 1, "product_id": 2})
        with connection.cursor() as cursor:  # before the one of the example
            cursor.execute("CREATE TEMP TABLE shop_customer (id serial, email text)")
        tea = ProductOfExample.objects.create(sku="TEA", name="Tea", unit_amount=890)
        return {"product": tea}
    elif page == "subjects":
        customer = Customer.objects.create(user=User.objects.create_user("ada"))
        order = Order.objects.create(reference="1", customer=customer, total_amount=890)
        return {"order": order}
    elif page == "rate-limits":
        RateLimit.objects.create(name="shopify", count=2, period=1)
    return {}
