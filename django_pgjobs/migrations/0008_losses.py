"""How often the worker of a job may die, how often a shutdown interrupted it, how long leases are."""

from __future__ import annotations

from django.db import migrations, models

from django_pgjobs.operations import PostgresSQL

ADD_LOSSES = """
CREATE DOMAIN pgjobs_max_losses AS integer
    CONSTRAINT pgjobs_max_losses_is_positive CHECK (VALUE > 0);

ALTER TABLE pgjobs_job
    ADD COLUMN max_losses pgjobs_max_losses,
    ADD COLUMN interruptions pgjobs_count NOT NULL DEFAULT 0;
"""

DROP_LOSSES = """
ALTER TABLE pgjobs_job DROP COLUMN max_losses, DROP COLUMN interruptions;
DROP DOMAIN pgjobs_max_losses;
"""


class Migration(migrations.Migration):
    dependencies = [("pgjobs", "0007_row_bounds")]
    operations = [
        PostgresSQL(
            ADD_LOSSES,
            DROP_LOSSES,
            state_operations=[
                migrations.AddField(
                    model_name="job",
                    name="max_losses",
                    field=models.IntegerField(
                        help_text="Empty: as the setting MAX_LOSSES says.",
                        null=True,
                        verbose_name="max losses",
                    ),
                ),
                migrations.AddField(
                    model_name="job",
                    name="interruptions",
                    field=models.IntegerField(
                        default=0,
                        editable=False,
                        help_text="How many attempts were interrupted by a shutdown.",
                        verbose_name="interruptions",
                    ),
                ),
            ],
        ),
        migrations.AddField(
            model_name="worker",
            name="lease_seconds",
            field=models.FloatField(
                help_text="Seconds from a renewal to the end of the lease.",
                null=True,
                verbose_name="lease",
            ),
        ),
    ]
