"""The app configuration of the integration service."""

from __future__ import annotations

from django.apps import AppConfig


class IntegrationsConfig(AppConfig):
    """The integration service under the label `integrations`."""

    name = "example_project.integrations"
    label = "integrations"
    default_auto_field = "django.db.models.BigAutoField"
