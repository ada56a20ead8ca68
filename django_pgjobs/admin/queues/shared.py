"""What the forms of queues, pauses and limits share: who may, who is told, what is kept."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, ClassVar

from django.contrib.admin.models import LogEntry
from django.db.models import Model
from django.http import HttpRequest

from django_pgjobs.admin.audit import record
from django_pgjobs.admin.pages import ListPageAdmin
from django_pgjobs.limits import tell_workers
from django_pgjobs.permissions import Verb, may


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
