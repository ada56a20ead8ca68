"""Settings of the tests with the theme django-unfold before Django's admin."""

from __future__ import annotations

from tests.settings import *  # noqa: F403

INSTALLED_APPS = ["unfold", *INSTALLED_APPS]  # noqa: F405
