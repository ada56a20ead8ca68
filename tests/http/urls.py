"""The address of the HTTP API, as docs/http-api.md has it; handlers of the tests beside it."""

from __future__ import annotations

from django.urls import include, path, re_path

from django_pgjobs.http.routing import public_view, unknown_address
from tests.http.views import ROUTES

urlpatterns = [
    path("tried/", include([*ROUTES, re_path("^(?P<rest>.*)$", public_view(unknown_address))])),
    path("pgjobs/api/", include("django_pgjobs.http.urls")),
]
