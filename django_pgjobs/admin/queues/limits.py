"""The page Limits: rate limits, concurrency limits, and who waits for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.contrib.admin.utils import quote
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils.translation import gettext as _

from django_pgjobs.admin.answering import back, refuse_unless_posted, say
from django_pgjobs.admin.audit import record
from django_pgjobs.admin.pages import PageAdmin
from django_pgjobs.admin.queues.shared import KeyIsKept
from django_pgjobs.limits import ConcurrencyLimitForm, RateLimitForm, read_limits, reset_rate
from django_pgjobs.models import RateLimit
from django_pgjobs.permissions import Verb, may
from django_pgjobs.queries import limit_pages
from django_pgjobs.queries.database import job_cursor
from django_pgjobs.queries.limit_pages import RateKeyRow

# Keys of a limit that is not there that are spelled out.
MAX_NAMED = 3


class ConcurrencyLimitAdmin(KeyIsKept):
    """The form of a concurrency limit; its list is the page Limits."""

    nav_key = "limits"
    form = ConcurrencyLimitForm

    def draw_list(self, request: HttpRequest) -> HttpResponse:
        """Return the page of all limits."""
        return draw_limits(self, request)


class RateLimitAdmin(KeyIsKept):
    """The page of all limits, and the form of a rate limit."""

    nav_key = "limits"
    form = RateLimitForm

    def get_urls(self) -> list[Any]:
        wrap = self.admin_site.admin_view
        return [
            path("reset/", wrap(self.reset_view), name="pgjobs_rate_reset"),
            *super().get_urls(),
        ]

    def draw_list(self, request: HttpRequest) -> HttpResponse:
        """Return the page of all limits."""
        return draw_limits(self, request)

    def reset_view(self, request: HttpRequest) -> HttpResponse:
        """Give a key of a rate limit all its tokens again, by deleting its state."""
        refused = refuse_unless_posted(request, Verb.CONTROL_QUEUES)
        if refused:
            return refused
        key = request.POST.get("key", "").replace("\0", "")
        if reset_rate(key):
            record(request.user, "reset_rate", target=key, site=self.admin_site)
            say(request, _("All tokens are there again: %(key)s.") % {"key": key})
        else:
            say(request, _("It has all its tokens: %(key)s.") % {"key": key}, is_good=False)
        return back(request, self.url("pgjobs_ratelimit_changelist"))


def draw_limits(model_admin: PageAdmin, request: HttpRequest) -> HttpResponse:
    """Return the page of all limits and of the keys that they hold for."""
    with job_cursor() as cursor:
        found = read_limits(cursor)
    context = {
        "title": _("Limits"),
        "rates": [
            _shown_rate(model_admin, rate, found.keys_of.get(rate.name, [])) for rate in found.rates
        ],
        "missing": list(_missing(model_admin, found.missing)),
        "limits": [
            {
                "row": limit,
                "url": model_admin.url("pgjobs_concurrencylimit_change", quote(limit.pattern)),
            }
            for limit in found.limits
        ],
        "keys": [
            {
                "row": key,
                "is_full": key.running >= key.max_running,
                "limit_url": _limit_url(model_admin, key.key, key.pattern),
            }
            for key in found.keys
        ],
        "is_cut": found.is_cut,
        "max_rows": limit_pages.MAX_LIMITS,
        "max_jobs": limit_pages.MAX_JOBS,
        "may_control": may(request.user, Verb.CONTROL_QUEUES),
        "add_rate_url": model_admin.url("pgjobs_ratelimit_add"),
        "add_limit_url": model_admin.url("pgjobs_concurrencylimit_add"),
        "reset_url": model_admin.url("pgjobs_rate_reset"),
        "pause_url": model_admin.url("pgjobs_queue_pause"),
        "here": request.get_full_path(),
    }
    return model_admin.render_page(request, "limits.html", context)


class MissingLimit(NamedTuple):
    """A rate limit that is not there: keys that jobs wait for, and where it is made."""

    keys: str
    jobs: int
    url: str


def _missing(
    model_admin: PageAdmin, missing: Mapping[str, list[RateKeyRow]]
) -> Iterator[MissingLimit]:
    for name, rows in missing.items():
        url = f"{model_admin.url('pgjobs_ratelimit_add')}?{urlencode({'name': name})}"
        said = [*(row.key for row in rows[:MAX_NAMED]), *["…"][: len(rows) > MAX_NAMED]]
        yield MissingLimit(", ".join(said), sum(row.jobs for row in rows), url)


class ShownKey(NamedTuple):
    """A key of a rate limit: whole tokens that it has left, and whether any are missing."""

    row: RateKeyRow
    tokens: int
    is_empty: bool
    is_used: bool


class ShownRate(NamedTuple):
    """A rate limit with the keys that are shown; *jobs* wait with keys of it."""

    row: RateLimit
    burst: int
    url: str
    jobs: int
    keys: list[ShownKey]
    more_keys: int


def _shown_rate(model_admin: PageAdmin, rate: RateLimit, keys: list[RateKeyRow]) -> ShownRate:
    return ShownRate(
        row=rate,
        burst=rate.burst_in_force,
        url=model_admin.url("pgjobs_ratelimit_change", quote(rate.name)),
        jobs=keys[0].jobs_of_limit if keys else 0,
        keys=[
            ShownKey(
                row=key,
                tokens=max(0, int(key.tokens or 0)),
                is_empty=(key.tokens or 0) < 1,
                is_used=key.full_in > 0,
            )
            for key in keys
        ],
        more_keys=max(0, keys[0].keys - len(keys)) if keys else 0,
    )


def _limit_url(model_admin: PageAdmin, key: str, pattern: str | None) -> str:
    """Return where the limit of a key is changed, or made."""
    if pattern is not None:
        return model_admin.url("pgjobs_concurrencylimit_change", quote(pattern))
    return f"{model_admin.url('pgjobs_concurrencylimit_add')}?{urlencode({'pattern': key})}"
