"""Errors of the HTTP API: problem details as RFC 9457 describes them, of a closed list of types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from django.http import HttpResponse, JsonResponse

CONTENT_TYPE = "application/problem+json"

# The last part of a problem's type -> its HTTP status and title. docs/http-api.md lists them.
SLUGS = {
    "bad-request": (400, "Bad request"),
    "not-json": (400, "The body is no JSON"),
    "unauthorized": (401, "No valid token"),
    "forbidden": (403, "The token may not do this"),
    "not-found": (404, "Not found"),
    "worker-gone": (404, "There is no such worker"),
    "method-not-allowed": (405, "Method not allowed"),
    "duplicate": (409, "It is there already"),
    "lost": (409, "The assignment is lost"),
    "not-next": (409, "The job is not to be had now"),
    "sealed": (409, "The batch takes no more"),
    "length-required": (411, "Content-Length is missing"),
    "too-large": (413, "The body is too large"),
    "unsupported-media-type": (415, "The body is of another type"),
    "invalid": (422, "Some values are wrong"),
    "too-many-requests": (429, "Too many requests"),
    "internal-error": (500, "Internal error"),
    "unavailable": (503, "Not available now"),
}


@dataclass(frozen=True, slots=True)
class FieldError:
    """What is wrong with one value: of the body at *pointer* (RFC 6901), or of a parameter."""

    pointer: str
    detail: str
    is_parameter: bool = False

    def as_dict(self) -> dict[str, str]:
        """Return it as an answer has it."""
        place = "parameter" if self.is_parameter else "pointer"
        return {place: self.pointer, "detail": self.detail}


class Problem(Exception):
    """An answer that is an error; raise it anywhere below a handler.

    *slug* is one of SLUGS. *detail* is about this one; it tells nothing of what the token may not
    see.
    """

    def __init__(
        self,
        slug: str,
        *,
        detail: str = "",
        errors: Iterable[FieldError] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status, self.title = SLUGS[slug]
        super().__init__(f"{self.status} {slug}: {detail or self.title}")
        self.slug = slug
        self.detail = detail
        self.errors = tuple(errors)
        self.headers = dict(headers or {})

    def response(self) -> HttpResponse:
        """Return the problem as an answer."""
        body: dict[str, object] = {
            "type": f"urn:pgjobs:problem:{self.slug}",
            "title": self.title,
            "status": self.status,
        }
        if self.detail:
            body["detail"] = self.detail
        if self.errors:
            body["errors"] = [error.as_dict() for error in self.errors]
        return JsonResponse(
            body, status=self.status, content_type=CONTENT_TYPE, headers=self.headers
        )


def not_found(detail: str = "") -> Problem:
    """Return the problem of something that is not there, or not for this token."""
    return Problem("not-found", detail=detail)


def forbidden(detail: str) -> Problem:
    """Return the problem of what the token may not do."""
    return Problem("forbidden", detail=detail)


def invalid(errors: Iterable[FieldError]) -> Problem:
    """Return the problem of a body or parameters with wrong values."""
    return Problem("invalid", errors=errors)


def unavailable(detail: str) -> Problem:
    """Return the problem of a database, or a process, that cannot do it now."""
    return Problem("unavailable", detail=detail, headers={"Retry-After": "1"})
