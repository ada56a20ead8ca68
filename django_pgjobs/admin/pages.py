"""What all pages of the admin have in common: navigation, a time budget, their templates."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db import OperationalError
from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, reverse
from django.utils.translation import gettext_lazy as _
from psycopg.errors import SerializationFailure

from django_pgjobs.exceptions import TooSlow
from django_pgjobs.permissions import Verb, is_narrowed, may, require
from django_pgjobs.queries.budget import time_budget
from django_pgjobs.queries.database import job_database
from django_pgjobs.values.payload import is_storable

# Seconds one statement of a page may take.
PAGE_SECONDS = 2.0


class NavigationEntry(NamedTuple):
    """A page of the navigation: its key, its name, its address and who may see it.

    One that *is_of_all* is about the whole installation, and not for those who see some jobs.
    """

    key: str
    label: Any
    url_name: str
    args: tuple[str, ...] = ()
    verb: Verb = Verb.VIEW
    is_of_all: bool = True


NAVIGATION = (
    NavigationEntry("overview", _("Overview"), "app_list", ("pgjobs",), is_of_all=False),
    NavigationEntry("jobs", _("Jobs"), "pgjobs_job_changelist", is_of_all=False),
    NavigationEntry("workflows", _("Workflows"), "pgjobs_batch_changelist", is_of_all=False),
    NavigationEntry("failures", _("Failures"), "pgjobs_job_failures"),
    NavigationEntry("queues", _("Queues"), "pgjobs_queuesettings_changelist"),
    NavigationEntry("schedules", _("Schedules"), "pgjobs_schedule_changelist"),
    NavigationEntry("workers", _("Workers"), "pgjobs_worker_changelist"),
    NavigationEntry("limits", _("Limits"), "pgjobs_ratelimit_changelist"),
    NavigationEntry("tokens", _("API tokens"), "pgjobs_token_changelist"),
    NavigationEntry("system", _("System"), "pgjobs_job_system"),
)


class Link(NamedTuple):
    """A page that the person may see."""

    key: str
    label: Any
    url: str


def navigation(request: HttpRequest, site_name: str) -> list[Link]:
    """Return the pages that the person may see."""
    sees_all = not is_narrowed(request.user)
    return [
        Link(
            key=entry.key,
            label=entry.label,
            url=reverse(f"admin:{entry.url_name}", args=entry.args, current_app=site_name),
        )
        for entry in NAVIGATION
        if may(request.user, entry.verb) and (sees_all or not entry.is_of_all)
    ]


class PageAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Base of our model admins; *nav_key* is the entry of the navigation that is lit.

    Django's forms write no rows, unless a subclass allows it.

    *walks* and *one_snapshot*: what `time_budget` says, of all that its pages read.
    """

    nav_key: ClassVar[str] = ""
    walks: ClassVar[bool] = False
    one_snapshot: ClassVar[bool] = False
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    object_history_template = "admin/pgjobs/history.html"

    @property
    def media(self) -> forms.Media:
        return super().media + forms.Media(css={"all": ["pgjobs/admin.css"]}, js=["pgjobs/live.js"])

    def page_context(self, request: HttpRequest, **context: Any) -> dict[str, Any]:
        """Return what base_page.html needs, and *context*."""
        return {
            **self.admin_site.each_context(request),
            "opts": self.model._meta,
            "media": self.media,
            "pgjobs_page": self.nav_key,
            **context,
        }

    def render_page(
        self, request: HttpRequest, template: str, context: Mapping[str, Any]
    ) -> TemplateResponse:
        """Return a page of our own: *template* extends admin/pgjobs/base_page.html."""
        request.current_app = self.admin_site.name
        return TemplateResponse(
            request, f"admin/pgjobs/{template}", self.page_context(request, **context)
        )

    def url(self, name: str, *args: Any) -> str:
        """Return the address of the page *name* of the site, such as "pgjobs_job_change"."""
        return reverse(f"admin:{name}", args=args, current_app=self.admin_site.name)

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Any:
        """Return the row of an address, None for a key that no column can hold."""
        return (
            super().get_object(request, object_id, from_field) if is_storable(object_id) else None
        )

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return may(request.user, Verb.VIEW)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> Any:
        extra = {"pgjobs_page": self.nav_key, **(extra_context or {})}
        if request.method != "GET":
            return super().changelist_view(request, extra)
        draw = super().changelist_view
        return within_budget(self, request, lambda: draw(request, extra))


