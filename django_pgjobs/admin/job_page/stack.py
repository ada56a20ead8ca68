"""Where a running job is: the button that asks its worker, and what that has said."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from django_pgjobs.admin import audit
from django_pgjobs.admin.answering import back, refuse_unless_posted, say
from django_pgjobs.admin.job_page.page import draw_missing, find_job
from django_pgjobs.admin.pages import PageAdmin
from django_pgjobs.control.stacks import ask_where
from django_pgjobs.permissions import Verb


def ask(model_admin: PageAdmin, request: HttpRequest, object_id: str) -> HttpResponse:
    """Ask the worker of a job where the job is, and lead back to the page of the job."""
    refused = refuse_unless_posted(request, Verb.CONTROL_WORKERS)
    if refused:
        return refused
    job = find_job(request, object_id)
    if job is None:
        return draw_missing(model_admin, request, object_id)
    if ask_where(job.pk):
        audit.record(request.user, "ask_where", job=job, count=1, site=model_admin.admin_site)
        say(request, _("Its worker was asked where the job is. This page shows the answer."))
    else:
        said = _(
            "The job does not run any more, its worker is gone, or it is one over HTTP, whose "
            "stack nobody sees from here."
        )
        say(request, said, is_good=False)
    return back(request, model_admin.url("pgjobs_job_change", job.pk))
