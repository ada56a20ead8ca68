"""The address of the HTTP API, as docs/http-api.md has it."""

from __future__ import annotations

from django.urls import include, path

urlpatterns = [path("pgjobs/api/", include("django_pgjobs.http.urls"))]
