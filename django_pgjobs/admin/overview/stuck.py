"""The page of running jobs that look stuck."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from django_pgjobs.admin.pages import PageAdmin
from django_pgjobs.control.stuck import (
    FACTOR,
    LEAST_RUNS,
    LEAST_SECONDS,
    LEAST_STILL_SECONDS,
    find_stuck,
)
from django_pgjobs.permissions import Verb, require
from django_pgjobs.queries.database import job_cursor
from django_pgjobs.values.moments import exact_duration

# Jobs that the page shows.
MAX_ROWS = 200


def draw_stuck(model_admin: PageAdmin, request: HttpRequest) -> HttpResponse:
    """Return the page."""
    require(request, Verb.VIEW)
    with job_cursor() as cursor:
        found = find_stuck(cursor)
    context = {
        "title": _("Stuck"),
        "pgjobs_page": "overview",
        "jobs": [(stuck, model_admin.url("pgjobs_job_change", stuck.run.id)) for stuck in found][
            :MAX_ROWS
        ],
        "all_jobs": len(found),
        "more_jobs": max(0, len(found) - MAX_ROWS),
        "factor": FACTOR,
        "still": exact_duration(LEAST_STILL_SECONDS),
        "least": exact_duration(LEAST_SECONDS),
        "runs": LEAST_RUNS,
    }
    return model_admin.render_page(request, "stuck.html", context)
