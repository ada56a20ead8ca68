"""A column of jobs, by SQL."""

from __future__ import annotations

from django.db import migrations, models

from django_pgjobs.operations import PostgresSQL, ShortLocks


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("pgjobs", "0001_initial")]
    operations = [
        ShortLocks(
            [
                PostgresSQL(
                    "ALTER TABLE pgjobs_job ADD COLUMN sample integer NOT NULL DEFAULT 7",
                    "ALTER TABLE pgjobs_job DROP COLUMN sample",
                    state_operations=[
                        migrations.AddField("job", "sample", models.IntegerField(default=7))
                    ],
                )
            ]
        )
    ]
