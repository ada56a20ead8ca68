"""A filled installation to look at: jobs of every kind, workers, limits, pauses, odd rows."""

from __future__ import annotations

import random
from typing import Any

from django.contrib.auth.models import Permission, User
from psycopg import sql

from django_pgjobs.models import ConcurrencyLimit, Pause, QueueSettings, RateLimit
from tests.factories import make_job, make_jobs, make_running_job, make_worker

TASKS = [
    ("example_project.shop.mail.send_welcome_mail", "mail"),
    ("example_project.shop.payments.apply_payment", "payments"),
    ("example_project.integrations.syncing.sync_product", "sync"),
    ("billing.tasks.send_invoice", "billing"),
    ("reports.tasks.build_monthly_report", "reports"),
]
FAILURES = [
    ("requests.exceptions.ConnectTimeout", "Read timed out after {0} s: host 'api-{0}.example'"),
    ("builtins.KeyError", "'customer_{0}'"),
    ("django.db.utils.IntegrityError", "duplicate key value violates unique constraint (id)=({0})"),
]
TRACEBACK = """Traceback (most recent call last):
  File "/srv/venv/lib/python3.12/site-packages/requests/adapters.py", line 688, in send
    raise ConnectTimeout(e, request=request)
  File "/srv/shop/billing/tasks.py", line 41, in send_invoice
    client.post(invoice.url, json=payload)
{0}: {1}
"""


def ago(seconds: float) -> sql.Composable:
    """Return SQL of an instant in the past."""
    return sql.SQL("now() - make_interval(secs => {})").format(seconds)


def error_of(number: int) -> dict[str, Any]:
    """Return an entry of a job's list of errors."""
    name, message = FAILURES[number % len(FAILURES)]
    text = message.format(number)
    return {
        "attempt": 1,
        "exception_class": name,
        "message": text,
        "traceback": TRACEBACK.format(name, text),
    }


def make_users() -> None:
    """Make `admin`, who may do everything, and `viewer`, who may look only."""
    User.objects.create_superuser("admin", "admin@example.com", "admin")
    viewer = User.objects.create_user("viewer", password="viewer", is_staff=True)
    viewer.user_permissions.set(
        Permission.objects.filter(content_type__app_label="pgjobs", codename__startswith="view_")
    )


def fill(seed: int = 1) -> None:
    """Fill the tables with a day of work; the same each time."""
    chance = random.Random(seed)
    make_users()
    workers = [
        make_worker(f"web-{number}:440{number}", host=f"web-{number}", slots=8, version="0.3")
        for number in (1, 2)
    ]
    make_worker("web-3:9", host="web-3", lease_seconds=-600, lost=True, ended_at=ago(300))
    _fill_finished(chance, workers)
    _fill_waiting(chance)
    for number in range(5):
        make_running_job(
            workers[number % 2],
            task_path=TASKS[number][0],
            queue_name=TASKS[number][1],
            args=[number],
            progress={"done": number * 20, "total": 100, "message": "pages"},
        )
    _fill_controls()


def _fill_finished(chance: random.Random, workers: list[int]) -> None:
    for number in range(400):
        path, queue = TASKS[number % len(TASKS)]
        age = chance.random() ** 2 * 86_400
        ran = chance.random() * 5
        status = "failed" if number % 9 == 0 else "cancelled" if number % 50 == 7 else "successful"
        make_job(
            path,
            queue_name=queue,
            status=status,
            args=[number],
            kwargs={"customer": f"c{number}", "api_token": "s3cret-value"},
            attempts=3 if status == "failed" else 1,
            max_attempts=3,
            errors=[error_of(number // 9)] if status == "failed" else [],
            result=sql.SQL("'{\"mails\": 3}'::json") if status == "successful" else None,
            worker_id=workers[number % 2],
            worker_ids=[f"web-{number % 2 + 1}:440{number % 2 + 1}"],
            enqueued_at=ago(age + ran + 1),
            started_at=ago(age + ran),
            last_attempted_at=ago(age + ran),
            finished_at=ago(age),
            tags=["nightly"] if number % 4 == 0 else [],
        )


def _fill_waiting(chance: random.Random) -> None:
    make_jobs(57, "legacy.tasks.export", queue_name="legacy", enqueued_at=ago(1_900))
    make_jobs(30, TASKS[0][0], queue_name="mail", kwargs={"user": 1, "password": "hunter2"})
    make_jobs(12, TASKS[4][0], queue_name="reports", priority=-10, enqueued_at=ago(600))
    for number in range(20):
        make_job(
            TASKS[3][0],
            queue_name="billing",
            attempts=1,
            max_attempts=5,
            due_at=sql.SQL("now() + make_interval(secs => {})").format(40 + chance.random() * 900),
            note="retry after ConnectTimeout",
            errors=[error_of(number)],
            concurrency_key=f"customer:{number % 3}",
        )
    make_jobs(15, TASKS[2][0], queue_name="sync", run_after=sql.SQL("now() + interval '3 hours'"))
    make_jobs(
        8, TASKS[2][0], queue_name="sync", concurrency_key="shop:7", rate_limit_keys="shopify:7"
    )
    make_jobs(3, TASKS[1][0], queue_name="payments", hold="dependencies", waits_for=1)


def _fill_controls() -> None:
    Pause.objects.create(kind="queue", name="reports", reason="PDF bug", paused_by="anna")
    QueueSettings.objects.create(queue_name="billing", max_running=5, boost=10, note="month's end")
    ConcurrencyLimit.objects.create(pattern="shop:*", max_running=5, weight=2)
    RateLimit.objects.create(name="shopify", count=40, period=1.0, note="their API")
