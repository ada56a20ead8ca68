"""The addresses of the HTTP API: `path("pgjobs/api/", include("django_pgjobs.http.urls"))`."""

from __future__ import annotations

from django.urls import include, path, re_path

from django_pgjobs.http.routing import APP_NAME, public_view, unknown_address
from django_pgjobs.http.views import assignments, description, jobs, tokens, workers, workflows

app_name = APP_NAME

# What workers ask all the time is found first.
V1 = [
    *workers.ROUTES,
    *assignments.ROUTES,
    *description.ROUTES,
    *tokens.ROUTES,
    *jobs.ROUTES,
    *workflows.ROUTES,
]

urlpatterns = [
    path("v1/", include(V1)),
    # Problems, also for what is not there.
    re_path(r"^(?P<rest>[\s\S]*)$", public_view(unknown_address)),
]
