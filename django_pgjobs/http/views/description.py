"""The description of the API, for programs that read OpenAPI."""

from __future__ import annotations

from pathlib import Path

from django.http import HttpRequest, HttpResponse
from django.urls import path

from django_pgjobs.http.routing import public_view

# Read at import, as the statements are: an upgrade may replace the file under a running process.
OPENAPI = (Path(__file__).parent.parent / "openapi.json").read_bytes()


def describe(request: HttpRequest) -> HttpResponse:
    """Return the file."""
    # Only a middleware would add the length, which `with_api` has none of.
    headers = {"Content-Length": str(len(OPENAPI))}
    return HttpResponse(OPENAPI, content_type="application/json", headers=headers)


ROUTES = [path("openapi.json", public_view(describe), name="openapi")]
