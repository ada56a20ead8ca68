"""The page of one job: what it is, why it does not run, what it did, and what may be done to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from django.db.models import TextField
from django.db.models.functions import Cast
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from django_pgjobs.admin import audit
from django_pgjobs.admin.breadcrumbs import jobs_step
from django_pgjobs.admin.job_page.actions import buttons_for
from django_pgjobs.admin.job_page.around import seen_around, seen_note, shown_reasons
from django_pgjobs.admin.job_page.attempts import attempts_of
from django_pgjobs.admin.job_page.batch import batch_of
from django_pgjobs.admin.job_page.json_html import json_html, printable
from django_pgjobs.admin.job_page.links import links_of
from django_pgjobs.admin.job_page.origins import origins_of
from django_pgjobs.admin.job_page.runs import is_finite, lately, timeline
from django_pgjobs.admin.pages import PageAdmin
from django_pgjobs.bulk.dependants import MAX_DEPENDANTS
from django_pgjobs.conf import get_conf
from django_pgjobs.control.details import detail_of, find_paused
from django_pgjobs.control.stacks import where_it_is
from django_pgjobs.declaring.redaction import MASK, redact, redact_text
from django_pgjobs.declaring.registry import find_task, is_discovered
from django_pgjobs.exceptions import UnknownTask
from django_pgjobs.models import Job, Worker
from django_pgjobs.models.fields import Undecodable
from django_pgjobs.permissions import Verb, may, narrow, require
from django_pgjobs.queries.database import job_cursor
from django_pgjobs.queries.job_page import MAX_NEIGHBOURS, Surroundings, describe_job
from django_pgjobs.status import UNFINISHED, JobStatus
from django_pgjobs.values.job_ids import parse_job_id
from django_pgjobs.values.payload import decode_value

# Characters of markup for all JSON values of a page together, and for a single one at least.
MAX_VALUES = 65_536
MIN_VALUE = 2_048
# Other jobs that a page names, or counts.
MOST = {"max_neighbours": MAX_NEIGHBOURS, "max_dependants": MAX_DEPENDANTS}
DOWNLOADED = ("args", "kwargs", "metadata", "progress", "result", "errors")


class Shown(NamedTuple):
    """A JSON value of the job: its name, the id of its element, and its markup."""

    title: str
    slug: str
    html: SafeString


def find_job(request: HttpRequest, object_id: str) -> Job | None:
    """Return the job of an address, None if there is none that the person may see.

    Raise PermissionDenied for a person who may see no job at all.
    """
    require(request, Verb.VIEW)
    job_id = parse_job_id(object_id)
    if job_id is None:
        return None
    # As text: what it holds may be too deep for json.loads.
    found = Job.objects.defer("errors").annotate(errors_text=Cast("errors", TextField()))
    return narrow(request.user, Verb.VIEW, found.filter(pk=job_id)).first()


def errors_of(job: Any) -> Any:
    """Return the job's recorded errors, an Undecodable if Python cannot hold them."""
    try:
        return decode_value(job.errors_text)
    except ValueError:
        return Undecodable(job.errors_text)


def draw_job(model_admin: PageAdmin, request: HttpRequest, object_id: str) -> HttpResponse:
    """Return the page of a job, or one with status 404 that says where jobs go."""
    job = find_job(request, object_id)
    if job is None:
        return draw_missing(model_admin, request, object_id)
    try:
        explanation = job.explain() if job.status in UNFINISHED else None
    except LookupError:  # deleted a moment ago
        return draw_missing(model_admin, request, object_id)
    reveals = is_revealed(request, job)
    around = seen_around(request.user, _surroundings(job))
    values = list(_values(model_admin, job, reveal=reveals))
    context = {
        "title": f"{printable(job.task_path)} #{job.pk}",
        "steps": [jobs_step(model_admin)],
        "job": job,
        "note": seen_note(request.user, job.note),
        "detail": detail_of(job, is_paused=job.pk in find_paused([job])),
        "is_unfinished": job.status in UNFINISHED,
        "is_unknown": is_missing_task(job.task_path),
        "buttons": buttons_for(model_admin, request, job),
        "reasons": shown_reasons(model_admin, request, job, explanation) if explanation else [],
        "progress": _progress(job.progress),
        "stack": where_it_is(job.pk) if job.status == JobStatus.RUNNING else None,
        "may_ask": _can_be_asked(job) and may(request.user, Verb.CONTROL_WORKERS),
        "timeline": timeline(job),
        "around": around,
        "origins": origins_of(request, job),
        "in_batch": batch_of(model_admin, request, job),
        **MOST,
        "links": links_of(model_admin, request, job),
        "values": values,
        "is_masked": any(MASK in value.html for value in values),
        "attempts": attempts_of(errors_of(job), _last_to_fail(job)),
        "lately": lately(around.runs),
        "is_revealed": reveals,
        "may_reveal": may(request.user, Verb.REVEAL, job),
        "pgjobs_live": job.status in UNFINISHED and not reveals,
    }
    return model_admin.render_page(request, "job_page.html", context)