class ListPageAdmin(PageAdmin):
    """Base of the model admins whose list of rows is a page of our own.

    They are about the whole installation: none of their addresses, those that a subclass adds
    included, is for a person whom the project lets see some jobs only.
    """

    @property
    def urls(self) -> list[URLPattern]:
        return [
            URLPattern(entry.pattern, self._of_all(entry.callback), entry.default_args, entry.name)
            for entry in super().urls
        ]

    def _of_all(self, view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
        """Return *view* for those who see all jobs."""

        @functools.wraps(view)
        def asked(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            return draw_closed(self, request) or view(request, *args, **kwargs)

        return asked

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return may(request.user, Verb.VIEW) and not is_narrowed(request.user)

    def draw_list(self, request: HttpRequest) -> HttpResponse:
        """Return the page that stands in for the list of rows."""
        raise NotImplementedError

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        require_a_look(request)
        return within_budget(self, request, lambda: self.draw_list(request))


def require_a_look(request: HttpRequest) -> None:
    """Raise PermissionDenied unless the person may view jobs and only looks."""
    require(request, Verb.VIEW)
    if request.method not in ("GET", "HEAD"):
        raise PermissionDenied


def draw_closed(model_admin: PageAdmin, request: HttpRequest) -> HttpResponse | None:
    """Return the answer of a page of all jobs to a person who sees some, None to others."""
    if not (may(request.user, Verb.VIEW) and is_narrowed(request.user)):
        return None
    closed = model_admin.render_page(request, "closed.html", {"title": _("Not for you")})
    closed.status_code = 403
    return closed


def page(
    view: Callable[..., HttpResponse],
) -> Callable[..., HttpResponse]:
    """Decorate a view method of a PageAdmin: what it reads when it is drawn has a time budget."""

    @functools.wraps(view)
    def bounded(self: PageAdmin, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.method != "GET":
            return view(self, request, *args, **kwargs)
        return within_budget(self, request, lambda: view(self, request, *args, **kwargs))

    return bounded


def within_budget(
    model_admin: PageAdmin, request: HttpRequest, draw: Callable[[], HttpResponse]
) -> HttpResponse:
    """Return the page that *draw* makes, rendered, or one that says it reads too much."""
    try:
        return _drawn(model_admin, draw, one_snapshot=model_admin.one_snapshot)
    except TooSlow:
        return draw_too_slow(model_admin, request)


def _drawn(
    model_admin: PageAdmin, draw: Callable[[], HttpResponse], *, one_snapshot: bool
) -> HttpResponse:
    """Return the page that *draw* makes, rendered.

    A function of the project's, such as its ADMIN_PERMISSION, may write a row that others write:
    in a snapshot it cannot, so the page is drawn without one then.
    """
    try:
        with time_budget(
            job_database(), PAGE_SECONDS, walks=model_admin.walks, one_snapshot=one_snapshot
        ):
            response = draw()
            if isinstance(response, TemplateResponse):
                response.render()
            return response
    except OperationalError as error:
        if not (one_snapshot and isinstance(error.__cause__, SerializationFailure)):
            raise
        return _drawn(model_admin, draw, one_snapshot=False)


def draw_too_slow(model_admin: PageAdmin, request: HttpRequest) -> HttpResponse:
    """Return the page that says that one reads too much."""
    slow = model_admin.render_page(request, "too_slow.html", {"title": _("Too slow")})
    slow.status_code = 503
    return slow
