"""Settings of the example project: a demo on one machine, not a pattern for production."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import django

from example_project.database import database_settings

BASE_DIR = Path(__file__).resolve().parent

DEBUG = os.environ.get("DJANGO_DEBUG", "1") not in {"", "0", "false", "no"}
SECRET_KEY = "for the demo only: nothing here is secret"
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]"]

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "django_pgjobs",
    "example_project.shop",
    "example_project.integrations",
    "example_project.payroll",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "example_project.urls"
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

# DATABASE_URL when it is set, else an embedded PostgreSQL. The shop and its jobs live in
# the same database: that is what lets a job commit or roll back with the data it is about.
DATABASES = {"default": database_settings()}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# An empty QUEUES lets tasks name any queue.
TASKS = {"default": {"BACKEND": "django_pgjobs.backend.PgJobsBackend", "QUEUES": []}}
PGJOBS = {
    # The tasks are not in a tasks.py but next to the code that enqueues them.
    "TASK_MODULES": [
        "example_project.integrations.rates",
        "example_project.integrations.syncing",
        "example_project.integrations.trades",
        "example_project.payroll.paying",
        "example_project.shop.payments",
        "example_project.shop.reports",
        "example_project.shop.signup",
    ],
    # `migrate` makes a row of it; from then on the row counts, in the admin.
    "RATE_LIMITS": {
        "outside-api": {"count": 25, "period": 1.25, "note": "calls of one integration"},
    },
}

# Mail goes to a mail server that only pretends: it takes its time and delivers nowhere.
MAIL_BACKEND = "example_project.shop.mail.PretendMailServer"
if django.VERSION >= (6, 1):
    MAILERS = {"default": {"BACKEND": MAIL_BACKEND}}
else:
    EMAIL_BACKEND = MAIL_BACKEND
DEFAULT_FROM_EMAIL = "shop@example.com"

# What the payment provider signs its webhooks with.
SHOP_WEBHOOK_SECRET = "whsec_for_the_demo_only"

# Where products are sent: `manage.py outside_api` serves it, and the demo one of its own.
OUTSIDE_API_URL = os.environ.get("OUTSIDE_API_URL", "http://127.0.0.1:8001")

USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en-us"
STATIC_URL = "static/"
