"""The settings every Django project here starts from.

Connections are persistent (`CONN_MAX_AGE = None`), as Django's documentation advises for
speed: with Django's default of 0 some of the workers reconnect for every job.
"""

from __future__ import annotations

import os

SECRET_KEY = "benchmark"
DEBUG = False
USE_TZ = True
TIME_ZONE = "UTC"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["bench_app"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ["PGDATABASE"],
        "USER": os.environ.get("PGUSER", ""),
        "PASSWORD": os.environ.get("PGPASSWORD", ""),
        "HOST": os.environ.get("PGHOST", ""),
        "PORT": os.environ.get("PGPORT", ""),
        "CONN_MAX_AGE": None,
    }
}
