"""Settings of the django-tasks-db project."""

from __future__ import annotations

from django_settings import *  # noqa: F403

INSTALLED_APPS += ["django_tasks_db"]  # noqa: F405
TASKS = {"default": {"BACKEND": "django_tasks_db.DatabaseBackend", "QUEUES": ["default"]}}
