"""Settings of the Procrastinate project, which uses its Django integration."""

from __future__ import annotations

from django_settings import *  # noqa: F403

INSTALLED_APPS += ["procrastinate.contrib.django"]  # noqa: F405
PROCRASTINATE_IMPORT_PATHS = ["procrastinate_tasks"]
