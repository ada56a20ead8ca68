"""The pages of the shop and of the integration service, the admin, and the API for programs."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("pgjobs/api/", include("django_pgjobs.http.urls")),
    path("integrations/", include("example_project.integrations.urls")),
    path("", include("example_project.shop.urls")),
]
