"""Settings for the type checker's plugin, which wants the models but no database."""

from __future__ import annotations

SECRET_KEY = "types"
INSTALLED_APPS = [
    "django_pgjobs",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
]
