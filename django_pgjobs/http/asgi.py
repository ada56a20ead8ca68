"""The HTTP API on an event loop without Django's handler, which makes a thread for each request.

    application = with_api(get_asgi_application())

Requests for the API are answered by the same views at the same addresses; no middleware and no
signal of a request is for them. All others are Django's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from inspect import iscoroutinefunction
from io import BytesIO
from typing import Any

from django.core.handlers.asgi import ASGIRequest
from django.http import Http404, HttpResponse
from django.urls import ResolverMatch, resolve

from django_pgjobs.conf import get_conf
from django_pgjobs.http.routing import APP_NAME, answered_in_thread

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


def with_api(others: Application) -> Application:
    """Return an application that answers the API's requests itself and leaves all *others*."""

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        body = BytesIO()
        found = _found(scope, body) if scope["type"] == "http" else None
        if found is None:
            await others(scope, receive, send)
        elif await _is_read(body, receive):
            response = await _answer(*found, receive)
            if response is not None:
                await _send(response, send)

    return application


def _found(scope: Scope, body: BytesIO) -> tuple[ASGIRequest, ResolverMatch] | None:
    """Return the request and its view, None if it is not for the API."""
    try:
        request = ASGIRequest(scope, body)
        match = resolve(request.path_info)
    except (Http404, UnicodeDecodeError):
        return None
    return (request, match) if APP_NAME in match.app_names else None


async def _is_read(body: BytesIO, receive: Receive) -> bool:
    """Read the body, of one that is too large no more than shows it; False: the client is gone."""
    most = get_conf().HTTP_MAX_BODY_BYTES
    goes_on = True
    while goes_on:
        message = await receive()
        if message["type"] == "http.disconnect":
            return False
        if body.tell() <= most:
            body.write(message.get("body", b""))
        goes_on = message.get("more_body", False)
    body.seek(0)
    return True


async def _answer(
    request: ASGIRequest, match: ResolverMatch, receive: Receive
) -> HttpResponse | None:
    view = partial(match.func, request, **match.kwargs)
    if iscoroutinefunction(match.func):
        return await _unless_gone(view(), receive)
    return await answered_in_thread(request, view)


async def _unless_gone(
    answer: Coroutine[Any, Any, HttpResponse], receive: Receive
) -> HttpResponse | None:
    """Return the answer; None if the client goes away before, which ends what waits for it."""
    answering = asyncio.ensure_future(answer)
    # Behind a body nothing is received but that.
    leaving = asyncio.ensure_future(receive())
    leaving.add_done_callback(lambda _: answering.cancel())
    try:
        return await answering
    except asyncio.CancelledError:
        if not leaving.done():
            raise
        return None
    finally:
        leaving.cancel()


async def _send(response: HttpResponse, send: Send) -> None:
    headers = [(name.encode(), value.encode("latin-1")) for name, value in response.items()]
    start = {"type": "http.response.start", "status": response.status_code, "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": response.content})
