"""Two tenants on one installation, and every address of the admin asked about them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from django.apps import apps
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import Permission, User
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from django.db.models.functions import Now
from django.test import Client
from django.urls import reverse

from django_pgjobs.admin.job_list.tabs import TABS
from django_pgjobs.admin.job_page.actions import JOB_ACTIONS
from django_pgjobs.bulk.actions import ACTIONS
from django_pgjobs.bulk.selection import Selection
from django_pgjobs.models import (
    Batch,
    BulkChange,
    ConcurrencyLimit,
    Dependency,
    Job,
    Pause,
    QueueSettings,
    RateLimit,
    RateState,
    Schedule,
    Token,
    Worker,
)
from tests.admin.bulk_support import address as bulk_address
from tests.admin.lists import LATER
from tests.factories import make_batch, make_job, make_running_job, make_token, make_worker
from tests.test_admin import NOW

NUMBER = 770077000
NOTHING = 990099000
TASK = "shared.tasks.send"


def only_own(user: Any, permission: str, jobs: Any) -> Any:
    """Let people see and do what is of the queue "own"; a function of a project."""
    return True if jobs is None else jobs.filter(queue_name="own")


ONLY_OWN = f"{__name__}.{only_own.__name__}"


def make_person() -> User:
    """Return somebody with every permission of this package."""
    user = User.objects.create_user("antelope", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(content_type__app_label="pgjobs"))
    return user


def zebra(number: int, **columns: Any) -> int:
    """Make a job of the other tenant, whose every text is a marker, and return its id."""
    given: dict[str, Any] = {
        "queue_name": "zebra-queue",
        "args": ["zebra-arg"],
        "kwargs": {"zebra_name": "zebra-value"},
        "metadata": {"enqueued_by": "zebra-person"},
        "tags": ["zebra-tag"],
        "note": "zebra-note",
        "correlation_id": "zebra-trace",
        "worker_ids": ["zebra-worker"],
        "subject": "auth.user:zebra",
        "rate_limit_keys": "zebra-rate:zebra",
        "errors": [
            {"exception_class": "zebra.Error", "message": "zebra", "traceback": "zebra line"}
        ],
    }
    return make_job(
        columns.pop("task_path", "zebra.tasks.send"), id=NUMBER + number, **given | columns
    )


def zebra_batch(number: int, **columns: Any) -> int:
    """Make a batch of the other tenant and return its id."""
    texts = {"dedupe_key": f"zebra-{number}", "metadata": {"zebra": "zebra"}}
    given = {"jobs": 7707, "failed": 7707, "cancelled": 7707, "sealed_at": None, **texts}
    return make_batch("zebra-flow", id=NUMBER + number, **given | columns)


class Rows:
    """Two tenants on one installation, which share a task, keys and dependencies."""

    def __init__(self, person: User) -> None:
        boss = User.objects.create_user("zebra-boss", is_staff=True, is_superuser=True)
        worker = make_worker(
            "zebra-worker", host="zebra-host", queues=["zebra-queue"], task_paths=["zebra.task"]
        )
        self.theirs = {
            "ready": zebra(1),
            "scheduled": zebra(2, run_after=LATER),
            "running": zebra(
                3, status="running", worker_id=worker, claim=1, attempts=1, started_at=NOW,
                last_attempted_at=NOW, concurrency_key="shared-key", task_path=TASK,
            ),
            "successful": zebra(
                4, status="successful", finished_at=NOW, last_attempted_at=NOW, result="zebra",
                task_path=TASK,
            ),
            "failed": zebra(5, status="failed", finished_at=NOW),
            "cancelled": zebra(6, status="cancelled", finished_at=NOW),
            "twin": zebra(7, unique_key="shared-once", task_path=TASK),
        }  # fmt: skip
        self.worker = worker
        own: dict[str, Any] = {"queue_name": "own", "task_path": TASK}
        self.own = {
            "waits": make_job(**own, hold="dependencies", waits_for=1),
            "held": make_job(**own, hold="predecessor failed"),
            "full": make_job(**own, concurrency_key="shared-key", concurrency_limit=1),
            "twin": make_job(**own, status="failed", finished_at=NOW, unique_key="shared-once"),
            "failed": make_job(**own, status="failed", finished_at=NOW),
            "running": make_running_job(make_worker("own-worker"), **own).id,
            "ready": make_job(**own),
        }
        # A workflow of the other tenant, one of one's own, and one in which both have jobs.
        self.their_batch = zebra_batch(1)
        self.their_part = zebra_batch(2, parent_id=self.their_batch)
        zebra(8, status="failed", finished_at=NOW, batch_id=self.their_batch)
        zebra(9, status="successful", finished_at=NOW, batch_id=self.their_part)
        self.mixed_batch = zebra_batch(3)
        zebra(10, status="failed", finished_at=NOW, batch_id=self.mixed_batch)
        self.own["mixed"] = make_job(
            **own, status="failed", finished_at=NOW, batch_id=self.mixed_batch
        )
        self.own_batch = make_batch("own-flow", jobs=2, failed=1, cancelled=1)
        self.own["in own batch"] = make_job(
            **own, status="failed", finished_at=NOW, batch_id=self.own_batch
        )
        for job_id, predecessor_id in (
            (self.own["waits"], self.theirs["ready"]),
            (self.own["held"], self.theirs["failed"]),
            (self.theirs["twin"], self.own["ready"]),
        ):
            Dependency.objects.create(
                job_id=job_id, predecessor_id=predecessor_id, after_failure="hold"
            )
        for kind, name in (("queue", "zebra-queue"), ("task", "zebra.t"), ("key", "zebra*")):
            self.pause = Pause.objects.create(
                id=NUMBER + len(name), kind=kind, name=name, reason="zebra-why", paused_by="zebra"
            ).pk
        QueueSettings.objects.create(queue_name="zebra-queue", max_running=1, note="zebra-note")
        QueueSettings.objects.create(queue_name="own", boost=5)
        ConcurrencyLimit.objects.create(pattern="zebra", max_running=1, note="zebra-note")
        RateLimit.objects.create(name="zebra-rate", count=1, period=1.0, note="zebra-note")
        Schedule.objects.create(
            name="zebra-schedule", task_path="zebra.tasks.send", args=["zebra-arg"], every=60.0
        )
        secret = make_token("zebra-token", queues=["zebra-queue"], tasks=["zebra.tasks.send"])
        self.token = Token.objects.get(prefix=secret[:8]).pk
        RateState.objects.create(key="zebra-rate:zebra", next_free=Now())
        selection = Selection({"queue_name": "zebra-queue"}).pinned().to_json()
        changes = {"selection": selection, "verb": "cancel", "reason": "zebra-why", "total": 9}
        self.change = BulkChange.objects.create(
            id=NUMBER, user_id=str(boss.pk), error="zebra-error",
            conflict_ids=[[NUMBER + 1, NUMBER + 7]], conflicts=1, **changes,
        ).pk  # fmt: skip
        twins = [[self.own["twin"], self.theirs["twin"]]]
        self.own_change = BulkChange.objects.create(
            user_id=str(person.pk), verb="requeue", selection=Selection.ids([1]).pinned().to_json(),
            conflicts=1, conflict_ids=twins, job_id=self.theirs["ready"],
        ).pk  # fmt: skip
        logged = ((Job, NUMBER + 1), (Worker, worker), (Batch, self.their_batch))
        for model, number in logged:
            LogEntry.objects.create(
                user=boss,
                content_type=ContentType.objects.get_for_model(model),
                object_id=number,
                object_repr="zebra",
                action_flag=CHANGE,
                change_message="zebra",
            )


def on_job(name: str, *more: str) -> Callable[[Rows, bool], list[str]]:
    """Return what lists the addresses of a page of one job: of own ones, or of the other's."""

    def addresses(rows: Rows, is_own: bool) -> list[str]:
        jobs = rows.own if is_own else rows.theirs
        return [reverse(f"admin:{name}", args=[job_id, *more]) for job_id in jobs.values()]

    return addresses


