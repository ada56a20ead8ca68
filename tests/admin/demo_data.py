"""A filled installation to look at: jobs of every kind, workers, limits, pauses, odd rows."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import Permission, User
from django.db import connection
from django.db.models.functions import Now
from django.utils import timezone
from psycopg import sql

from django_pgjobs.models import (
    Batch,
    ConcurrencyLimit,
    Job,
    Mute,
    Occurrence,
    Pause,
    QueueSettings,
    RateLimit,
    Schedule,
    Stack,
    Statistic,
    Worker,
)
from django_pgjobs.queries.statistics import measure_queues
from tests.admin.overview_support import record
from tests.factories import (
    ago,
    make_batch,
    make_job,
    make_jobs,
    make_running_job,
    make_token,
    make_worker,
)

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
    _fill_workflows()
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
    _fill_stuck(workers[0])
    _fill_controls()
    _fill_tokens()
    _fill_statistics()
    # They know all tasks but one whose code is gone.
    known = Job.objects.exclude(queue_name="legacy").values_list("task_path", flat=True)
    Worker.objects.update(task_paths=sorted(set(known)))


# What the workers would have written: a wave of ready jobs, and times of attempts.
TIMES = """
UPDATE pgjobs_statistic SET enqueued = successful + failed,
    waits = CASE queue_name WHEN 'reports' THEN '{0,0,0,0,0,0,0,0,0,1,2,4,6,3,1}'
        ELSE '{0,0,1,2,4,6,4,2,1}' END::bigint[],
    runs = CASE queue_name WHEN 'mail' THEN '{0,0,0,0,0,0,3,6,4,1}'
        ELSE '{0,0,0,0,0,0,0,0,1,3,6,8,5,1}' END::bigint[]
"""
SAMPLES = """
INSERT INTO pgjobs_queue_sample (measured_at, queue_name, ready, last_job_id)
SELECT
    now() - interval '1 minute' * minute, queue.name,
    greatest(0, 1.5 * queue.jobs * (1 + sin(minute / 25.0)) + minute % 3)::bigint,
    CASE WHEN queue.name IS NULL THEN 0 END
