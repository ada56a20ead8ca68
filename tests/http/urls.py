"""The address of the HTTP API, as docs/http-api.md has it; handlers of the tests beside it."""

from __future__ import annotations

from django.urls import include, path, re_path

from django_pgjobs.http.routing import APP_NAME, public_view, unknown_address
from tests.http.views import ROUTES

TRIED = [*ROUTES, re_path("^(?P<rest>.*)$", public_view(unknown_address))]

urlpatterns = [
    # As if they were the API's.
    path("tried/", include((TRIED, APP_NAME), namespace="tried")),
    path("pgjobs/api/", include("django_pgjobs.http.urls")),
]
