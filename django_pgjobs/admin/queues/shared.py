"""What the forms of queues, pauses and limits share: who may, who is told, what is kept."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, ClassVar

from django.contrib import messages
from django.contrib.admin.models import LogEntry
from django.db import connections
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.http import url_has_allowed_host_and_scheme

from django_pgjobs.admin.audit import record
from django_pgjobs.admin.pages import ListPageAdmin, PageAdmin
from django_pgjobs.permissions import Verb, may, require
from django_pgjobs.queries import notifications
from django_pgjobs.queries.database import job_database


class ControlAdmin(ListPageAdmin):
    """Rows that decide what may be claimed. A change holds from the next claim on.

    Idle workers are notified when the transaction commits, because what they passed over a
    moment ago may start now.
    """

    # What a person needs to write them.
    control_verb: ClassVar[Verb] = Verb.CONTROL_QUEUES

    def has_add_permission(self, request: HttpRequest) -> bool:
        return may(request.user, self.control_verb)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may(request.user, self.control_verb)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may(request.user, self.control_verb)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        tell_workers()

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        super().delete_model(request, obj)
        tell_workers()

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> None:  # type: ignore[override]
        self._record(request, "add", obj, message)

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> None:  # type: ignore[override]
        self._record(request, "change", obj, message)

    def log_deletions(self, request: HttpRequest, queryset: Iterable[Any]) -> None:  # type: ignore[override]
        for obj in queryset:
            self._record(request, "delete", obj, "")

    def _record(self, request: HttpRequest, verb: str, obj: Model, message: Any) -> None:
        said = LogEntry(change_message=json.dumps(message) if message else "")
        record(request.user, verb, obj=obj, target=said.get_change_message(), site=self.admin_site)


class KeyIsKept(ControlAdmin):
    """A form whose key cannot be changed: saving another one would add a second row."""

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        given = super().get_readonly_fields(request, obj)
        key = self.model._meta.pk.name
        return given if obj is None else (*given, key)


def tell_workers() -> None:
    """Let workers look for jobs, under the new rules, when the transaction commits."""
    with connections[job_database()].cursor() as cursor:
        notifications.notify_of_control(cursor)


def step(model_admin: PageAdmin, label: str, url_name: str) -> dict[str, str]:
    """Return a step of the breadcrumbs."""
    return {"label": label, "url": model_admin.url(url_name)}


def back(request: HttpRequest, otherwise: str) -> HttpResponseRedirect:
    """Return a redirection to the page that a form names as `next`, if it is one of ours."""
    return HttpResponseRedirect(our_address(request, request.POST.get("next", "")) or otherwise)


def our_address(request: HttpRequest, address: str) -> str:
    """Return *address* if it is one of this site, "" for any other."""
    is_ours = url_has_allowed_host_and_scheme(
        address, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return address if is_ours else ""


def refuse_unless_posted(request: HttpRequest, verb: Verb) -> HttpResponse | None:
    """Raise PermissionDenied, or return the answer to a request that is no POST; else None."""
    require(request, verb)
    return None if request.method == "POST" else HttpResponse(status=405, headers={"Allow": "POST"})


def say(request: HttpRequest, text: str, *, is_good: bool = True) -> None:
    """Show *text* at the top of the next page."""
    messages.add_message(request, messages.SUCCESS if is_good else messages.WARNING, text)
