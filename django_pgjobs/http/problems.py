"""Errors of the HTTP API: problem details as RFC 9457 describes them, of a closed list of types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from django.http import HttpResponse, JsonResponse

CONTENT_TYPE = "application/problem+json"

# The last part of a problem's type -> its HTTP status. docs/http-api.md lists them.
SLUGS = {
    "bad-request": 400,
    "not-json": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "not-found": 404,
    "worker-gone": 404,
    "method-not-allowed": 405,
    "duplicate": 409,
    "lost": 409,
    "not-next": 409,
    "sealed": 409,
    "length-required": 411,
    "too-large": 413,
    "unsupported-media-type": 415,
    "invalid": 422,
    "too-many-requests": 429,
    "internal-error": 500,
    "unavailable": 503,
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

    *slug* is one of SLUGS, and *status* its status. *title* is the same for every problem of the
    kind, *detail* is about this one; neither tells of what the token may not see.
    """

    def __init__(
        self,
        status: int,
        slug: str,
        title: str,
        *,
        detail: str = "",
        errors: Iterable[FieldError] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        if SLUGS[slug] != status:
            raise ValueError(f"expected the status {SLUGS[slug]} of {slug!r}, got {status}.")
        super().__init__(f"{status} {slug}: {detail or title}")
        self.status = status
        self.slug = slug
        self.title = title
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
    return Problem(404, "not-found", "Not found", detail=detail)


def forbidden(detail: str) -> Problem:
    """Return the problem of what the token may not do."""
    return Problem(403, "forbidden", "The token may not do this", detail=detail)


def invalid(errors: Iterable[FieldError]) -> Problem:
    """Return the problem of a body or parameters with wrong values."""
    return Problem(422, "invalid", "Some values are wrong", errors=errors)


def unavailable(detail: str) -> Problem:
    """Return the problem of a database, or a process, that cannot do it now."""
    return Problem(
        503,
        "unavailable",
        "Not available now",
        detail=detail,
        headers={"Retry-After": "1"},
    )
