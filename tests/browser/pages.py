"""The addresses of all pages of the admin, in an installation that `demo_data.fill` made."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlencode

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.contrib.auth.models import User
from django.db.models import Model
from django.urls import reverse

from django_pgjobs.admin.bulk.asking import bulk_address
from django_pgjobs.admin.job_list.tabs import TABS
from django_pgjobs.bulk.actions import ACTIONS
from django_pgjobs.bulk.selection import Selection
from django_pgjobs.models import (
    Batch,
    BulkChange,
    ConcurrencyLimit,
    Job,
    Pause,
    QueueSettings,
    RateLimit,
    Schedule,
    Token,
    Worker,
)
from django_pgjobs.status import JobStatus
from example_project.shop.models import Customer, Order

FORMS = {
    "queuesettings": QueueSettings,
    "pause": Pause,
    "concurrencylimit": ConcurrencyLimit,
    "ratelimit": RateLimit,
    "schedule": Schedule,
}


def named(name: str, /, *args: object, **query: str) -> str:
    """Return the address of the page of the admin with that name."""
    address = reverse(f"admin:{name}", args=args)
    return f"{address}?{urlencode(query)}" if query else address


def schedule(page: str) -> str:
    """Return the address of a page of the schedule with most to see, or of any."""
    names = list(Schedule.objects.order_by("-runs").values_list("pk", flat=True)[:1])
    return named(f"pgjobs_schedule_{page}", name=names[0])


def newest(model: type[Model], **lookups: object) -> str:
    """Return the key of the newest row, as addresses have it."""
    return quote(
        model._default_manager.filter(**lookups).order_by("-pk").values_list("pk", flat=True)[0]
    )


def job(status: str, name: str = "pgjobs_job_change") -> str:
    """Return the address of a page of the newest job of that status."""
    return named(name, newest(Job, status=status))


def bulk(verb: str) -> str:
    """Return the address of the page that asks before a bulk change."""
    selection = Selection({"status__in": ["failed", "ready"]})
    return bulk_address(admin.site._registry[Job], verb, selection)


def progress() -> str:
    """Return the address of the page of a bulk change on its way, which is made if need be."""
    selection = Selection({"status": "failed"}).pinned().to_json()
    change, _made = BulkChange.objects.get_or_create(
        verb="requeue", user_id="1", total=45, changed=20, defaults={"selection": selection}
    )
    return named("pgjobs_job_bulk_progress", change.pk)


def bulk_list() -> str:
    """Return the address of the list of bulk changes, of which there is one."""
    progress()
    return named("pgjobs_job_bulk")


def order() -> str:
    """Return the address of the page of an order that jobs are about."""
    row = Order.objects.filter(reference="A-1").first()
    if row is None:
        user = User.objects.create_user("buyer", "buyer@example.com")
        customer = Customer.objects.create(user=user)
        row = Order.objects.create(reference="A-1", customer=customer, total_amount=100)
        Job.objects.filter(status="failed").update(subject=f"shop.order:{row.pk}")
    return named("shop_order_change", row.pk)


PAGES: dict[str, Callable[[], str]] = {
    "overview": lambda: named("app_list", "pgjobs"),
    "overview, a week": lambda: named("app_list", "pgjobs", range="7d"),
    "overview of its own": lambda: named("pgjobs_job_overview"),
    **{
        f"jobs, {tab.key}": lambda tab=tab: named("pgjobs_job_changelist", tab=tab.key)
        for tab in TABS
    },
    "jobs, searched": lambda: named("pgjobs_job_changelist", q="task:nothing.like.it"),
    "jobs, found": lambda: named("pgjobs_job_changelist", q="tasks", sort="oldest"),
    "jobs, filtered": lambda: named("pgjobs_job_changelist", tab="failed", queue="mail"),
    "jobs, in no path": lambda: named("pgjobs_job_changelist", q="nothing like it"),
    "jobs, not understood": lambda: named("pgjobs_job_changelist", q="colour:red"),
    **{f"job, {status}": lambda status=status: job(status) for status in JobStatus.values},
    "job, missing": lambda: named("pgjobs_job_change", 10**12),
    "job, in a batch": lambda: named(
        "pgjobs_job_change", newest(Job, batch_id__isnull=False, status="failed")
    ),
    "workflows": lambda: named("pgjobs_batch_changelist"),
    "workflows, failed": lambda: named("pgjobs_batch_changelist", tab="failed"),
    "workflows, searched": lambda: named("pgjobs_batch_changelist", q="nothing like it"),
    "workflow": lambda: named("pgjobs_batch_change", newest(Batch, parent=None)),
    "batch, broken": lambda: named("pgjobs_batch_change", newest(Batch, broken__gt="")),
    "batch, missing": lambda: named("pgjobs_batch_change", 10**12),
    "workflow, cancel": lambda: named("pgjobs_batch_cancel", newest(Batch, parent=None)),
    "copy": lambda: job("failed", "pgjobs_job_copy"),
    "history": lambda: job("failed", "pgjobs_job_history"),
    "stuck": lambda: named("pgjobs_job_stuck"),
    "mute": lambda: named("pgjobs_job_mute", kind="unserved", subject="mail"),
    "failures": lambda: named("pgjobs_job_failures"),
    "queues": lambda: named("pgjobs_queuesettings_changelist"),
    "queue": lambda: named("pgjobs_queue", name="billing"),
    "queue, paused": lambda: named("pgjobs_queue", name="reports"),
    "queue, unknown": lambda: named("pgjobs_queue", name="nothing"),
    "pause": lambda: named("pgjobs_queue_pause"),
    "workers": lambda: named("pgjobs_worker_changelist"),
    "worker": lambda: named("pgjobs_worker_change", newest(Worker, ended_at=None)),
    "worker, lost": lambda: named("pgjobs_worker_change", newest(Worker, lost=True)),
    "schedules": lambda: named("pgjobs_schedule_changelist"),
    "schedule": lambda: schedule("page"),
    "run a schedule": lambda: schedule("run"),
    "backfill": lambda: schedule("backfill"),
    "limits": lambda: named("pgjobs_ratelimit_changelist"),
    **{f"add {name}": lambda name=name: named(f"pgjobs_{name}_add") for name in FORMS},
    **{
        f"{word} {name}": lambda name=name, model=model, word=word: named(
            f"pgjobs_{name}_{word}", newest(model)
        )
        for name, model in FORMS.items()
        for word in ("change", "delete")
    },
    "tokens": lambda: named("pgjobs_token_changelist"),
    "token": lambda: named("pgjobs_token_change", newest(Token, revoked_at=None)),
    "new token": lambda: named("pgjobs_token_add"),
    "system": lambda: named("pgjobs_job_system"),
    **{f"bulk, {verb}": lambda verb=verb: bulk(verb) for verb in ACTIONS},
    "bulk changes": bulk_list,
    "bulk change": progress,
    "row with jobs": order,
}
