"""Settings of the django_pgjobs project."""

from __future__ import annotations

import os

from django_settings import *  # noqa: F403

INSTALLED_APPS += ["django_pgjobs"]  # noqa: F405
TASKS = {"default": {"BACKEND": "django_pgjobs.backend.PgJobsBackend", "QUEUES": []}}
PGJOBS = {"TASK_MODULES": ["ours_tasks"]}
if "BENCH_RETENTION" in os.environ:
    PGJOBS["RETENTION_SECONDS"] = int(os.environ["BENCH_RETENTION"])
