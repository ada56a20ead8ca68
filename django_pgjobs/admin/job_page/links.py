"""Where the page of a job leads: searches of the list, its worker, its subject, its trace."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from django.contrib.admin import AdminSite
from django.contrib.admin.utils import quote as quote_key
from django.http import HttpRequest
from django.urls import reverse

from django_pgjobs.admin.addresses import in_quotes, search_address
from django_pgjobs.admin.pages import PageAdmin
from django_pgjobs.conf import get_conf
from django_pgjobs.declaring.subjects import parse_subject
from django_pgjobs.models import Job
from django_pgjobs.permissions import Verb, is_narrowed, may
from django_pgjobs.status import JobStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLinks:
    """The addresses that the page of a job leads to, empty where there is none.

    *tags* are pairs of a tag and an address; *enqueued_by* is a text.
    """

    history: str
    copy: str
    task: str
    queue: str
    key: str
    limits: str
    worker: str
    tags: list[tuple[str, str]]
    subject: str
    schedule: str
    trace: str
    on_failure: str
    enqueued_by: str


def links_of(model_admin: PageAdmin, request: HttpRequest, job: Job) -> JobLinks:
    """Return where the page of *job* leads."""
    listed = model_admin.url("pgjobs_job_changelist")
    # Those pages are about all jobs.
    sees_all = not is_narrowed(request.user)
    may_copy = may(request.user, Verb.ENQUEUE, job)
    names_worker = job.worker_id and sees_all
    return JobLinks(
        history=model_admin.url("pgjobs_job_history", job.pk),
        copy=model_admin.url("pgjobs_job_copy", job.pk) if may_copy else "",
        task=search_address(listed, "task", job.task_path),
        queue=search_address(listed, "queue", job.queue_name),
        key=search_address(listed, "key", job.concurrency_key or ""),
        limits=model_admin.url("pgjobs_ratelimit_changelist") if sees_all else "",
        worker=model_admin.url("pgjobs_worker_change", job.worker_id) if names_worker else "",
        tags=[
            (tag, search_address(listed, "tag", tag)) for tag in job.tags if isinstance(tag, str)
        ],
        schedule=schedule_address(model_admin, job.schedule) if job.schedule and sees_all else "",
        subject=subject_address(model_admin.admin_site, request, job.subject or ""),
        trace=trace_address(job.correlation_id),
        on_failure=failure_address(listed, job),
        enqueued_by=_enqueued_by(job.metadata),
    )


def subject_address(site: AdminSite, request: HttpRequest, text: str) -> str:
    """Return the address of the row that a subject names, "" if it has no page for the person."""
    parsed = parse_subject(text)
    if parsed is None or not site.is_registered(parsed.model):
        return ""
    if not site.get_model_admin(parsed.model).has_view_or_change_permission(request):
        return ""
    meta = parsed.model._meta
    name = f"admin:{meta.app_label}_{meta.model_name}_change"
    return reverse(name, args=[quote_key(parsed.key)], current_app=site.name)


def schedule_address(model_admin: PageAdmin, name: str) -> str:
    """Return the address of the page of a schedule, which may be gone."""
    return f"{model_admin.url('pgjobs_schedule_page')}?{urlencode({'name': name})}"


def failure_address(listed: str, job: Job) -> str:
    """Return where the list shows the job that this one enqueued by failing, "" if it has not.

    No column leads to it, so the list looks for what that job has as its first argument.
    """
    call = job.on_failure
    path = call.get("task_path") if isinstance(call, dict) else None
    if job.status != JobStatus.FAILED or not isinstance(path, str):
        return ""
    return f"{listed}?{urlencode({'q': f'task:{in_quotes(path)} args.0:{job.pk}'})}"


def trace_address(correlation_id: str) -> str:
    """Return the address of a trace, by PGJOBS["TRACE_URL"]; "" without one."""
    pattern = get_conf().TRACE_URL
    if not pattern or not correlation_id:
        return ""
    return pattern.replace("{correlation_id}", quote(correlation_id, safe=""))


def _enqueued_by(metadata: Any) -> str:
    """Return what the metadata says of who enqueued the job."""
    value = metadata.get("enqueued_by") if isinstance(metadata, dict) else None
    return value if isinstance(value, str) else json.dumps(value)[:200] if value else ""
