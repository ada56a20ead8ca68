"""The tables of jobs and workers.

`pgjobs_job` is partitioned by status, which Django's schema editor cannot say, so table,
partitions, indexes and triggers are SQL; the model state beside it is what Django reads.
"""

from __future__ import annotations

import django.db.models.functions.datetime
from django.db import migrations, models

import django_pgjobs.fields
from django_pgjobs.operations import PostgresSQL

CREATE_JOB_TABLE = """
CREATE DOMAIN pgjobs_payload AS json
    CONSTRAINT pgjobs_payload_is_at_most_1_mib CHECK (octet_length(VALUE::text) <= 1048576)
    CONSTRAINT pgjobs_payload_casts_to_jsonb CHECK (VALUE IS NULL OR VALUE::jsonb IS NOT NULL);

CREATE SEQUENCE pgjobs_job_id_seq AS bigint;

CREATE TABLE pgjobs_job (
    id                   bigint           NOT NULL DEFAULT nextval('pgjobs_job_id_seq'),
    claim                bigint           NOT NULL DEFAULT 0,
    worker_id            bigint,
    enqueued_at          timestamptz      NOT NULL DEFAULT statement_timestamp(),
    run_after            timestamptz,
    due_at               timestamptz,
    started_at           timestamptz,
    last_attempted_at    timestamptz,
    finished_at          timestamptz,
    cancel_requested_at  timestamptz,
    timeout              double precision CONSTRAINT pgjobs_timeout_is_positive_and_finite
        CHECK (timeout > 0 AND timeout < 'infinity'),
    attempts             integer          NOT NULL DEFAULT 0,
    max_attempts         integer CONSTRAINT pgjobs_max_attempts_is_positive CHECK (max_attempts > 0),
    lost_count           integer          NOT NULL DEFAULT 0,
    priority             smallint         NOT NULL DEFAULT 0
        CONSTRAINT pgjobs_priority_is_from_minus_100_to_100 CHECK (priority BETWEEN -100 AND 100),
    -- Names are compared byte by byte: a language's order costs a claim several microseconds.
    status               text COLLATE "C" NOT NULL DEFAULT 'ready',
    queue_name           text COLLATE "C" NOT NULL DEFAULT 'default'
        CONSTRAINT pgjobs_queue_name_has_1_to_128_bytes
        CHECK (octet_length(queue_name) BETWEEN 1 AND 128),
    task_path            text COLLATE "C" NOT NULL
        CONSTRAINT pgjobs_task_path_has_1_to_512_bytes
        CHECK (octet_length(task_path) BETWEEN 1 AND 512),
    backend              text COLLATE "C" NOT NULL DEFAULT 'default'
        CONSTRAINT pgjobs_backend_has_1_to_128_bytes CHECK (octet_length(backend) BETWEEN 1 AND 128),
    args                 pgjobs_payload   NOT NULL DEFAULT '[]',
    kwargs               pgjobs_payload   NOT NULL DEFAULT '{}',
    correlation_id       text             NOT NULL DEFAULT '',
    tags                 text[]           NOT NULL DEFAULT '{}',
    metadata             pgjobs_payload   NOT NULL DEFAULT '{}',
    errors               jsonb            NOT NULL DEFAULT '[]',
    result               json,
    progress             json,
    worker_ids           text[]           NOT NULL DEFAULT '{}',
    note                 text             NOT NULL DEFAULT '',
    PRIMARY KEY (id, status),
    -- What a reader in Python can hold, in any time zone; and no 'infinity' to wait for.
    CONSTRAINT pgjobs_times_are_in_the_years_1_to_9999 CHECK (
        enqueued_at BETWEEN '0001-01-02 00:00:00+00' AND '9999-12-30 00:00:00+00'
        AND run_after BETWEEN '0001-01-02 00:00:00+00' AND '9999-12-30 00:00:00+00'
        AND due_at BETWEEN '0001-01-02 00:00:00+00' AND '9999-12-30 00:00:00+00'
    )
) PARTITION BY LIST (status);

ALTER SEQUENCE pgjobs_job_id_seq OWNED BY pgjobs_job.id;

CREATE TABLE pgjobs_job_live PARTITION OF pgjobs_job
    FOR VALUES IN ('ready', 'running')
    WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
          autovacuum_vacuum_insert_scale_factor = 0.1);

CREATE TABLE pgjobs_job_finished PARTITION OF pgjobs_job
    FOR VALUES IN ('successful', 'failed', 'cancelled');

CREATE INDEX pgjobs_job_ready ON pgjobs_job_live (backend, queue_name, (-priority), id)
    WHERE status = 'ready' AND due_at IS NULL;
CREATE INDEX pgjobs_job_due ON pgjobs_job_live (due_at)
    WHERE status = 'ready' AND due_at IS NOT NULL;
CREATE INDEX pgjobs_job_running ON pgjobs_job_live (worker_id, id)
    WHERE status = 'running';
CREATE INDEX pgjobs_job_cancelling ON pgjobs_job_live (worker_id)
    WHERE status = 'running' AND cancel_requested_at IS NOT NULL;
CREATE INDEX pgjobs_job_by_end ON pgjobs_job_finished (status, finished_at);
"""

