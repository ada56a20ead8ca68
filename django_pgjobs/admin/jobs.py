"""The list of jobs, the page of one job, and the pages that belong to no row."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import path

from django_pgjobs.admin.bulk.asking import bulk_urls
from django_pgjobs.admin.job_list.page import JobList
from django_pgjobs.admin.job_page.stack import ask
from django_pgjobs.admin.job_page.views import JobViews
from django_pgjobs.admin.overview.failures import draw_failures
from django_pgjobs.admin.overview.muting import mute_view, unmute_view
from django_pgjobs.admin.overview.page import draw_overview
from django_pgjobs.admin.overview.stuck import draw_stuck
from django_pgjobs.admin.pages import draw_closed, page
from django_pgjobs.admin.system.page import draw_system


class JobAdmin(JobList, JobViews):
    """The list names tasks by their stored path; nothing of the project is imported."""

    nav_key = "jobs"

    def get_urls(self) -> list[Any]:
        wrap = self.admin_site.admin_view
        return [
            path("overview/", wrap(self.overview_view), name="pgjobs_job_overview"),
            path("failures/", wrap(self.failures_view), name="pgjobs_job_failures"),
            path("stuck/", wrap(self.stuck_view), name="pgjobs_job_stuck"),
            path("mute/", wrap(self.mute_view), name="pgjobs_job_mute"),
            path("unmute/", wrap(self.unmute_view), name="pgjobs_job_unmute"),
            path("system/", wrap(self.system_view), name="pgjobs_job_system"),
            path("<str:object_id>/where/", wrap(self.where_view), name="pgjobs_job_where"),
            *bulk_urls(self),
            *super().get_urls(),
        ]

    def overview_view(self, request: HttpRequest) -> HttpResponse:
        """The numbers of everything, which have a time budget of their own."""
        return draw_overview(self, request)

    @page
    def failures_view(self, request: HttpRequest) -> HttpResponse:
        """Failed jobs by what went wrong."""
        return draw_failures(self, request)

    @page
    def stuck_view(self, request: HttpRequest) -> HttpResponse:
        """Running jobs that look stuck."""
        return draw_closed(self, request) or draw_stuck(self, request)

    @page
    def mute_view(self, request: HttpRequest) -> HttpResponse:
        """Mute a warning of the Overview for a while."""
        return draw_closed(self, request) or mute_view(self, request)

    def unmute_view(self, request: HttpRequest) -> HttpResponse:
        """Show a warning again."""
        return draw_closed(self, request) or unmute_view(self, request)

    def where_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask the worker of a running job where the job is."""
        return ask(self, request, object_id)

    @page
    def system_view(self, request: HttpRequest) -> HttpResponse:
        """The database, the tables and the settings."""
        return draw_closed(self, request) or draw_system(self, request)
