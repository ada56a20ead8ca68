"""Pages that refresh themselves: numbers read once for all who look, answers of "no change"."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from typing import Any, TypeVar

from django.core.cache import cache
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.cache import get_conditional_response
from django.utils.translation import get_language

from django_pgjobs.exceptions import TooSlow
from django_pgjobs.permissions import Verb, may
from django_pgjobs.queries.database import job_database

# Seconds that numbers are good for, and that nobody asks again for those that took too long.
KEPT_SECONDS = 2
SLOW_SECONDS = 15
# "3 minutes ago" changes while the numbers stay.
CLOCK_SECONDS = 30
SCRIPT = "pgjobs-live"

T = TypeVar("T")


def is_refresh(request: HttpRequest) -> bool:
    """Was the page asked for by static/pgjobs/live.js, which draws a part of it again?"""
    return request.headers.get("X-Requested-With") == SCRIPT


def kept(name: str, make: Callable[[], T], *, seconds: int = KEPT_SECONDS) -> T:
    """Return what *make* returned for anybody in the last *seconds*, or now.

    Raise TooSlow if it did, within the last 15 seconds. A cache that fails is none.
    """
    key = _key(name)
    found: tuple[T, ...] | None = None
    with contextlib.suppress(Exception):
        found = cache.get(key)
    if found is None:
        try:
            found = (make(),)
        except TooSlow:
            found = ()
        with contextlib.suppress(Exception):
            cache.set(key, found, seconds if found else SLOW_SECONDS)
    if not found:
        raise TooSlow("the numbers of this page took longer than they may.")
    return found[0]


def forget(*names: str) -> None:
    """Read what is kept under *names* again next time: somebody has changed what it shows."""
    with contextlib.suppress(Exception):
        cache.delete_many([_key(name) for name in names])


def _key(name: str) -> str:
    return f"django_pgjobs:{job_database()}:{name}"


def unchanged(request: HttpRequest, *parts: Any) -> tuple[str, HttpResponse | None]:
    """Return the ETag of a part of a page, and the answer 304 if the browser has that.

    *parts* are what it shows; who looks, in which language, and a slow clock belong to it.
    The text itself is none: it has a new token for each form every time.
    """
    seen = (
        parts,
        request.user.pk,
        [may(request.user, verb) for verb in Verb],
        get_language(),
        timezone.get_current_timezone_name(),
        int(timezone.now().timestamp()) // CLOCK_SECONDS,
    )
    digest = hashlib.blake2b(repr(seen).encode(errors="replace"), digest_size=16).hexdigest()
    etag = f'W/"{digest}"'
    response = get_conditional_response(request, etag=etag)
    return etag, response if response is not None and response.status_code == 304 else None