DROP_JOB_TABLE = """
DROP TABLE pgjobs_job;
DROP DOMAIN pgjobs_payload;
"""

# Functions name their tables with the schema of the migration and search pg_catalog only, so
# that a session with temporary tables or operators of its own cannot stand in between.
CREATE_TRIGGERS = """
DO $do$
DECLARE
    worker text := quote_ident(current_schema()) || '.pgjobs_worker';
BEGIN
    EXECUTE format($format$
        CREATE FUNCTION pgjobs_wake_v1() RETURNS trigger LANGUAGE plpgsql
        SET search_path = pg_catalog, pg_temp AS $body$
        BEGIN
            PERFORM pg_notify('pgjobs', enqueued.queue_name)
            FROM (SELECT DISTINCT queue_name FROM inserted) AS enqueued
            WHERE EXISTS (SELECT FROM %1$s WHERE listening);
            RETURN NULL;
        END
        $body$
    $format$, worker);
END
$do$;

CREATE FUNCTION pgjobs_postpone_v1() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
    IF NEW.run_after > statement_timestamp() THEN
        NEW.due_at := NEW.run_after;
    END IF;
    RETURN NEW;
END
$body$;

CREATE TRIGGER pgjobs_job_wake AFTER INSERT ON pgjobs_job
    REFERENCING NEW TABLE AS inserted
    FOR EACH STATEMENT EXECUTE FUNCTION pgjobs_wake_v1();

CREATE TRIGGER pgjobs_job_postpone BEFORE INSERT ON pgjobs_job_live
    FOR EACH ROW WHEN (NEW.status = 'ready' AND NEW.due_at IS NULL AND NEW.run_after IS NOT NULL)
    EXECUTE FUNCTION pgjobs_postpone_v1();
"""

DROP_TRIGGERS = """
DROP TRIGGER pgjobs_job_postpone ON pgjobs_job_live;
DROP TRIGGER pgjobs_job_wake ON pgjobs_job;
DROP FUNCTION pgjobs_postpone_v1();
DROP FUNCTION pgjobs_wake_v1();
"""


