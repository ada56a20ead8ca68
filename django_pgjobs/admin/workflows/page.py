"""The admin of batches: the addresses of its pages, and who may see them."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib.admin.utils import unquote
from django.http import HttpRequest, HttpResponse
from django.urls import path

from django_pgjobs.admin.pages import PageAdmin, page, require_a_look
from django_pgjobs.admin.workflows.batch_page import draw_batch, draw_missing, find_batch
from django_pgjobs.admin.workflows.cancelling import draw_cancel
from django_pgjobs.admin.workflows.listing import draw_workflows
from django_pgjobs.admin.workflows.sealing import seal
from django_pgjobs.permissions import Verb, require


class BatchAdmin(PageAdmin):
    """Workflows and their batches; who sees some jobs sees the workflows of only such jobs."""

    nav_key: ClassVar[str] = "workflows"
    # The numbers of a tree are those of its parts.
    one_snapshot: ClassVar[bool] = True
    actions = None

    def get_urls(self) -> list[Any]:
        wrap = self.admin_site.admin_view
        return [
            path("<str:object_id>/cancel/", wrap(self.cancel_view), name="pgjobs_batch_cancel"),
            path("<str:object_id>/seal/", wrap(self.seal_view), name="pgjobs_batch_seal"),
            *super().get_urls(),
        ]

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    @page
    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The list of workflows."""
        require_a_look(request)
        return draw_workflows(self, request)

    @page
    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """A batch and what is below it; nothing is changed here."""
        require_a_look(request)
        return draw_batch(self, request, unquote(object_id))

    def cancel_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Cancel a batch and what is below it."""
        require(request, Verb.OPERATE)
        return draw_cancel(self, request, unquote(object_id))

    def seal_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Say that no more jobs come to a batch."""
        require(request, Verb.OPERATE)
        return seal(self, request, unquote(object_id))

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """What people did to a batch."""
        if find_batch(request, unquote(object_id)) is None:
            return draw_missing(self, request, unquote(object_id))
        return super().history_view(request, object_id, extra_context)
