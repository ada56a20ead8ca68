"""What the migrations are made of."""

from __future__ import annotations

from typing import Any

from django.db import migrations


class PostgresSQL(migrations.RunSQL):
    """SQL that databases of other vendors are spared: `migrate` visits all that it is given."""

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        if schema_editor.connection.vendor == "postgresql":
            super().database_forwards(app_label, schema_editor, from_state, to_state)

    def database_backwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        if schema_editor.connection.vendor == "postgresql":
            super().database_backwards(app_label, schema_editor, from_state, to_state)
