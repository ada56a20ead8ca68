"""What the admin needs: permissions, the subject of a job, control of workers, bulk changes."""

from __future__ import annotations

import django.db.models.functions.datetime
from django.db import migrations, models

from django_pgjobs.operations import PostgresSQL

ADD_SUBJECT = """
ALTER TABLE pgjobs_job
    ADD COLUMN subject text COLLATE "C" CONSTRAINT pgjobs_subject_has_1_to_512_bytes
        CHECK (octet_length(subject) BETWEEN 1 AND 512);
CREATE INDEX pgjobs_job_live_subject ON pgjobs_job_live (subject, id) WHERE subject IS NOT NULL;
CREATE INDEX pgjobs_job_finished_subject ON pgjobs_job_finished (subject, id)
    WHERE subject IS NOT NULL;
"""

DROP_SUBJECT = """
ALTER TABLE pgjobs_job DROP COLUMN subject;
"""


class Migration(migrations.Migration):
    dependencies = [("pgjobs", "0004_dependencies")]
    operations = [
        PostgresSQL(
            ADD_SUBJECT,
            DROP_SUBJECT,
            state_operations=[
                migrations.AddField(
                    model_name="job",
                    name="subject",
                    field=models.TextField(
                        editable=False,
                        help_text='The row that the job is about: "app.model:key".',
                        null=True,
                        verbose_name="subject",
                    ),
                ),
            ],
        ),
        migrations.AddField(
            model_name="worker",
            name="quiet_requested_at",
            field=models.DateTimeField(
                help_text="Since then the worker is to claim nothing more.",
                null=True,
                verbose_name="quiet requested at",
            ),
        ),
        migrations.AddField(
            model_name="worker",
            name="stop_requested_at",
            field=models.DateTimeField(
                help_text="Since then the worker is to end what it runs, and itself.",
                null=True,
                verbose_name="stop requested at",
            ),
        ),
        migrations.AlterModelOptions(
            name="job",
            options={
                "default_permissions": ("view", "delete"),
                "permissions": (
                    ("operate_job", "Can retry, cancel, discard and change jobs"),
                    ("enqueue_job", "Can enqueue jobs"),
                    ("reveal_job", "Can see the masked values of jobs"),
                ),
                "required_db_vendor": "postgresql",
                "verbose_name": "job",
                "verbose_name_plural": "jobs",
            },
        ),
        migrations.AlterModelOptions(
            name="queuesettings",
            options={
                "permissions": (("control_queue", "Can pause queues and change limits"),),
                "verbose_name": "queue settings",
                "verbose_name_plural": "queue settings",
            },
        ),
        migrations.AlterModelOptions(
            name="worker",
            options={
                "default_permissions": ("view", "delete"),
                "permissions": (("control_worker", "Can quiet and stop workers"),),
                "verbose_name": "worker",
                "verbose_name_plural": "workers",
            },
        ),
        migrations.CreateModel(
            name="BulkChange",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(),
                        editable=False,
                        verbose_name="created at",
                    ),
                ),
                (
                    "user_id",
                    models.TextField(
                        blank=True,
                        default="",
                        help_text="Primary key of who asked for it.",
                        verbose_name="user id",
                    ),
                ),
                (
                    "cancel_requested_at",
                    models.DateTimeField(null=True, verbose_name="cancel requested at"),
                ),
                ("finished_at", models.DateTimeField(null=True, verbose_name="finished at")),
                ("job_id", models.BigIntegerField(null=True, verbose_name="job id")),
                (
                    "total",
                    models.IntegerField(
                        help_text="Jobs of the selection; empty: too many to count.",
                        null=True,
                        verbose_name="total",
                    ),
                ),
                ("changed", models.IntegerField(default=0, verbose_name="changed")),
                (
                    "passed_over",
                    models.IntegerField(
                        default=0,
                        help_text="Jobs that had another status by then.",
                        verbose_name="passed over",
                    ),
                ),
                (
                    "conflicts",
                    models.IntegerField(
                        default=0,
                        help_text="Jobs whose unique key another one has.",
                        verbose_name="conflicts",
                    ),
                ),
                (
                    "conflict_ids",
                    models.JSONField(default=list, verbose_name="jobs in conflict"),
                ),
                ("verb", models.TextField(verbose_name="action")),
                ("options", models.JSONField(default=dict, verbose_name="options")),
                ("selection", models.JSONField(default=dict, verbose_name="selection")),
                ("position", models.JSONField(null=True, verbose_name="position")),
                ("reason", models.TextField(blank=True, default="", verbose_name="reason")),
                ("error", models.TextField(blank=True, default="", verbose_name="error")),
            ],
            options={
                "verbose_name": "bulk change",
                "verbose_name_plural": "bulk changes",
                "db_table": "pgjobs_bulk_change",
                "default_permissions": ("view",),
                "required_db_vendor": "postgresql",
            },
        ),
    ]