class Migration(migrations.Migration):
    initial = True
    dependencies = []
    operations = [
        PostgresSQL(
            CREATE_JOB_TABLE,
            DROP_JOB_TABLE,
            state_operations=[
                migrations.CreateModel(
                    name="Job",
                    fields=[
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        (
                            "claim",
                            models.BigIntegerField(
                                default=0,
                                editable=False,
                                help_text="Fencing token: rises at every claim and every give-back.",
                                verbose_name="claim",
                            ),
                        ),
                        (
                            "worker_id",
                            models.BigIntegerField(
                                editable=False,
                                help_text="The worker that holds the job, or held it last.",
                                null=True,
                                verbose_name="worker id",
                            ),
                        ),
                        (
                            "enqueued_at",
                            models.DateTimeField(
                                db_default=django.db.models.functions.datetime.Now(),
                                editable=False,
                                verbose_name="enqueued at",
                            ),
                        ),
                        (
                            "run_after",
                            models.DateTimeField(
                                help_text="The earliest start that was asked for.",
                                null=True,
                                verbose_name="run after",
                            ),
                        ),
                        (
                            "due_at",
                            models.DateTimeField(
                                editable=False,
                                help_text="When the job may run next; empty means now.",
                                null=True,
                                verbose_name="due at",
                            ),
                        ),
                        (
                            "started_at",
                            models.DateTimeField(
                                editable=False,
                                help_text="Begin of the first attempt.",
                                null=True,
                                verbose_name="started at",
                            ),
                        ),
                        (
                            "last_attempted_at",
                            models.DateTimeField(
                                editable=False,
                                help_text="Begin of the newest attempt.",
                                null=True,
                                verbose_name="last attempted at",
                            ),
                        ),
                        (
                            "finished_at",
                            models.DateTimeField(
                                editable=False, null=True, verbose_name="finished at"
                            ),
                        ),
                        (
                            "cancel_requested_at",
                            models.DateTimeField(
                                editable=False, null=True, verbose_name="cancel requested at"
                            ),
                        ),
                        (
                            "timeout",
                            models.FloatField(
                                help_text="Seconds one attempt may take.",
                                null=True,
                                verbose_name="timeout",
                            ),
                        ),
                        (
                            "attempts",
                            models.IntegerField(
                                default=0,
                                help_text="How often the job was started; counted at claim.",
                                verbose_name="attempts",
                            ),
                        ),
                        (
                            "max_attempts",
                            models.IntegerField(
                                help_text="Empty: as the task declares.",
                                null=True,
                                verbose_name="max attempts",
                            ),
                        ),
                        (
                            "lost_count",
                            models.IntegerField(
                                default=0,
                                help_text="How many attempts ended with their worker.",
                                verbose_name="lost count",
                            ),
                        ),
                        (
                            "priority",
                            models.SmallIntegerField(
                                default=0,
                                help_text="-100 to 100; higher runs first.",
                                verbose_name="priority",
                            ),
                        ),
                        (
                            "status",
                            models.TextField(
                                choices=[
                                    ("ready", "Ready"),
                                    ("running", "Running"),
                                    ("successful", "Successful"),
                                    ("failed", "Failed"),
                                    ("cancelled", "Cancelled"),
                                ],
                                default="ready",
                                verbose_name="status",
                            ),
                        ),
                        ("queue_name", models.TextField(default="default", verbose_name="queue")),
                        ("task_path", models.TextField(verbose_name="task")),
                        (
                            "backend",
                            models.TextField(
                                default="default",
                                help_text="Alias in the setting TASKS.",
                                verbose_name="backend",
                            ),
                        ),
                        (
                            "args",
                            django_pgjobs.fields.PlainJSONField(
                                default=list, verbose_name="positional arguments"
                            ),
                        ),
                        (
                            "kwargs",
                            django_pgjobs.fields.PlainJSONField(
                                default=dict, verbose_name="keyword arguments"
                            ),
                        ),
                        (
                            "correlation_id",
                            models.TextField(blank=True, default="", verbose_name="correlation id"),
                        ),
                        (
                            "tags",
                            django_pgjobs.fields.TextArrayField(
                                blank=True, default=list, verbose_name="tags"
                            ),
                        ),
                        (
                            "metadata",
                            django_pgjobs.fields.PlainJSONField(
                                default=dict, verbose_name="metadata"
                            ),
                        ),
                        (
                            "errors",
                            models.JSONField(
                                default=list,
                                help_text="One entry per failed attempt.",
                                verbose_name="errors",
                            ),
                        ),
                        (
                            "result",
                            django_pgjobs.fields.PlainJSONField(null=True, verbose_name="result"),
                        ),
                        (
                            "progress",
                            django_pgjobs.fields.PlainJSONField(null=True, verbose_name="progress"),
                        ),
                        (
                            "worker_ids",
                            django_pgjobs.fields.TextArrayField(
                                default=list,
                                help_text="Name of the worker of each attempt.",
                                verbose_name="workers",
                            ),
                        ),
                        (
                            "note",
                            models.TextField(
                                blank=True,
                                default="",
                                help_text="Why the job was last given back.",
                                verbose_name="note",
                            ),
                        ),
                    ],
                    options={
                        "verbose_name": "job",
                        "verbose_name_plural": "jobs",
                        "db_table": "pgjobs_job",
                        "default_permissions": ("view", "delete"),
                        "required_db_vendor": "postgresql",
                    },
                ),
            ],
        ),
        migrations.CreateModel(
            name="Worker",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "started_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(),
                        verbose_name="started at",
                    ),
                ),
                (
                    "heartbeat_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(),
                        verbose_name="last heartbeat",
                    ),
                ),
                ("lease_expires_at", models.DateTimeField(verbose_name="lease expires at")),
                ("ended_at", models.DateTimeField(null=True, verbose_name="ended at")),
                ("pid", models.IntegerField(verbose_name="process id")),
                (
                    "slots",
                    models.IntegerField(help_text="Threads that run jobs.", verbose_name="slots"),
                ),
                (
                    "lost",
                    models.BooleanField(
                        default=False,
                        help_text="The lease ended before the worker said goodbye.",
                        verbose_name="lost",
                    ),
                ),
                (
                    "listening",
                    models.BooleanField(
                        default=False,
                        help_text="Idle and to be notified of new jobs; busy workers find them by working.",
                        verbose_name="listening",
                    ),
                ),
                ("name", models.TextField(verbose_name="name")),
                ("host", models.TextField(verbose_name="host")),
                ("version", models.TextField(verbose_name="version")),
                (
                    "queues",
                    django_pgjobs.fields.TextArrayField(
                        help_text="Empty: all.", null=True, verbose_name="queues"
                    ),
                ),
                (
                    "excluded_queues",
                    django_pgjobs.fields.TextArrayField(
                        default=list, verbose_name="excluded queues"
                    ),
                ),
                ("backends", django_pgjobs.fields.TextArrayField(verbose_name="backends")),
                (
                    "task_paths",
                    django_pgjobs.fields.TextArrayField(
                        help_text="The tasks this worker knows.", verbose_name="tasks"
                    ),
                ),
            ],
            options={
                "verbose_name": "worker",
                "verbose_name_plural": "workers",
                "db_table": "pgjobs_worker",
                "default_permissions": ("view", "delete"),
                "required_db_vendor": "postgresql",
            },
        ),
        PostgresSQL(CREATE_TRIGGERS, DROP_TRIGGERS),
    ]
