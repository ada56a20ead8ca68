"""The pages of the shop and of the integration service, and the admin."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("integrations/", include("example_project.integrations.urls")),
    path("", include("example_project.shop.urls")),
]
