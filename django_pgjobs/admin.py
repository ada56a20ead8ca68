"""The admin: jobs and workers to look at, limits and pauses to change."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.core.paginator import Paginator
from django.http import HttpRequest
from django.utils.functional import cached_property

from django_pgjobs.models import (
    ConcurrencyLimit,
    Job,
    Pause,
    QueueSettings,
    RateLimit,
    Worker,
)

# Rows of a list that are counted and can be paged to; a table of jobs has no bound.
MAX_COUNTED = 10_000


class BoundedPaginator(Paginator):  # type: ignore[type-arg]
    """Counts the first rows only; filters lead to the others."""

    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list
        return int(rows.order_by()[:MAX_COUNTED].count())


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Shows rows and changes none of them."""

    paginator = BoundedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    list_per_page = 50
    list_max_show_all = 0
    sortable_by: ClassVar[tuple[str, ...]] = ()
    ordering: ClassVar[tuple[str, ...]] = ("-id",)
    actions = None

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Job)
class JobAdmin(ReadOnlyAdmin):
    """The list names tasks by their stored path; nothing of the project is imported."""

    list_display = ("id", "status", "task_path", "queue_name", "attempts", "enqueued_at", "note")
    list_filter = ("status",)

    def get_queryset(self, request: HttpRequest) -> Any:
        # One huge payload must not enter the list.
        return super().get_queryset(request).defer("args", "kwargs", "result", "errors", "metadata")


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin):
    """Live and recent worker processes."""

    list_display = ("id", "name", "heartbeat_at", "ended_at", "lost", "slots", "queues")


class KeyIsKept(admin.ModelAdmin):  # type: ignore[type-arg]
    """A form whose key cannot be changed: saving another one would add a second row."""

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        given = super().get_readonly_fields(request, obj)
        key = self.model._meta.pk.name
        return given if obj is None else (*given, key)


@admin.register(ConcurrencyLimit)
class ConcurrencyLimitAdmin(KeyIsKept):
    """Changes hold from the next claim on."""

    list_display = ("pattern", "max_running", "weight", "note")
    search_fields = ("pattern",)
    show_full_result_count = False


@admin.register(QueueSettings)
class QueueSettingsAdmin(KeyIsKept):
    """Changes hold from the next claim on."""

    list_display = ("queue_name", "max_running", "boost", "note")


@admin.register(RateLimit)
class RateLimitAdmin(KeyIsKept):
    """Changes hold from the next claim on."""

    list_display = ("name", "count", "period", "burst", "note")
    search_fields = ("name",)
    show_full_result_count = False


@admin.register(Pause)
class PauseAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """What is paused; deleting a row resumes it."""

    list_display = ("kind", "name", "reason", "paused_by", "paused_at", "resume_at")
    list_filter = ("kind",)
    readonly_fields = ("paused_at",)