def plain(name: str, *queries: str) -> Callable[[Rows, bool], list[str]]:
    """Return what lists a page without a key, and with queries that name the other tenant's."""
    return lambda rows, is_own: [
        reverse(f"admin:{name}") + query for query in ([""] if is_own else queries)
    ]


def keyed(name: str, key: Callable[[Rows], Any]) -> Callable[[Rows, bool], list[str]]:
    """Return what lists the page of a row of the whole installation."""
    return lambda rows, is_own: [] if is_own else [reverse(f"admin:{name}", args=[key(rows)])]


def doing(rows: Rows, is_own: bool) -> list[str]:
    """List the buttons of jobs."""
    return [
        address for name in JOB_ACTIONS for address in on_job("pgjobs_job_do", name)(rows, is_own)
    ]


def lists(rows: Rows, is_own: bool) -> list[str]:
    """List the list of jobs: its tabs, or searches for what the other tenant has."""
    listed = reverse("admin:pgjobs_job_changelist")
    if is_own:
        own = [{}, *({"tab": tab.key} for tab in TABS), {"q": "task:send"}, {"q": "key:shared-key"}]
        return [f"{listed}?{urlencode(query)}" for query in own]
    terms = (
        "zebra", "queue:zebra-queue", "task:zebra.tasks.send", "tag:zebra-tag", "error:zebra",
        "worker:zebra-worker", "key:zebra", "args.zebra_name:zebra-value", "args.0:zebra-arg",
        "subject:auth.user:zebra", f"batch:{NUMBER + 1}",
        f"tree:{NUMBER + 1}", str(NUMBER + 1),
    )  # fmt: skip
    queries = [{"q": term} for term in terms] + [
        {"queue": "zebra-queue"},
        {"task": "zebra.tasks.send"},
        {"worker": "zebra-worker"},
        {"after": str(NUMBER + 3)},
        {"before": str(NUMBER - 1)},
        {"count_after": str(NUMBER - 1)},
        {"tab": "failed", "count_after": str(NUMBER - 1)},
    ]
    return [f"{listed}?{urlencode(query)}" for query in queries]


