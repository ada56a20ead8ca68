"""Callbacks: telling a program on the web that a job or a workflow has ended.

A callback is an ordinary job, which is enqueued in the transaction in which the other one ends: so
none is lost, and it is retried until the receiver says that it has it (a status from 200 to 299),
which may be more than once. The receiver knows it again by its `id`.
"""

from __future__ import annotations

import json
import time
from typing import Any, Literal

from django.core.exceptions import ImproperlyConfigured

from django_pgjobs.conf import DEFAULT_QUEUE, get_conf
from django_pgjobs.context import current_job
from django_pgjobs.declaring.calls import Call
from django_pgjobs.declaring.job_result import JobResult
from django_pgjobs.declaring.own_tasks import find_alias, find_queue
from django_pgjobs.declaring.tasks import Task, task
from django_pgjobs.exceptions import CallBackFailed, Discard, Retry
from django_pgjobs.http.destinations import Destination, destination_of
from django_pgjobs.http.posting import Answer, post
from django_pgjobs.http.shown import batch_status, shown_job
from django_pgjobs.http.signatures import sign
from django_pgjobs.models import Batch, Job
from django_pgjobs.models.batch_states import with_states
from django_pgjobs.queries.database import job_database
from django_pgjobs.status import JobStatus
from django_pgjobs.values.job_ids import job_id_of

Event = Literal["complete", "success", "failure"]
EVENTS: tuple[Event, ...] = ("complete", "success", "failure")
# Longer than one POST and what looking up a name takes: neither can be interrupted.
TIMEOUT = 120.0
GONE = 410
LATER = (429, 503)
# What is told of a row that is not there any more.
DELETED = "deleted"

ALIAS = find_alias()


@task(
    backend=ALIAS,
    queue_name=find_queue(ALIAS, DEFAULT_QUEUE),
    timeout=TIMEOUT,
    resets_session=False,
)
def send_call_back(
    number: int, error: str | None = None, *, url: str, only_failure: bool = False
) -> int | None:
    """Tell *url* of the batch *number*, or of the job if there is an *error*, be it empty.

    Return the status of the answer; None if only a failure is told, and there is none.
    """
    told = _told_of_batch(number) if error is None else _told_of_job(number)
    if only_failure and told["job"]["status"] == JobStatus.SUCCESSFUL:
        return None
    try:
        destination = destination_of(url)
    except ValueError as refusal:
        # The setting has changed since.
        raise Discard(str(refusal)) from None
    body = json.dumps({"id": str(current_job().id), **told}, separators=(",", ":")).encode()
    answer = post(destination, body, sign(body, _secret(), at=int(time.time())))
    _judge(destination, answer)
    return answer.status


def call_back(url: str, **options: Any) -> Call:
    """Return the call that tells *url* of the end of a workflow, or of the failure of a job.

    For `on_complete(...)`, `on_success(...)` and `on_failure(...)` of a batch, and for
    `@task(on_failure=...)`. *options* are those of `Task.using`: `queue_name`, `max_attempts`.
    Raise ValueError for a host that CALLBACK_HOSTS does not name, and ImproperlyConfigured without
    a CALLBACK_SECRET.
    """
    return _sender(url, options).s(url=url)


def call_back_after(job: Any, url: str, *, on: Event = "complete", **options: Any) -> JobResult:
    """Let *url* be told when a job has ended; return the job that does so.

    *job* is a Job, a TaskResult or an id. It has to be there: in the transaction that enqueues it,
    or later. *on* "success" or "failure" (which a cancel is, too) tells of nothing else. A job that
    is requeued afterwards is not told of again.
    """
    if on not in EVENTS:
        raise ValueError(f"expected on to be one of {', '.join(map(repr, EVENTS))}, got {on!r}.")
    job_id = job_id_of(job)
    sender = _sender(url, options).using(
        after=[job_id], after_failure="cancel" if on == "success" else "run"
    )
    return sender.enqueue(job_id, "", url=url, only_failure=on == "failure")


def _sender(url: str, options: dict[str, Any]) -> Task:
    destination_of(url)
    _secret()
    return send_call_back.using(**options)


def _secret() -> str:
    secret = get_conf().CALLBACK_SECRET
    if secret is None:
        raise ImproperlyConfigured(
            "expected PGJOBS['CALLBACK_SECRET'], with which callbacks are signed, got none."
        )
    return secret


def _told_of_batch(batch_id: int) -> dict[str, Any]:
    batch = with_states(Batch.objects.using(job_database())).filter(pk=batch_id).first()
    deleted = {"id": str(batch_id), "state": DELETED}
    return {"event": "batch.complete", "batch": batch_status(batch) if batch else deleted}


def _told_of_job(job_id: int) -> dict[str, Any]:
    job = Job.objects.using(job_database()).filter(pk=job_id).first()
    deleted = {"id": str(job_id), "status": DELETED}
    return {"event": "job.complete", "job": shown_job(job) if job else deleted}


def _judge(destination: Destination, answer: Answer) -> None:
    """Raise what lets the attempt fail unless the receiver has taken the callback."""
    if 200 <= answer.status < 300:
        return
    said = f"{destination.authority} answered {answer.status}"
    if answer.status == GONE:
        raise Discard(f"{said}: nobody wants to be called there any more.")
    if answer.status in LATER and answer.retry_after is not None:
        raise Retry(said, after=answer.retry_after)
    is_redirect = 300 <= answer.status < 400
    raise CallBackFailed(f"{said}; redirects are not followed." if is_redirect else f"{said}.")
