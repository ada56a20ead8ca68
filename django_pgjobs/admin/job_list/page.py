"""The page with the list of jobs, and the actions on what it shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.options import IncorrectLookupParameters
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseRedirect,
    JsonResponse,
    QueryDict,
)
from django.template.response import TemplateResponse
from django.utils.text import format_lazy
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_pgjobs.admin.bulk.asking import bulk_address
from django_pgjobs.admin.job_list.changelist import MAX_NEW, JobChangeList, Refused, lookups_of
from django_pgjobs.admin.job_list.columns import JobColumns
from django_pgjobs.admin.job_list.filters import LIST_FILTER
from django_pgjobs.admin.job_list.links import COUNT_AFTER
from django_pgjobs.admin.job_list.search import HELP
from django_pgjobs.admin.pages import PageAdmin, page
from django_pgjobs.bulk.actions import ACTIONS, Action
from django_pgjobs.bulk.selection import Selection
from django_pgjobs.permissions import Verb, may, narrow, require
from django_pgjobs.values.bounds import MAX_BIGINT

# Django asks has_<name>_permission of the admin for each action, when it draws and when it acts.
PERMISSIONS = {Verb.OPERATE: "operate", Verb.DELETE: "remove", Verb.VIEW: "view"}


def _make_action(action: Action) -> Callable[..., HttpResponse | None]:
    """Return the entry of the menu that leads to the confirmation of *action*."""

    @admin.action(
        permissions=[PERMISSIONS[action.verb]], description=format_lazy("{}…", action.label)
    )
    def ask(job_admin: JobList, request: HttpRequest, queryset: Any) -> HttpResponse | None:
        return job_admin.ask(request, action)

    ask.__name__ = action.name
    return ask


class JobList(JobColumns, PageAdmin):
    """Base of JobAdmin: what is about many jobs."""

    change_list_template = "admin/pgjobs/job/change_list.html"
    list_display = (
        "job_column",
        "status_column",
        "queue_column",
        "attempts_column",
        "when_column",
    )
    list_display_links = None
    list_filter: ClassVar[Any] = LIST_FILTER
    list_per_page = 50
    list_max_show_all = 0
    sortable_by: ClassVar[tuple[str, ...]] = ()
    ordering: ClassVar[tuple[str, ...]] = ("-id",)
    # The list has a search; what is searched says `search.py`.
    search_fields: ClassVar[tuple[str, ...]] = ("id",)
    search_help_text = HELP
    actions: Any = tuple(_make_action(action) for action in ACTIONS.values())

    def get_queryset(self, request: HttpRequest) -> Any:
        return narrow(request.user, Verb.VIEW, super().get_queryset(request))

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[JobChangeList]:
        return JobChangeList

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> Any:
        """Draw the list, or ask about the action that was chosen."""
        extra = {"title": _("Jobs"), **(extra_context or {})}
        if request.method == "POST":
            return self._act(request, extra)
        filled = filled_in(request.GET)
        if len(filled) < len(request.GET):
            # The form of the filters sends those that are empty as well.
            query = filled.urlencode()
            return HttpResponseRedirect(f"{request.path}?{query}" if query else request.path)
        if COUNT_AFTER in request.GET:
            return self.count_view(request)
        return super().changelist_view(request, extra)

    @page
    def count_view(self, request: HttpRequest) -> HttpResponse:
        """Say in JSON how many jobs have come since a page of the list was drawn."""
        require(request, Verb.VIEW)
        try:
            changelist: Any = self.get_changelist_instance(request)
        except IncorrectLookupParameters:
            return JsonResponse({"text": ""})
        count = changelist.count_new(request.GET[COUNT_AFTER])
        text = ngettext("%d new job", "%d new jobs", count) % count if count else ""
        if count > MAX_NEW:
            text = _("more than %d new jobs") % MAX_NEW
        return JsonResponse({"text": text})

    def _act(self, request: HttpRequest, extra: dict[str, Any]) -> Any:
        for name in request.POST.getlist("action"):
            if name in ACTIONS:
                require(request, ACTIONS[name].verb)
        response = super().changelist_view(request, extra)
        # Nothing was chosen: the list is not drawn from what a form sent.
        if isinstance(response, TemplateResponse):
            return HttpResponseRedirect(request.get_full_path())
        return response

    def response_action(  # type: ignore[override]
        self, request: HttpRequest, queryset: Any, **kwargs: Any
    ) -> Any:
        # Django 6.1 says which of its pages the form was on.
        if not all(map(is_job_id, request.POST.getlist(ACTION_CHECKBOX_NAME))):
            messages.error(
                request, _("The jobs that were selected cannot be read. Select them again.")
            )
            return None
        return super().response_action(request, queryset, **kwargs)

    def ask(self, request: HttpRequest, action: Action) -> HttpResponse | None:
        """Lead to the page that asks whether to do *action* to the jobs that were selected."""
        changelist = self.get_changelist_instance(request)
        try:
            lookups = lookups_of(changelist)
        except Refused as error:
            messages.error(request, _("Nothing was changed. %s") % error)
            return None
        if request.POST.get("select_across") == "1":
            selection = Selection(lookups)
        else:
            selection = Selection.ids(map(int, request.POST.getlist(ACTION_CHECKBOX_NAME)))
        address = bulk_address(self, action.name, selection, back=request.get_full_path())
        return HttpResponseRedirect(address)

    def has_operate_permission(self, request: HttpRequest) -> bool:
        """May the person change jobs?"""
        return may(request.user, Verb.OPERATE)

    def has_remove_permission(self, request: HttpRequest) -> bool:
        """May the person delete jobs?"""
        return may(request.user, Verb.DELETE)


def filled_in(query: QueryDict) -> QueryDict:
    """Return *query* without the parameters that are empty."""
    filled = QueryDict(mutable=True)
    for name, values in query.lists():
        if given := [value for value in values if value]:
            filled.setlist(name, given)
    return filled


def is_job_id(text: str) -> bool:
    """Is *text* a number that a job can have?"""
    return text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= MAX_BIGINT