def bulk(rows: Rows, is_own: bool) -> list[str]:
    """List the pages that ask before a bulk change: of everything, or of the other's jobs."""
    chosen: list[dict[str, Any]] = [{"queue_name": "zebra-queue"}, {"id__in": [NUMBER + 5]}]
    if is_own:
        chosen = [{}, {"key": "shared-key"}]
    pages = [bulk_address(verb, Selection(lookups)) for verb in ACTIONS for lookups in chosen]
    return [*pages, reverse("admin:pgjobs_job_bulk")] if is_own else pages


def key_of(model: str) -> Callable[[Rows], Any]:
    """Return what gives the key of a row of *model* of the other tenant."""
    keys = {
        "queuesettings": lambda rows: "zebra-queue",
        "concurrencylimit": lambda rows: "zebra",
        "ratelimit": lambda rows: "zebra-rate",
        "schedule": lambda rows: "zebra-schedule",
        "pause": lambda rows: rows.pause,
        "token": lambda rows: rows.token,
        "worker": lambda rows: rows.worker,
    }
    return keys[model]


# Of which every row is of the whole installation.
MODELS = ("concurrencylimit", "pause", "queuesettings", "ratelimit", "schedule", "token", "worker")


def workflows(rows: Rows, is_own: bool) -> list[str]:
    """List the list of workflows: its tabs, or searches for what the other tenant has."""
    listed = reverse("admin:pgjobs_batch_changelist")
    if is_own:
        tabs = ("all", "unfinished", "broken", "failed", "cancelled", "successful")
        return [f"{listed}?tab={tab}" for tab in tabs]
    terms = ("zebra", "key:zebra-1", str(NUMBER + 1), str(NUMBER + 2))
    places = [{"after": str(NUMBER + 3)}, {"before": str(NUMBER - 1)}]
    return [f"{listed}?{urlencode(query)}" for query in [*({"q": term} for term in terms), *places]]


def on_batch(name: str) -> Callable[[Rows, bool], list[str]]:
    """Return what lists the addresses of a page of one batch."""

    def addresses(rows: Rows, is_own: bool) -> list[str]:
        theirs = (rows.their_batch, rows.their_part, rows.mixed_batch)
        return [
            reverse(f"admin:{name}", args=[pk]) for pk in ([rows.own_batch] if is_own else theirs)
        ]

    return addresses


