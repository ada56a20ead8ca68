"""From a request to a handler, and from what it returns or raises to an answer.

A handler is `def handler(request: ApiRequest, **path) -> Reply`. One that waits has a twin
`async def` for processes with an event loop (ASGI), where a request that waits holds no connection,
and no thread that could do other work: `Handler(claim, "work", in_loop=claim_in_loop)`. The client
may vanish meanwhile: then the twin is cancelled where it awaits.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.core.exceptions import SuspiciousOperation
from django.core.signals import got_request_exception
from django.http import HttpRequest, HttpResponse, UnreadablePostError
from django.urls import ResolverMatch, URLPattern, path, register_converter

from django_pgjobs.exceptions import TooSlow
from django_pgjobs.http.access import Access, find_access, known_access
from django_pgjobs.http.problems import Problem, not_found, unavailable
from django_pgjobs.http.rates import rates
from django_pgjobs.http.requests import ApiRequest, Reply, wrong_parameter
from django_pgjobs.http.threads import in_thread
from django_pgjobs.queries.database import without_transaction
from django_pgjobs.queries.errors import is_of_the_moment
from django_pgjobs.values.job_ids import JOB_ID, parse_job_id
from django_pgjobs.values.words import CONTROL
from django_pgjobs.worker.safe_log import get_logger

logger = get_logger(__name__)

# Of the routes in urls.py, which cannot be imported before all models are.
APP_NAME = "pgjobs_http"

View = Callable[..., HttpResponse]
Run = Callable[..., Reply]
RunInLoop = Callable[..., Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class Handler:
    """The function that answers one method of a route, and who may call it.

    *verb* is what the token has to be for; None: any token will do. *query* names the parameters
    of the address; others are refused. *in_loop* is the async twin of *run*.
    """

    run: Run
    verb: str | None
    query: tuple[str, ...] = ()
    in_loop: RunInLoop | None = None


class IdConverter:
    """An id of a job, worker or batch in the address, as `<pgjobs_id:job>`."""

    regex = JOB_ID.pattern

    def to_python(self, value: str) -> int:
        """Return the id; raise ValueError if no row can have it."""
        number = parse_job_id(value)
        if number is None:
            raise ValueError
        return number

    def to_url(self, value: object) -> str:
        """Return the id as it stands in an address."""
        return str(value)


register_converter(IdConverter, "pgjobs_id")


class Route(URLPattern):
    """A route whose view is its async twin where an event loop asks for it."""

    def resolve(self, path: str) -> ResolverMatch | None:
        """Return the view for an address, None if it is another route's."""
        match = super().resolve(path)
        twin = getattr(self.callback, "in_loop", None)
        if match is not None and twin is not None and _is_in_loop():
            match.func = twin
        return match


def route(address: str, handlers: Mapping[str, Handler], *, name: str | None = None) -> Route:
    """Return a route below v1/ for a list ROUTES: method -> handler at *address*."""
    view = view_of(handlers)
    return Route(path(address, view).pattern, view, {}, name)


def view_of(handlers: Mapping[str, Handler]) -> View:
    """Return the view that answers the methods with their handlers; `in_loop` is its twin."""

    def view(request: HttpRequest, **path: Any) -> HttpResponse:
        return drawn(request, lambda: _answer(request, handlers, path))

    async def in_loop(request: HttpRequest, **path: Any) -> HttpResponse:
        handler = handlers.get(_method(request))
        if handler is None or handler.in_loop is None:
            return await answered_in_thread(request, lambda: view(request, **path))
        try:
            access = known_access(request)
            if access is None:
                access = await in_thread(partial(find_access, request))
            given = _admitted(request, handler, access)
            return _response(await handler.in_loop(given, **path))
        except Exception as error:
            return response_to(error, request)

    _exempt(view)
    view.handlers = handlers  # type: ignore[attr-defined]
    if any(handler.in_loop for handler in handlers.values()):
        view.in_loop = _exempt(in_loop)  # type: ignore[attr-defined]
    return view


def public_view(respond: Run, *, methods: Collection[str] = ()) -> View:
    """Return a view that needs no token, for these methods (none: for all)."""

    def answer(request: HttpRequest, path: Mapping[str, Any]) -> HttpResponse:
        if methods and _method(request) not in methods:
            raise _not_allowed(methods)
        return _response(respond(request, **path))

    def view(request: HttpRequest, **path: Any) -> HttpResponse:
        return drawn(request, lambda: answer(request, path))

    _exempt(view)
    return view