def draw_missing(model_admin: PageAdmin, request: HttpRequest, object_id: str) -> HttpResponse:
    """Return the page about a job that is not there, with status 404."""
    conf = get_conf()
    context = {
        "title": _("This job does not exist"),
        "steps": [jobs_step(model_admin)],
        "object_id": printable(object_id)[:100],
        "retention": conf.RETENTION_SECONDS,
        "failed_retention": conf.FAILED_RETENTION_SECONDS,
    }
    response = model_admin.render_page(request, "job_missing.html", context)
    response.status_code = 404
    return response


def is_revealed(request: HttpRequest, job: Job) -> bool:
    """Does the person ask for masked values (?reveal=1) and may see them? Write that down."""
    if "reveal" not in request.GET:
        return False
    require(request, Verb.REVEAL, job)
    audit.record(request.user, "reveal", job=job, count=1)
    return True


def draw_download(model_admin: PageAdmin, request: HttpRequest, object_id: str) -> HttpResponse:
    """Return everything that is stored of a job as JSON, masked unless it is asked otherwise."""
    job = find_job(request, object_id)
    if job is None:
        return draw_missing(model_admin, request, object_id)
    reveals = is_revealed(request, job)
    values = {
        name: _plain(errors_of(job) if name == "errors" else getattr(job, name), reveal=reveals)
        for name in DOWNLOADED
    }
    head = {"id": job.pk, "task_path": job.task_path, "status": job.status}
    response = JsonResponse(head | values, json_dumps_params={"indent": 2})
    response["Content-Disposition"] = f'attachment; filename="job-{job.pk}.json"'
    return response


def _last_to_fail(job: Job) -> int:
    """Return the number of the last attempt that can have failed."""
    is_on_the_way = job.status in (JobStatus.RUNNING, JobStatus.SUCCESSFUL)
    return job.attempts - is_on_the_way


def _can_be_asked(job: Job) -> bool:
    """Does a worker run it that can tell where it is? One over HTTP cannot."""
    if job.status != JobStatus.RUNNING or job.worker_id is None:
        return False
    return Worker.objects.filter(pk=job.worker_id, token_id=None).exists()


def is_missing_task(path: str) -> bool:
    """Is the task certainly not declared here? Unknown as long as nothing has loaded the tasks."""
    try:
        find_task(path)
    except UnknownTask:
        return is_discovered()
    return False


def _plain(value: Any, *, reveal: bool) -> Any:
    if isinstance(value, Undecodable):
        return str(value) if reveal else redact_text(str(value))
    return value if reveal else redact(value)


def _surroundings(job: Job) -> Surroundings:
    with job_cursor() as cursor:
        return describe_job(
            cursor,
            job.pk,
            task_path=job.task_path,
            unique_key=job.unique_key,
            concurrency_key=job.concurrency_key,
            worker_id=job.worker_id,
        )


def _values(model_admin: PageAdmin, job: Job, *, reveal: bool) -> Iterable[Shown]:
    """Yield what the job holds as JSON; together they stay within MAX_VALUES."""
    room = MAX_VALUES
    whole_url = model_admin.url("pgjobs_job_download", job.pk) + ("?reveal=1" if reveal else "")
    for name, title, is_shown in (
        ("args", _("Positional arguments"), job.args != []),
        ("kwargs", _("Keyword arguments"), job.kwargs != {} or job.args == []),
        ("result", _("Result"), job.result is not None or job.status == JobStatus.SUCCESSFUL),
        ("metadata", _("Metadata"), job.metadata != {}),
    ):
        if is_shown:
            html = json_html(
                getattr(job, name), reveal=reveal, whole_url=whole_url, limit=max(room, MIN_VALUE)
            )
            room -= len(html)
            yield Shown(title, name, html)


class ShownProgress(NamedTuple):
    """What a job has said of how far it is; what it did not say is None."""

    done: float | None
    total: float | None
    percent: int | None
    message: str


def _progress(progress: Any) -> ShownProgress | None:
    """Return what a <progress> shows, None if the job has said nothing that can be shown."""
    if not isinstance(progress, dict):
        return None
    done, total = _number(progress.get("done")), _number(progress.get("total"))
    message = progress.get("message")
    return ShownProgress(
        done,
        total,
        percent=round(min(max(done / total, 0), 1) * 100) if total and done is not None else None,
        message=printable(message)[:500] if isinstance(message, str) else "",
    )


def _number(value: Any) -> float | None:
    is_usable = is_finite(value) and not isinstance(value, bool) and abs(value) < 1e15
    return value if is_usable else None