# Every address of this package, and what is asked of it.
MATRIX: dict[str, Callable[[Rows, bool], list[str]]] = {
    "pgjobs_batch_changelist": workflows,
    "pgjobs_batch_add": plain("pgjobs_batch_add"),
    **{
        f"pgjobs_batch_{name}": on_batch(f"pgjobs_batch_{name}")
        for name in ("cancel", "change", "delete", "history", "seal")
    },
    "pgjobs_job_changelist": lists,
    "pgjobs_job_add": plain("pgjobs_job_add"),
    "pgjobs_job_overview": plain("pgjobs_job_overview", "?range=24h"),
    "pgjobs_job_failures": plain("pgjobs_job_failures", "?jobs=all", "?sort=newest"),
    "pgjobs_job_stuck": plain("pgjobs_job_stuck"),
    "pgjobs_job_mute": plain("pgjobs_job_mute", "?kind=unserved&subject=zebra-queue"),
    "pgjobs_job_unmute": plain("pgjobs_job_unmute"),
    "pgjobs_job_where": on_job("pgjobs_job_where"),
    "pgjobs_job_system": plain("pgjobs_job_system"),
    "pgjobs_job_bulk": bulk,
    "pgjobs_job_bulk_progress": lambda rows, is_own: [
        reverse("admin:pgjobs_job_bulk_progress", args=[rows.own_change if is_own else rows.change])
    ],
    "pgjobs_job_do": doing,
    "pgjobs_job_change": on_job("pgjobs_job_change"),
    "pgjobs_job_copy": on_job("pgjobs_job_copy"),
    "pgjobs_job_delete": on_job("pgjobs_job_delete"),
    "pgjobs_job_download": on_job("pgjobs_job_download"),
    "pgjobs_job_history": on_job("pgjobs_job_history"),
    "pgjobs_queue": plain("pgjobs_queue", "?name=zebra-queue"),
    "pgjobs_queue_pause": plain("pgjobs_queue_pause", "?kind=queue&name=zebra-queue"),
    "pgjobs_queue_resume": plain("pgjobs_queue_resume"),
    "pgjobs_rate_reset": plain("pgjobs_rate_reset"),
    "pgjobs_schedule_page": plain("pgjobs_schedule_page", "?name=zebra-schedule"),
    "pgjobs_schedule_preview": plain("pgjobs_schedule_preview", "?cron=@daily"),
    "pgjobs_schedule_run": plain("pgjobs_schedule_run", "?name=zebra-schedule"),
    "pgjobs_schedule_backfill": plain("pgjobs_schedule_backfill", "?name=zebra-schedule"),
    "pgjobs_schedule_do": plain("pgjobs_schedule_do"),
    **{
        f"pgjobs_token_{name}": keyed(f"pgjobs_token_{name}", key_of("token"))
        for name in ("revoke", "rotate")
    },
    "pgjobs_worker_control": plain("pgjobs_worker_control"),
    **{
        f"pgjobs_{model}_{name}": plain(f"pgjobs_{model}_{name}", "?q=zebra")
        for model in MODELS
        for name in ("add", "changelist")
    },
    **{
        f"pgjobs_{model}_{name}": keyed(f"pgjobs_{model}_{name}", key_of(model))
        for model in MODELS
        for name in ("change", "delete", "history")
    },
}


def nothing_in(text: str) -> str:
    """Return the request about something that is not there."""
    return text.replace("zebra", "quagga").replace(str(NUMBER)[:6], str(NOTHING)[:6])


def shown(response: Any) -> str:
    """Return what an answer says, without what differs at every time."""
    body = b"".join(response.streaming_content) if response.streaming else response.content
    text = f"{response.status_code} {response.headers.get('Location', '')} {body.decode()}"
    for pattern in (r'value="[^"]{40,}"', r"selection=[\w%:.-]+", r"\b[\d.,]+\s(ms|s|min)\b"):
        text = re.sub(pattern, "…", text)
    return text


def ask(client: Client, address: str) -> str:
    """Return what a page says, and the part of it that refreshes itself."""
    text = shown(client.get(address))
    if "pgjobs-live" not in text:
        return text
    return text + shown(client.get(address, headers={"X-Requested-With": "pgjobs-live"}))


def state() -> dict[str, Any]:
    """Return everything that is stored, but for the person's own jobs and changes."""
    found: dict[str, Any] = {}
    own = {
        "pgjobs_job": "queue_name <> 'own'",
        "pgjobs_bulk_change": f"id >= {NUMBER}",
        # Web processes of other tests write what they have counted late.
        "pgjobs_statistic": "task_path !~ '^(tests[.]clients|example_project)[.]'",
    }
    with connection.cursor() as cursor:
        for model in apps.get_app_config("pgjobs").get_models():
            table = model._meta.db_table
            where = own.get(table, "TRUE")
            cursor.execute(
                f"SELECT array_agg(t::text ORDER BY t::text) FROM {table} t WHERE {where}"
            )
            found[table] = cursor.fetchone()[0]
    return found