def unknown_address(request: HttpRequest, *, rest: str) -> Reply:
    """Answer whatever no route knows."""
    hint = ""
    if not rest.startswith("v1/"):
        hint = " All routes are below v1/."
    elif rest.startswith("v1/v1/"):
        hint = " v1/ is there twice."
    elif rest.endswith("/"):
        hint = " Try it without the slash at the end."
    raise not_found(f"There is no such address.{hint}")


def drawn(request: HttpRequest, answer: Callable[[], HttpResponse]) -> HttpResponse:
    """Return what *answer* returns, or what its exception means."""
    try:
        return answer()
    except Exception as error:
        return response_to(error, request)


async def answered_in_thread(
    request: HttpRequest, view: Callable[[], HttpResponse]
) -> HttpResponse:
    """Return the answer of a view that does not wait, on an event loop."""
    try:
        return await in_thread(view)
    except Problem as error:
        return response_to(error, request)


def _answer(
    request: HttpRequest, handlers: Mapping[str, Handler], path: Mapping[str, Any]
) -> HttpResponse:
    handler = handlers.get(_method(request))
    if handler is None:
        raise _not_allowed(handlers)
    given = _admitted(request, handler, find_access(request))
    return _response(handler.run(given, **path))


def _admitted(request: HttpRequest, handler: Handler, access: Access) -> ApiRequest:
    """Return the request as the handler gets it; raise Problem if it may not have it."""
    rates.spend(access)
    if handler.verb is not None:
        access.require(handler.verb)
    for name in request.GET:
        if name not in handler.query:
            known = ", ".join(handler.query) or "none"
            raise wrong_parameter(name[:100], f"there is no such parameter; known here: {known}")
    return ApiRequest(request, access)


def _method(request: HttpRequest) -> str:
    return "GET" if request.method == "HEAD" else request.method or ""


def _not_allowed(methods: Collection[str]) -> Problem:
    allowed = ", ".join(sorted(methods))
    detail, headers = f"Allowed here: {allowed}.", {"Allow": allowed}
    return Problem("method-not-allowed", detail=detail, headers=headers)


def _response(answer: Reply) -> HttpResponse:
    status, body, headers = answer
    if body is None:
        response = HttpResponse(status=status, headers=dict(headers))
        del response["Content-Type"]
    else:
        content = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":"))
        response = HttpResponse(
            content, status=status, headers=dict(headers), content_type="application/json"
        )
    return _finished(response)


def _finished(response: HttpResponse) -> HttpResponse:
    """Let nobody keep an answer, and tell its length: else servers send it in chunks."""
    response["Cache-Control"] = "no-store"
    if response.status_code != 204:
        response["Content-Length"] = str(len(response.content))
    return response


def response_to(error: Exception, request: HttpRequest) -> HttpResponse:
    """Return the answer to a request that ended with *error*; it tells little of what is ours."""
    path = request.path.translate(CONTROL)
    if isinstance(error, Problem):
        problem = error
        if problem.status >= 500:
            logger.warning("http path=%s %s", path, problem)
    elif is_of_the_moment(error) or isinstance(error, TooSlow):
        logger.warning("http path=%s the database: %s", path, str(error).strip())
        problem = unavailable("The database cannot be used now.")
    elif isinstance(error, SuspiciousOperation | UnreadablePostError):
        problem = Problem("bad-request")
    else:
        logger.error("http path=%s", path, exc_info=error)
        # Collectors of errors, such as Sentry, hear by this signal of what a view raises.
        got_request_exception.send(sender=None, request=request)
        problem = Problem("internal-error", detail="See the server's log.")
    response = _finished(problem.response())
    if response.status_code >= 500:
        # It is logged above; Django would mail each to the administrators.
        response._has_been_logged = True  # type: ignore[attr-defined]
    return response


def _exempt(view: Any) -> Any:
    """Let a token be all that a view asks for, and no transaction be open in it."""
    view.csrf_exempt = True
    view.login_required = False
    return without_transaction(view)


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
