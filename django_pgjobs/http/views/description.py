"""The description of the API, for programs that read OpenAPI."""

from __future__ import annotations

from pathlib import Path

from django.http import HttpRequest
from django.urls import path

from django_pgjobs.http.requests import Reply
from django_pgjobs.http.routing import public_view

# Read at import, as the statements are: an upgrade may replace the file under a running process.
OPENAPI = (Path(__file__).parent.parent / "openapi.json").read_bytes()


def describe(request: HttpRequest) -> Reply:
    """Return the file."""
    return Reply(200, OPENAPI)


ROUTES = [path("openapi.json", public_view(describe, methods=["GET"]), name="openapi")]
