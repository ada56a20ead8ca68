"""Settings of the django-ox project."""

from __future__ import annotations

from django_settings import *  # noqa: F403

INSTALLED_APPS += ["django_ox"]  # noqa: F405
TASKS = {"default": {"BACKEND": "django_ox.backend.OxBackend", "QUEUES": ["default"]}}
