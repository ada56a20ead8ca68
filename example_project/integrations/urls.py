"""The addresses of the integration service."""

from __future__ import annotations

from django.urls import path

from example_project.integrations import views

app_name = "integrations"
urlpatterns = [
    path("", views.integration_list, name="list"),
    path("<int:pk>/", views.integration_page, name="integration"),
    path("<int:pk>/resync/", views.start_resync, name="resync"),
]
