"""The addresses of one job: its page, its download, its buttons and the form for a copy."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.utils import unquote
from django.http import HttpRequest, HttpResponse
from django.urls import path

from django_pgjobs.admin.job_page.actions import do
from django_pgjobs.admin.job_page.copy_form import draw_copy
from django_pgjobs.admin.job_page.page import draw_download, draw_job
from django_pgjobs.admin.pages import PageAdmin, page, require_a_look


class JobViews(PageAdmin):
    """Base of JobAdmin: what is about one job."""

    def get_urls(self) -> list[Any]:
        wrap = self.admin_site.admin_view
        return [
            path("<str:object_id>/do/<slug:name>/", wrap(self.do_view), name="pgjobs_job_do"),
            path("<str:object_id>/copy/", wrap(self.copy_view), name="pgjobs_job_copy"),
            path("<str:object_id>/download/", wrap(self.download_view), name="pgjobs_job_download"),
            *super().get_urls(),
        ]

    @page
    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Everything about one job; nothing is changed here."""
        require_a_look(request)
        return draw_job(self, request, unquote(object_id))

    @page
    def download_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """What is stored of one job, as JSON."""
        return draw_download(self, request, object_id)

    @page
    def copy_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The form for a copy of one job."""
        return draw_copy(self, request, object_id)

    def do_view(self, request: HttpRequest, object_id: str, name: str) -> HttpResponse:
        """What a button of the page does."""
        return do(self, request, object_id, name)
