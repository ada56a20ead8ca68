"""Jobs: enqueue one, look at them, cancel one."""

from __future__ import annotations

from typing import cast

from django.db.models import Q

from django_pgjobs.control.lifecycle import cancel
from django_pgjobs.exceptions import JobError
from django_pgjobs.http.access import Access
from django_pgjobs.http.calling import call_back_after
from django_pgjobs.http.calls import NewJob, blamed_on, read_job
from django_pgjobs.http.owning import jobs_of, require_jobs
from django_pgjobs.http.pages import QUERY, identifier_of, page_of
from django_pgjobs.http.problems import not_found, unavailable
from django_pgjobs.http.requests import ApiRequest, Reply
from django_pgjobs.http.routing import Handler, route
from django_pgjobs.http.sessions import in_bounded_time, in_transaction, until_done
from django_pgjobs.http.shown import shown_job, shown_whole_job
from django_pgjobs.models import Job
from django_pgjobs.models.batch_states import in_batches
from django_pgjobs.queries.database import job_database
from django_pgjobs.status import JobStatus
from django_pgjobs.values.bounds import MAX_TASK_PATH_BYTES


def enqueue_job(request: ApiRequest) -> Reply:
    """Enqueue a job, and what is called at its end, or neither."""
    fields = request.fields()
    new = read_job(fields, request.access, callbacks=True)
    fields.check()
    # Nothing is wrong with it, so it is there.
    job_id = in_transaction(lambda: _enqueue(cast(NewJob, new), request.access))
    job = Job.objects.using(job_database()).get(pk=job_id)
    return Reply(201, shown_job(job), {"Location": f"jobs/{job_id}"})


def _enqueue(new: NewJob, access: Access) -> int:
    call = new.call
    with blamed_on(new.fields):
        result = call.task.enqueue(*call.args, **call.kwargs)
        for told in new.callbacks:
            call_back_after(result, told.call.kwargs["url"], on=told.on)
    require_jobs(access, [result.id])
    return int(result.id)


def list_jobs(request: ApiRequest) -> Reply:
    """List jobs, newest first."""
    jobs = jobs_of(request.access)
    batch_id = identifier_of(request, "batch")
    if batch_id is not None:
        jobs = jobs.filter(in_batches(Q(batch_id=batch_id)))
    status = request.query("status", choices=JobStatus.values)
    if status is not None:
        jobs = jobs.filter(status=status)
    for name, column in (("task", "task_path"), ("queue", "queue_name")):
        wanted = request.query(name, max_length=MAX_TASK_PATH_BYTES)
        if wanted is not None:
            jobs = jobs.filter(**{column: wanted})
    without = ("args", "kwargs", "metadata", "result", "progress")
    with in_bounded_time():
        return Reply(200, page_of(request, jobs.defer(*without), shown_job, "jobs"))


def show_job(request: ApiRequest, *, job: int) -> Reply:
    """Tell all of a job."""
    return Reply(200, shown_whole_job(_find(request, job), sees_all=request.access.is_for_all))


def cancel_job(request: ApiRequest, *, job: int) -> Reply:
    """Cancel a job: one that waits at once, one that runs is asked to end."""
    _find(request, job)
    try:
        until_done(lambda: cancel(job))
    except JobError as error:
        # Somebody has locked it for longer than a request waits.
        raise unavailable(str(error)) from error
    return Reply(202, shown_job(_find(request, job)))


def _find(request: ApiRequest, job_id: int) -> Job:
    found = jobs_of(request.access).filter(pk=job_id).first()
    if found is None:
        raise not_found("There is no such job.")
    return found


ROUTES = [
    route(
        "jobs",
        {
            "GET": Handler(list_jobs, "read", query=("batch", "status", "task", "queue", *QUERY)),
            "POST": Handler(enqueue_job, "enqueue"),
        },
    ),
    route(
        "jobs/<pgjobs_id:job>",
        {"GET": Handler(show_job, "read"), "DELETE": Handler(cancel_job, "manage")},
    ),
]
