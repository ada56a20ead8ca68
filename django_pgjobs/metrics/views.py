"""The address at which Prometheus asks for the whole installation."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from django.core.exceptions import ImproperlyConfigured
from django.db import Error
from django.http import HttpRequest, HttpResponse, HttpResponseNotFound
from django.utils.crypto import constant_time_compare
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from django_pgjobs.conf import get_conf
from django_pgjobs.exceptions import TooSlow
from django_pgjobs.metrics.exposition import CONTENT_TYPE
from django_pgjobs.metrics.of_installation import describe_installation
from django_pgjobs.queries.database import without_transaction

logger = logging.getLogger(__name__)

__all__ = ["metrics"]

# How long an answer, or a failure, is served to everybody.
FRESH_SECONDS = 10.0
# Older answers are not served: alerts must see that the database does not answer.
STALE_SECONDS = 60.0


class Fresh:
    """The latest answer, None if there is none; one thread asks on behalf of all."""

    def __init__(self, find: Callable[[], bytes]) -> None:
        self._find = find
        self._asking = threading.Lock()
        self._found: bytes | None = None
        self._until = float("-inf")
        # Of the moment before it was asked for.
        self._found_at = float("-inf")

    def get(self) -> bytes | None:
        """Return the answer; ask again if it is old, and return the old one if that takes too
        long."""
        if not self._asking.acquire(timeout=FRESH_SECONDS):
            is_stale = time.monotonic() - self._found_at > STALE_SECONDS
            return None if is_stale else self._found
        try:
            if time.monotonic() >= self._until:
                asked_at = time.monotonic()
                self._found, self._found_at = self._ask(), asked_at
                self._until = time.monotonic() + FRESH_SECONDS
            return self._found
        finally:
            self._asking.release()

    def forget(self) -> None:
        """Ask again the next time."""
        self._until = float("-inf")

    def _ask(self) -> bytes | None:
        try:
            return self._find()
        except (Error, TooSlow, ImproperlyConfigured) as error:
            logger.warning("the metrics of the installation cannot be read: %s", error)
            return None


installation = Fresh(describe_installation)


@never_cache
@require_safe
@without_transaction
def metrics(request: HttpRequest) -> HttpResponse:
    """Return the metrics of the installation to callers with PGJOBS["METRICS_TOKEN"]."""
    token = get_conf().METRICS_TOKEN
    if token is None:
        return HttpResponseNotFound()
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not constant_time_compare(given.strip(), token):
        response = HttpResponse("Unauthorized\n", status=401, content_type="text/plain")
        response["WWW-Authenticate"] = "Bearer"
        return response
    text = installation.get()
    if text is None:
        return HttpResponse("see the log\n", status=503, content_type="text/plain")
    return HttpResponse(text, content_type=CONTENT_TYPE)


# The token is the permission, so `LoginRequiredMiddleware` must not ask for a login.
metrics.login_required = False  # type: ignore[attr-defined]
