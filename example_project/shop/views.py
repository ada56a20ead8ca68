"""The shop's pages and the webhook.

There is no sign-in: whoever knows an address of a page sees it. That is for a demo only.
"""

from __future__ import annotations

import time

from django.conf import settings
from django.contrib import messages
from django.db import IntegrityError
from django.db.models import Count
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST, require_safe

from django_pgjobs.models import Job
from example_project.shop import provider
from example_project.shop.forms import EVENT_TYPES, TAKEN, OrderForm, ProviderForm, SignUpForm
from example_project.shop.models import Customer, Order
from example_project.shop.orders import place_order
from example_project.shop.payments import receive_event
from example_project.shop.signatures import HEADER, BadSignatureError, verify
from example_project.shop.signup import sign_up

MAX_WEBHOOK_BYTES = 64 * 1024  # the provider's events have about 1 KiB
UNFINISHED = ("ready", "running")


@require_safe
def home(request: HttpRequest) -> HttpResponse:
    """Show the newest customers and orders, and how many jobs are waiting."""
    unfinished = Job.objects.filter(status__in=UNFINISHED)
    counts = unfinished.values_list("status").annotate(jobs=Count("pk"))
    context = {
        "customers": Customer.objects.select_related("user").order_by("-pk")[:8],
        "orders": Order.objects.order_by("-pk")[:8],
        "jobs": dict.fromkeys(UNFINISHED, 0) | {str(status): jobs for status, jobs in counts},
    }
    return render(request, "shop/home.html", context)


def sign_up_form(request: HttpRequest) -> HttpResponse:
    """Sign a customer up and answer at once: the welcome mail is a job's business."""
    form = SignUpForm(request.POST or None, label_suffix="")
    if form.is_valid():
        try:
            customer = sign_up(**form.cleaned_data)
        except IntegrityError:  # somebody else took the address since the form looked
            form.add_error("email", TAKEN)
        else:
            messages.success(request, "You are in. We'll take it from here.")
            return redirect(customer)
    return render(request, "shop/signup.html", {"form": form})


def customer_page(request: HttpRequest, pk: int) -> HttpResponse:
    """Show a customer, how the welcome mail is doing, and a form to order something."""
    customer = get_object_or_404(Customer.objects.select_related("user"), pk=pk)
    form = OrderForm(request.POST or None, label_suffix="")
    if form.is_valid():
        item = form.cleaned_data["product"], form.cleaned_data["quantity"]
        return redirect(place_order(customer, [item]))
    job = _job(customer.welcome_job_id)
    context = {
        "customer": customer,
        "orders": customer.orders.order_by("-pk")[:20],
        "mails": customer.welcome_mails.all(),
        "job": job,
        "form": form,
        "waiting": _is_unfinished(job),
    }
    return render(request, "shop/customer.html", context)


@require_safe
def order_page(request: HttpRequest, reference: str) -> HttpResponse:
    """Show an order, its payment events and the jobs that applied them."""
    order = get_object_or_404(Order.objects.select_related("customer__user"), reference=reference)
    job_id = request.GET.get("job", "")
    # A bigint has at most 19 digits.
    newest = _job(int(job_id)) if job_id.isdecimal() and len(job_id) < 19 else None
    context = {
        "order": order,
        "lines": order.lines.select_related("product"),
        "events": order.payment_events.all(),
        "job": newest,
        "waiting": _is_unfinished(newest),
        "event_types": EVENT_TYPES,
    }
    return render(request, "shop/order.html", context)


@require_POST
def play_provider(request: HttpRequest, reference: str) -> HttpResponse:
    """Send ourselves the webhook that the payment provider would send."""
    order = get_object_or_404(Order, reference=reference)
    form = ProviderForm(request.POST)
    if not form.is_valid():
        return HttpResponse("unknown event type", status=400, content_type="text/plain")
    event = provider.build_event(
        form.cleaned_data["event_type"],
        order_reference=order.reference,
        amount=order.total_amount,
        currency=order.currency,
    )
    job_id = receive_event(provider.encode(event))
    messages.success(request, f"Webhook accepted as job {job_id}.")
    return redirect(f"{order.get_absolute_url()}?job={job_id}")


@require_safe
def job_page(request: HttpRequest, pk: int) -> HttpResponse:
    """Show how a job is doing."""
    job = get_object_or_404(Job, pk=pk)
    context = {"job": job, "waiting": _is_unfinished(job)}
    return render(request, "shop/job.html", context)


@csrf_exempt
@require_POST
def payment_webhook(request: HttpRequest) -> HttpResponse:
    """Accept an event of the payment provider: check who sent it, store the job, answer."""
    body = request.body
    if len(body) > MAX_WEBHOOK_BYTES:
        return JsonResponse({"error": f"more than {MAX_WEBHOOK_BYTES} bytes"}, status=413)
    header = request.headers.get(HEADER, "")
    try:
        verify(body, header, settings.SHOP_WEBHOOK_SECRET, time.time())
    except BadSignatureError as error:
        return JsonResponse({"error": str(error)}, status=403)
    try:
        job_id = receive_event(body)
    except ValueError as error:
        return JsonResponse({"error": f"cannot be stored: {error}"}, status=400)
    return JsonResponse({"job": job_id}, status=202)


def _job(job_id: int | None) -> Job | None:
    return None if job_id is None else Job.objects.filter(pk=job_id).first()


def _is_unfinished(job: Job | None) -> bool:
    return job is not None and job.status in UNFINISHED