FROM generate_series(1, 240) AS minute
CROSS JOIN (
    VALUES (NULL, 120), ('mail', 40), ('legacy', 30), ('reports', 30), ('sync', 10), ('billing', 5)
) AS queue (name, jobs)
"""


def _fill_statistics() -> None:
    record()
    with connection.cursor() as cursor:
        cursor.execute(TIMES)
        cursor.execute(SAMPLES)
        measure_queues(cursor)


def _fill_tokens() -> None:
    """Fill in programs of others: one that works, one whose time is over, one shut out."""
    make_token("shop-front", verbs=["enqueue", "read"], per_second=50.0, created_by="admin")
    make_token("old node", expires_at=ago(86_400), last_used_at=ago(90_000))
    make_token("lost laptop", revoked_at=ago(3_600))
    make_token("node-1", verbs=["work"], queues=["sync"], last_used_at=ago(30))


def _fill_stuck(worker: int) -> None:
    """Fill in a job that hangs, where it is, and a warning that is muted."""
    path, queue = TASKS[3]
    hour = timedelta(hours=1)
    Statistic.objects.create(
        begins_at=timezone.now() - hour, queue_name=queue, task_path=path,
        successful=400, ran=900.0, runs=[0] * 11 + [300, 100],
    )  # fmt: skip
    changed_at = (timezone.now() - hour).isoformat(timespec="seconds")
    report = {"done": 17, "total": 40, "message": "invoices"}
    job = make_running_job(
        worker,
        task_path=path,
        queue_name=queue,
        last_attempted_at=ago(7_000),
        progress={**report, "changed_at": changed_at, "longest_pause": 1.4},
    )
    lines = [("/srv/shop/billing/tasks.py", 88, "charge"), ("/srv/shop/bank.py", 41, "Bank.ask")]
    stack = "\n".join(f'  File "{path}", line {line}, in {name}' for path, line, name in lines)
    Stack.objects.create(
        job_id=job.id, claim=1, worker_id=worker, written_at=timezone.now(), stack=stack
    )
    Mute.objects.create(
        kind="lost_workers", reason="PDF bug", muted_by="admin",
        until=timezone.now() + 3 * hour,
    )  # fmt: skip


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
    _fill_schedules()


def _fill_schedules() -> None:
    """Make schedules of each state, and what became of the last days of one."""
    day = timedelta(days=1)
    night = timezone.now().replace(hour=2, minute=0, second=0, microsecond=0)
    finished = Job.objects.finished().order_by("-pk").values_list("pk", flat=True)
    for number, job_id in enumerate(finished[:20]):
        is_missed = number in (5, 6)
        Occurrence.objects.create(
            schedule="nightly report",
            scheduled_for=night - number * day,
            outcome="missed" if is_missed else "enqueued",
            note="No worker was there." if is_missed else "",
            job_id=None if is_missed else job_id,
        )
    path = TASKS[4][0]
    rows = [
        Schedule(
            name="nightly report",
            task_path=path,
            args=["sales"],
            kwargs={"api_token": "s3cret-value"},
            cron="0 3 * * *",
            timezone="Europe/Berlin",
            declared={"cron": "0 2 * * *"},
            changed_fields=["cron"],
            last_at=night,
            runs=118,
        ),
        Schedule(name="sync stock", task_path=TASKS[2][0], every=10.0, error="no key today"),
        Schedule(
            name="month's end",
            task_path=path,
            cron="0 9 LW * *",
            timezone="America/New_York",
            paused_at=timezone.now(),
            paused_by="anna",
            pause_reason="audit",
        ),
        Schedule(name="odd rule", task_path=path, cron="0 9 * *"),
    ]
    Schedule.objects.bulk_create(rows)
    late = timezone.now() - timedelta(minutes=9)
    planned = {"nightly report": night + day, "sync stock": late, "month's end": None}
    for name, next_at in planned.items():
        Schedule.objects.filter(name=name).update(next_at=next_at)
    Schedule.objects.filter(name="odd rule").update(next_at=None, error="It is not planned: ...")


def _fill_workflows() -> None:
    """Workflows in all states; the newest is on its way."""
    ended = {"completed_at": ago(3_000), "tree_completed_at": ago(2_900), "created_at": ago(4_000)}
    make_batch("nightly", jobs=40, successful=40, completions=1, **ended)
    make_batch("newsletter", jobs=900, successful=200, cancelled=700, tree_failed=True,
               cancel_requested_at=ago(3_500), **ended)  # fmt: skip
    broken = make_batch("import", jobs=3, successful=1, created_at=ago(9_000))
    make_batch("fetch", parent_id=broken, follows="each item", sealed_at=None,
               broken="SQLSTATE 22003")  # fmt: skip
    poor = make_batch("catalogue", dedupe_key="2026-11", jobs=12, successful=9, failed=3,
                      tree_failed=True, **ended)  # fmt: skip
    make_jobs(3, TASKS[2][0], queue_name="sync", status="failed", batch_id=poor, attempts=3,
              errors=[error_of(1)], finished_at=ago(3_100), enqueued_at=ago(3_900))  # fmt: skip
    make_batch("upload", sealed_at=None, created_at=ago(90_000))
    _fill_payroll()


def _fill_payroll() -> None:
    pay = make_batch(
        "payroll", dedupe_key="2026-11", jobs=312, successful=310, failed=2, open_children=1,
        created_at=ago(65), sealed_at=None, metadata={"month": "2026-11", "api_token": "s3cret"},
        callbacks=[{"event": "complete", "task_path": "shop.payroll.mail_summary"}],
    )  # fmt: skip
    cheques = make_batch("write_cheque", parent_id=pay, follows="each", sealed_at=None, jobs=310,
                         successful=288, failed=4, cancelled=1, created_at=ago(65))  # fmt: skip
    last = make_batch("print_all", parent_id=cheques, follows="gather", sealed_at=None,
                      created_at=ago(65))  # fmt: skip
    for number in range(3):
        make_batch(f"bonus {number}", parent_id=pay, jobs=10, successful=10,
                          completed_at=ago(20), tree_completed_at=ago(20))  # fmt: skip
    with connection.cursor() as cursor:
        for batch, waits_for in ((cheques, pay), (last, cheques)):
            cursor.execute(
                "INSERT INTO pgjobs_batch_edge (batch_id, waits_for) VALUES (%s, %s)",
                [batch, waits_for],
            )
    # What plain SQL adds is counted by the server.
    make_jobs(88, TASKS[4][0], queue_name="reports", batch_id=pay)
    Batch.objects.filter(pk=pay).update(sealed_at=Now())
    for number, batch in enumerate((pay, pay, cheques, cheques, cheques, cheques)):
        make_job(TASKS[4][0], queue_name="reports", status="failed", batch_id=batch, attempts=3,
                 max_attempts=3, errors=[error_of(number + 3)], finished_at=ago(42 - 6 * number),
                 enqueued_at=ago(50))  # fmt: skip
