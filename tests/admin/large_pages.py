"""Every page of the admin over the rows of `many_jobs`: for the benchmark, and for its plans."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from django_pgjobs.admin.bulk.asking import bulk_address
from django_pgjobs.bulk.selection import Selection
from django_pgjobs.models import Job, Worker
from tests.admin.many_jobs import TREES

TABS = (
    "all", "scheduled", "ready", "running", "retrying", "blocked", "failed", "cancelled",
    "successful",
)  # fmt: skip
RANGES = ("1h", "6h", "24h", "7d", "30d")
SPLITS = ("outcome", "queue", "task")
# What the filters and the search are given: something that no job has, some, and most.
FILTERS: dict[str, dict[str, str]] = {
    "queue, none": {"queue": "nothing"},
    "queue, a tenth": {"queue": "queue_3"},
    "task, none": {"task": "nothing"},
    "task, a twentieth": {"task": "shop.tasks.number_7"},
    "worker, none": {"worker": "nothing"},
    "worker, a quarter": {"worker": "web-1"},
    "attempts, all": {"attempts__range__gte": "0"},
    "attempts, none": {"attempts__range__gte": "99"},
    "duration, none": {"duration__range__gte": "3600"},
    "enqueued in a month": {"enqueued_at__range__gte_0": "{month}"},
    "enqueued long ago": {"enqueued_at__range__lte_0": "{long_ago}"},
    "enqueued before all": {"enqueued_at__range__lte_0": "2001-01-01"},
    "finished long ago": {"finished_at__range__lte_0": "{long_ago}"},
    "status": {"status__exact": "failed"},
    "queue and task, none": {"queue": "queue_3", "task": "shop.tasks.number_4"},
}
SEARCHES = {
    "part of a path, all": "shop",
    "part of a path, none": "nothing",
    "task:": "task:number_7",
    "queue:": "queue:queue_3",
    "status:": "status:cancelled",
    "tag:, none": "tag:nothing",
    "tag:, a quarter": "tag:nightly",
    "error:, none": "error:nothing",
    "error:, all failed": "error:Read",
    "worker:": "worker:web-2",
    "key:, none": "key:nothing",
    "key:": "key:customer:7",
    "subject:, none": "subject:nothing",
    "subject:": "subject:shop.order:7",
    "batch:, many": "batch:1",
    "batch:, few": "batch:77",
    "batch:, none": "batch:999999",
    "tree:, a large batch": "tree:1",
    "tree:, few": "tree:77",
    "tree:, many batches": f"tree:{TREES}",
    "tree:, none": "tree:999999",
    "args., none": "args.customer:nothing",
    "args., some": "args.customer:c77",
    "an id": "77",
}
# Tabs of other orders, through which the same is looked for.
FILTERED_TABS = ("all", "ready", "retrying", "blocked", "failed", "successful")
SELECTIONS = {
    "failed": {"status__in": ["failed"]},
    "failed of a queue": {"status__in": ["failed"], "queue_name": "queue_3"},
    "failed of no task": {"status__in": ["failed"], "task_path": "nothing"},
    "failed of a group": {
        "status__in": ["failed"],
        "task_path": "shop.tasks.number_7",
        "error_class": "shop.errors.Error1",
        "error_message": "Read timed out after * s: host *",
    },
    "ready": {"status__in": ["ready"], "hold__isnull": True, "due_at__isnull": True},
    "retrying": {"status__in": ["ready"], "due_at__isnull": False, "attempts__gte": 1},
    "successful": {"status__in": ["successful"]},
    "all": {},
    "all of a task": {"all_of": [{"task_path": "shop.tasks.number_7"}]},
    "failed of a large tree": {"tree": 1, "status__in": ["failed"]},
    "all of a small tree": {"tree": 77},
    "all of a tree of many batches": {"tree": TREES},
    "all by an argument": {"all_of": [{"argument": {"path": ["customer"], "value": "none"}}]},
    "all by an error": {"all_of": [{"error": "nothing"}]},
}
# Days that have passed since what the filters call so.
AGES = {"long_ago": 20, "month": 29}
VERBS = ("requeue", "cancel", "discard", "delete")


class Page(NamedTuple):
    """A page and where it is; its *name* begins with its kind and a colon."""

    name: str
    address: str


def list_pages(client: Client) -> list[Page]:
    """Return all pages; *client* is logged in, some addresses are links of others."""
    makers: tuple[Callable[[Client], Iterator[Page]], ...] = (
        _overviews, _tabs, _steps, _filters, _searches, _jobs, _failures, _controls,
        _workflows, _changes,
    )  # fmt: skip
    return [page for make in makers for page in make(client)]


def _list(**query: str) -> str:
    return f"{reverse('admin:pgjobs_job_changelist')}?{urlencode(query)}"


def _overviews(client: Client) -> Iterator[Page]:
    address = reverse("admin:app_list", args=["pgjobs"])
    for chosen in RANGES:
        for split in SPLITS:
            yield Page(f"overview: {chosen} by {split}", f"{address}?range={chosen}&by={split}")


def _tabs(client: Client) -> Iterator[Page]:
    for tab in TABS:
        yield Page(f"jobs: tab {tab}", _list(tab=tab))
    yield Page("jobs: 100 a page", _list(tab="failed", per="100"))


def _steps(client: Client) -> Iterator[Page]:
    """What comes after a page and before it, the middle of the list, and the count of new jobs."""
    middle = Job.objects.finished().order_by("id")[1_000:1_001].get()
    for tab in ("all", "ready", "retrying", "failed", "successful"):
        following = _link(client, _list(tab=tab), "next")
        yield Page(f"jobs: second page, {tab}", following)
        yield Page(f"jobs: and back, {tab}", _link(client, following, "prev"))
        place = str(middle.pk)
        if tab in ("failed", "successful"):
            assert middle.finished_at is not None
            place = f"{middle.finished_at.isoformat()}~{place}"
        for way in ("after", "before", "count_after"):
            yield Page(f"jobs: {way} an old one, {tab}", _list(tab=tab, **{way: place}))


def _link(client: Client, address: str, rel: str) -> str:
    text = client.get(address).content.decode()
    found = re.search(rf'<a href="([^"]*)" rel="{rel}"', text)
    assert found, f"no {rel} page of {address}"
    return address.partition("?")[0] + html.unescape(found[1])


def _filters(client: Client) -> Iterator[Page]:
    now = timezone.now()
    days = {name: f"{now - timedelta(days=age):%Y-%m-%d}" for name, age in AGES.items()}
    for tab in FILTERED_TABS:
        for name, query in FILTERS.items():
            given = {key: value.format(**days) for key, value in query.items()}
            yield Page(f"filter: {name}, {tab}", _list(tab=tab, **given))


def _searches(client: Client) -> Iterator[Page]:
    for tab in FILTERED_TABS:
        for name, words in SEARCHES.items():
            yield Page(f"search: {name}, {tab}", _list(tab=tab, q=words))


def _jobs(client: Client) -> Iterator[Page]:
    """A job of each kind, its form for a copy, and its history."""
    live = Job.objects.unfinished()
    found = {
        "with a key": live.filter(status="ready", concurrency_key__startswith="customer:"),
        "in order": live.filter(
            status="ready", concurrency_key__startswith="order:", rate_limit_keys__isnull=False
        ),
        "paused": live.filter(status="ready", due_at__isnull=True, queue_name="queue_2"),
        "running": live.filter(status="running"),
        "blocked": live.filter(hold__isnull=False),
        "retrying": live.filter(due_at__isnull=False, attempts__gte=1),
        **{status: Job.objects.filter(status=status) for status in TABS[-3:]},
    }
    for name, jobs in found.items():
        job_id = jobs.order_by("-id").values_list("pk", flat=True)[0]
        for kind in ("change", "copy", "history"):
            address = reverse(f"admin:pgjobs_job_{kind}", args=[job_id])
            yield Page(f"job: {kind}, {name}", address)


def _failures(client: Client) -> Iterator[Page]:
    address = reverse("admin:pgjobs_job_failures")
    yield Page("failures: by size", address)
    yield Page("failures: newest", f"{address}?sort=newest")


def _controls(client: Client) -> Iterator[Page]:
    for name in ("queuesettings", "worker", "ratelimit", "concurrencylimit", "pause"):
        yield Page(f"control: {name}", reverse(f"admin:pgjobs_{name}_changelist"))
    yield Page("control: a queue", reverse("admin:pgjobs_queue") + "?name=queue_0")
    worker = Worker.objects.order_by("pk")[0]
    yield Page("control: a worker", reverse("admin:pgjobs_worker_change", args=[worker.pk]))
    for name, key in (
        ("queuesettings", "queue_1"),
        ("ratelimit", "shopify"),
        ("concurrencylimit", "customer:*"),
    ):
        yield Page(
            f"control: {name} form", reverse(f"admin:pgjobs_{name}_change", args=[quote(key)])
        )
    yield Page("control: system", reverse("admin:pgjobs_job_system"))


def _workflows(client: Client) -> Iterator[Page]:
    listed = reverse("admin:pgjobs_batch_changelist")
    queries: list[dict[str, Any]] = [
        {}, {"tab": "unfinished"}, {"tab": "failed"}, {"tab": "broken"}, {"q": "flow 7"},
        {"q": "nothing"}, {"q": "key:nothing"}, {"q": "77"}, {"after": "9000"}, {"before": "9000"},
        {"until_0": "2001-01-01"},
    ]  # fmt: skip
    for query in queries:
        yield Page(f"workflows: {query}", f"{listed}?{urlencode(query)}")
    shown = (("large", TREES), ("part", TREES + 7), ("many jobs", 1), ("small", 77))
    for name, batch_id in shown:
        address = reverse("admin:pgjobs_batch_change", args=[batch_id])
        yield Page(f"workflow: {name}", address)
        yield Page(f"workflow: {name}, further on", f"{address}?behind={TREES + 1_500}")
    cancel = reverse("admin:pgjobs_batch_cancel", args=[TREES])
    yield Page("workflow: cancel", cancel)
    in_batch = Job.objects.filter(batch_id=77)[:1].get()
    yield Page("workflow: job", reverse("admin:pgjobs_job_change", args=[in_batch.pk]))


def _changes(client: Client) -> Iterator[Page]:
    """The pages that ask before a bulk change."""
    job_admin: Any = admin.site._registry[Job]
    for verb in VERBS:
        for name, lookups in SELECTIONS.items():
            yield Page(f"change: {verb}, {name}", bulk_address(job_admin, verb, Selection(lookups)))
    newest = Job.objects.filter(status="failed").order_by("-finished_at")
    ids = newest.values_list("pk", flat=True)[:200]
    yield Page(
        "change: requeue, 200 ticked", bulk_address(job_admin, "requeue", Selection.ids(ids))
    )
    yield Page("change: list of changes", reverse("admin:pgjobs_job_bulk"))
