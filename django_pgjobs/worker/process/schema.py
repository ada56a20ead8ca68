"""What this version of the code needs of the schema; the database is asked before a start."""

from __future__ import annotations

import pkgutil

from django.apps import apps
from django.conf import settings

from django_pgjobs import migrations
from django_pgjobs.queries.server import Schema


def needed_schema() -> Schema:
    """Return the columns of our models and the names of our migrations.

    No migrations if the project has its own in their place (MIGRATION_MODULES).
    """
    columns = {
        model._meta.db_table: [str(field.column) for field in model._meta.local_concrete_fields]
        for model in apps.get_app_config("pgjobs").get_models()
        if model._meta.managed
    }
    is_ours = "pgjobs" not in settings.MIGRATION_MODULES
    names = [module.name for module in pkgutil.iter_modules(migrations.__path__)]
    return Schema(columns, names if is_ours else [])
