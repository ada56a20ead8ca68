"""Settings of the tests, of the workers that the tests start, and of nothing else."""

from __future__ import annotations

import json
import os
from typing import Any

from example_project.database import database_settings

SECRET_KEY = "tests"
USE_TZ = True
# Not UTC: a mistake about time zones shows.
TIME_ZONE = "Asia/Kathmandu"
ROOT_URLCONF = "tests.urls"
STATIC_URL = "static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "tests",
    "django_pgjobs",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "example_project.shop",
    "example_project.integrations",
    "example_project.payroll",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]
# A request needs one statement less than with sessions in a table.
SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

DATABASES = {"default": database_settings(is_throwaway=True)}
if not os.environ.get("DATABASE_URL"):
    # Two runs at once do not disturb each other; conftest.py removes what a killed run left.
    DATABASES["default"]["TEST"] = {"NAME": f"test_pgjobs_{os.getpid()}"}

# What a page keeps for two seconds would be what another test made.
CACHES = {"default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}}

TASKS = {"default": {"BACKEND": "django_pgjobs.backend.PgJobsBackend", "QUEUES": []}}
PGJOBS: dict[str, Any] = {}

# What a test changes for the worker it starts: tests.helpers.WorkerProcess. Dicts are merged
# key by key, everything else is replaced.
for _name, _value in json.loads(os.environ.get("PGJOBS_TEST_SETTINGS", "{}")).items():
    if isinstance(_value, dict) and isinstance(globals().get(_name), dict):
        _value = globals()[_name] | _value
    globals()[_name] = _value
