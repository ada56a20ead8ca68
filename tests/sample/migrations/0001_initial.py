"""The schema as it is."""

from __future__ import annotations

from importlib import import_module

Migration = import_module("django_pgjobs.migrations.0001_initial").Migration
