"""The schema: jobs, workers, and what decides when a job may start.

`pgjobs_job` is partitioned by status, which Django's schema editor cannot say, so tables, indexes,
functions and triggers are SQL, in the files of `sql/0001/`, each with its reasons; the model state
beside it is what Django reads. This migration and its files are not edited after the first release:
what a later release changes is a migration of its own (see docs/upgrading.md).
"""

from __future__ import annotations

from pathlib import Path

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import migrations, models
from django.db.models.functions import Now

from django_pgjobs.models.fields import CountArrayField, PlainJSONField, TextArrayField
from django_pgjobs.operations import PostgresSQL


def read(name: str) -> str:
    """Return the SQL of a file of this migration."""
    return (Path(__file__).parent / "sql" / "0001" / f"{name}.sql").read_text(encoding="utf-8")


DROP_DOMAINS = """
DROP DOMAIN pgjobs_payload, pgjobs_time, pgjobs_timeout, pgjobs_claim, pgjobs_count,
    pgjobs_max_attempts, pgjobs_max_losses, pgjobs_concurrency_limit_of_job, pgjobs_rate_cost,
    pgjobs_priority, pgjobs_queue_name, pgjobs_task_path, pgjobs_backend, pgjobs_hold,
    pgjobs_concurrency_key, pgjobs_rate_limit_keys, pgjobs_unique_key, pgjobs_subject,
    pgjobs_schedule_name, pgjobs_correlation_id, pgjobs_tags, pgjobs_texts, pgjobs_errors,
    pgjobs_on_failure, pgjobs_sum;
"""
DROP_CONTROLS = """
DROP TABLE pgjobs_dependency, pgjobs_rate_state, pgjobs_rate_limit, pgjobs_pause,
    pgjobs_queue_settings, pgjobs_concurrency_limit, pgjobs_keyed_claim;
"""
DROP_SCHEDULES = """
DROP TABLE pgjobs_occurrence, pgjobs_schedule;
DROP FUNCTION pgjobs_schedule_plan_v1();
"""
DROP_STATISTICS = """
DROP FUNCTION pgjobs_note_cancels_v1(text[], text[]);
DROP TABLE pgjobs_statistic, pgjobs_statistic_sum, pgjobs_queue_sample;
"""
DROP_WATCHING = "DROP TABLE pgjobs_stack, pgjobs_mute;"
DROP_TOKENS = "DROP TABLE pgjobs_token;"
DROP_MERGE = """
DROP AGGREGATE pgjobs_merged_v1(json, text);
DROP FUNCTION pgjobs_merge_v1(json, json, text);
"""
DROP_LANE = """
DROP TRIGGER pgjobs_job_lane ON pgjobs_job_live;
DROP FUNCTION pgjobs_lane_v1();
"""
DROP_POSTPONE = """
DROP TRIGGER pgjobs_job_postpone ON pgjobs_job_live;
DROP FUNCTION pgjobs_postpone_v1();
"""
DROP_WAKE = """
DROP TRIGGER pgjobs_job_live_wake ON pgjobs_job_live;
DROP TRIGGER pgjobs_job_wake ON pgjobs_job;
DROP FUNCTION pgjobs_wake_v1();
"""
DROP_BATCHES = """
DROP TABLE
    pgjobs_batch_page, pgjobs_batch_key, pgjobs_batch_change, pgjobs_batch_edge, pgjobs_batch;
DROP FUNCTION pgjobs_forget_batches_v1();
"""
SETTLE = ["batch_steps", "batch_changes", "batch_cancels", "batch_endings", "settle"]
DROP_PLAIN_SQL = """
DROP TRIGGER pgjobs_job_count ON pgjobs_job_live;
DROP FUNCTION pgjobs_count_v1();
"""
DROP_SETTLE = """
DROP FUNCTION pgjobs_settle_v1(bigint[], integer);
DROP FUNCTION pgjobs_take_batches_v1(bigint[], bigint[]),
    pgjobs_fold_changes_v1(bigint[], bigint[]);
DROP FUNCTION pgjobs_start_v1(json[], json[], bigint[], bigint[]),
    pgjobs_begin_batches_v1(bigint[]), pgjobs_run_again_v1(bigint[]),
    pgjobs_find_former_v1(bigint[]), pgjobs_expand_page_v1(bigint[], integer);
DROP FUNCTION pgjobs_cancel_page_v1(bigint[], integer),
    pgjobs_carry_cancels_v1(bigint[], bigint[]), pgjobs_unask_jobs_v1(bigint[]);
DROP FUNCTION pgjobs_reopen_batches_v1(bigint[], bigint[]),
    pgjobs_reopen_trees_v1(bigint[], bigint[]), pgjobs_seal_parts_v1(bigint[]),
    pgjobs_complete_batches_v1(bigint[]), pgjobs_complete_trees_v1(bigint[]);
"""
DROP_WATCH = "DROP FUNCTION pgjobs_watch_v1(bigint, integer, integer);"
DROP_RECHECK = """
DROP TRIGGER pgjobs_dependency_recheck ON pgjobs_dependency;
DROP FUNCTION pgjobs_recheck_v1();
"""

# The state as makemigrations writes it, a field in a line.
# fmt: off

class Migration(migrations.Migration):
    initial = True
    dependencies = []
    operations = [
        PostgresSQL(read("domains"), DROP_DOMAINS),
        PostgresSQL(read("jobs"), "DROP TABLE pgjobs_job;", state_operations=[
            migrations.CreateModel(
                name="Job",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("claim", models.BigIntegerField(default=0, editable=False, help_text="Fencing token: rises at every claim and every give-back.", verbose_name="claim")),
                    ("worker_id", models.BigIntegerField(editable=False, help_text="The worker that holds the job, or held it last.", null=True, verbose_name="worker id")),
                    ("enqueued_at", models.DateTimeField(db_default=Now(), editable=False, verbose_name="enqueued at")),
                    ("run_after", models.DateTimeField(help_text="The earliest start that was asked for.", null=True, verbose_name="run after")),
                    ("due_at", models.DateTimeField(editable=False, help_text="When the job may run next; empty means now.", null=True, verbose_name="due at")),
                    ("ready_at", models.DateTimeField(editable=False, help_text="Since when the job can run again; empty: since it was enqueued or asked for.", null=True, verbose_name="ready at")),
                    ("started_at", models.DateTimeField(editable=False, help_text="Begin of the first attempt.", null=True, verbose_name="started at")),
                    ("last_attempted_at", models.DateTimeField(editable=False, help_text="Begin of the newest attempt.", null=True, verbose_name="last attempted at")),
                    ("finished_at", models.DateTimeField(editable=False, null=True, verbose_name="finished at")),
                    ("cancel_requested_at", models.DateTimeField(editable=False, null=True, verbose_name="cancel requested at")),
                    ("timeout", models.FloatField(help_text="Seconds one attempt may take.", null=True, verbose_name="timeout")),
                    ("attempts", models.IntegerField(default=0, help_text="How often the job was started; counted at claim.", verbose_name="attempts")),
                    ("max_attempts", models.IntegerField(help_text="Empty: as the task declares.", null=True, verbose_name="max attempts")),
                    ("lost_count", models.IntegerField(default=0, help_text="How many attempts ended with their worker.", verbose_name="lost count")),
                    ("max_losses", models.IntegerField(help_text="Empty: as the setting MAX_LOSSES says.", null=True, verbose_name="max losses")),
                    ("expires_at", models.DateTimeField(help_text="Then it ends as cancelled, unless it runs.", null=True, verbose_name="expires at")),
                    ("on_failure", models.JSONField(help_text="The task that is enqueued when the job fails for good.", null=True, verbose_name="on failure")),
                    ("interruptions", models.IntegerField(default=0, editable=False, help_text="How many attempts were interrupted by a shutdown.", verbose_name="interruptions")),
                    ("is_declared", models.BooleanField(default=False, editable=False, help_text="Does it have what its task declares? If not, the worker that claims it adds that.", verbose_name="declared")),
                    ("is_async", models.BooleanField(default=False, editable=False, help_text="Does it run on an event loop? A hint for claims: the task decides.", verbose_name="async")),
                    ("priority", models.SmallIntegerField(default=0, help_text="-100 to 100; higher runs first.", verbose_name="priority")),
                    ("status", models.TextField(choices=[("ready", "Ready"), ("running", "Running"), ("successful", "Successful"), ("failed", "Failed"), ("cancelled", "Cancelled")], default="ready", verbose_name="status")),
                    ("queue_name", models.TextField(default="default", verbose_name="queue")),
                    ("task_path", models.TextField(verbose_name="task")),
                    ("backend", models.TextField(default="default", help_text="Alias in the setting TASKS.", verbose_name="backend")),
                    ("args", PlainJSONField(default=list, verbose_name="positional arguments")),
                    ("kwargs", PlainJSONField(default=dict, verbose_name="keyword arguments")),
                    ("correlation_id", models.TextField(blank=True, default="", verbose_name="correlation id")),
                    ("tags", TextArrayField(blank=True, default=list, verbose_name="tags")),
                    ("metadata", PlainJSONField(default=dict, verbose_name="metadata")),
                    ("errors", models.JSONField(default=list, help_text="One entry per failed attempt.", verbose_name="errors")),
                    ("result", PlainJSONField(null=True, verbose_name="result")),
                    ("progress", PlainJSONField(null=True, verbose_name="progress")),
                    ("worker_ids", TextArrayField(default=list, help_text="Name of the worker of each attempt.", verbose_name="workers")),
                    ("note", models.TextField(blank=True, default="", help_text="Why the job was last given back.", verbose_name="note")),
                    ("hold", models.TextField(choices=[("dependencies", "Waits for other jobs"), ("predecessor failed", "A job before it failed")], editable=False, help_text="Why a ready job waits without a time; empty: it does not.", null=True, verbose_name="hold")),
                    ("waits_for", models.IntegerField(default=0, editable=False, help_text="The number of unfinished jobs this one waits for.", verbose_name="waits for")),
                    ("concurrency_key", models.TextField(help_text="Jobs that share it run at most so many at a time, over all workers.", null=True, verbose_name="concurrency key")),
                    ("concurrency_limit", models.IntegerField(help_text="Empty: one at a time. A concurrency limit in the table goes first.", null=True, verbose_name="concurrency limit")),
                    ("skips_waiting", models.BooleanField(default=False, help_text="Does this job pass older ones of its key that wait for a retry?", verbose_name="skips waiting")),
                    ("rate_limit_keys", models.TextField(help_text='One per line, each "name" or "name:key".', null=True, verbose_name="rate limits")),
                    ("rate_cost", models.IntegerField(default=1, help_text="What a start takes of each of its rate limits.", verbose_name="rate cost")),
                    ("unique_key", models.TextField(help_text="At most one unfinished job of the task has it.", null=True, verbose_name="unique key")),
                    ("unique_until_claimed", models.BooleanField(default=False, help_text="Is the unique key free again as soon as the job is claimed?", verbose_name="unique until claimed")),
                    ("merged_count", models.IntegerField(default=0, help_text="How many later enqueues this job took in.", verbose_name="merged")),
                    ("subject", models.TextField(editable=False, help_text='The row that the job is about: "app.model:key".', null=True, verbose_name="subject")),
                    ("batch_id", models.BigIntegerField(editable=False, help_text="The batch that it belongs to.", null=True, verbose_name="batch id")),
                    ("source_id", models.BigIntegerField(editable=False, help_text="The job whose result it got; 0: it was made for whole batches.", null=True, verbose_name="source id")),
                    ("schedule", models.TextField(editable=False, help_text="The schedule that enqueued it.", null=True, verbose_name="schedule")),
                    ("scheduled_for", models.DateTimeField(editable=False, help_text="The time of its schedule that it was enqueued for.", null=True, verbose_name="scheduled for")),
                ],
                options={
                    "verbose_name": "job",
                    "verbose_name_plural": "jobs",
                    "db_table": "pgjobs_job",
                    "permissions": (("operate_job", "Can requeue, cancel, discard and change jobs"), ("enqueue_job", "Can enqueue jobs"), ("reveal_job", "Can see the masked values of jobs")),
                    "default_permissions": ("view", "delete"),
                    "required_db_vendor": "postgresql",
                },
            ),
        ]),
        PostgresSQL(read("controls"), DROP_CONTROLS, state_operations=[
            migrations.CreateModel(
                name="ConcurrencyLimit",
                fields=[
                    ("pattern", models.TextField(help_text='A concurrency key, or a pattern such as "shop:*". The key itself goes first, then the longest pattern.', primary_key=True, serialize=False, verbose_name="key or pattern")),
                    ("max_running", models.IntegerField(validators=[MinValueValidator(1)], verbose_name="at most at a time")),
                    ("weight", models.SmallIntegerField(default=1, help_text="How many jobs each key gets when it is its turn.", validators=[MinValueValidator(1), MaxValueValidator(1000)], verbose_name="weight")),
                    ("note", models.TextField(blank=True, default="", verbose_name="note")),
                ],
                options={
                    "verbose_name": "concurrency limit",
                    "verbose_name_plural": "concurrency limits",
                    "db_table": "pgjobs_concurrency_limit",
                    "required_db_vendor": "postgresql",
                },
            ),
            migrations.CreateModel(
                name="Dependency",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("predecessor_id", models.BigIntegerField(verbose_name="predecessor id")),
                    ("job_id", models.BigIntegerField(verbose_name="job id")),
                    ("after_failure", models.TextField(choices=[("cancel", "Cancel"), ("run", "Run anyway"), ("hold", "Hold until somebody decides")], help_text="What becomes of the job when its predecessor fails or is cancelled.", verbose_name="after a failure")),
                ],
                options={
                    "verbose_name": "dependency",
                    "verbose_name_plural": "dependencies",
                    "db_table": "pgjobs_dependency",
                    "default_permissions": ("view",),
                    "required_db_vendor": "postgresql",
                },
            ),
            migrations.CreateModel(
                name="Pause",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("kind", models.TextField(choices=[("queue", "Queue"), ("task", "Task"), ("key", "Concurrency key")], verbose_name="kind")),
                    ("name", models.TextField(help_text="A queue, a task's path, or a key or pattern such as \"shop:*\".", verbose_name="name")),
                    ("reason", models.TextField(blank=True, default="", verbose_name="reason")),
                    ("paused_by", models.TextField(blank=True, default="", verbose_name="paused by")),
                    ("paused_at", models.DateTimeField(db_default=Now(), editable=False, verbose_name="paused at")),
                    ("resume_at", models.DateTimeField(blank=True, help_text="Empty: when somebody resumes it.", null=True, verbose_name="resumes at")),
                ],
                options={
                    "verbose_name": "pause",
                    "verbose_name_plural": "pauses",
                    "db_table": "pgjobs_pause",
                    "required_db_vendor": "postgresql",
                    "unique_together": {("kind", "name")},
                },
            ),
            migrations.CreateModel(
                name="QueueSettings",
                fields=[
                    ("queue_name", models.TextField(primary_key=True, serialize=False, verbose_name="queue")),
                    ("max_running", models.IntegerField(blank=True, help_text="Over all workers. Empty: no limit.", null=True, validators=[MinValueValidator(1)], verbose_name="at most at a time")),
                    ("boost", models.SmallIntegerField(default=0, help_text="Added to the priority of every job of the queue when jobs are claimed.", validators=[MinValueValidator(-200), MaxValueValidator(200)], verbose_name="boost")),
                    ("note", models.TextField(blank=True, default="", verbose_name="note")),
                ],
                options={
                    "verbose_name": "queue settings",
                    "verbose_name_plural": "queue settings",
                    "db_table": "pgjobs_queue_settings",
                    "permissions": (("control_queue", "Can pause queues and change limits"),),
                    "required_db_vendor": "postgresql",
                },
            ),
            migrations.CreateModel(
                name="RateLimit",
                fields=[
                    ("name", models.TextField(help_text='"shopify" holds for each key of "shopify:..."; "shopify:17" for that key.', primary_key=True, serialize=False, verbose_name="name")),
                    ("count", models.IntegerField(validators=[MinValueValidator(1)], verbose_name="count")),
                    ("period", models.FloatField(help_text="Seconds.", validators=[MinValueValidator(0.001), MaxValueValidator(31622400)], verbose_name="period")),
                    ("burst", models.IntegerField(blank=True, help_text="How many may come at once, then one every period / count. Empty: all of the count.", null=True, validators=[MinValueValidator(1)], verbose_name="burst")),
                    ("note", models.TextField(blank=True, default="", verbose_name="note")),
                ],
                options={
                    "verbose_name": "rate limit",
                    "verbose_name_plural": "rate limits",
                    "db_table": "pgjobs_rate_limit",
                    "required_db_vendor": "postgresql",
                },
            ),
            migrations.CreateModel(
                name="RateState",
                fields=[
                    ("key", models.TextField(primary_key=True, serialize=False, verbose_name="key")),
                    ("next_free", models.DateTimeField(verbose_name="all free at")),
                ],
                options={
                    "verbose_name": "state of a rate limit",
                    "verbose_name_plural": "states of rate limits",
                    "db_table": "pgjobs_rate_state",
                    "default_permissions": ("view", "delete"),
                    "required_db_vendor": "postgresql",
                },
            ),
        ]),
        PostgresSQL(read("batches"), DROP_BATCHES, state_operations=[
            migrations.CreateModel(
                name="Batch",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("flow_id", models.BigIntegerField(editable=False, help_text="The batch that is opened by hand and that this one follows, or is.", verbose_name="flow id")),
                    ("created_at", models.DateTimeField(db_default=Now(), editable=False, verbose_name="created at")),
                    ("sealed_at", models.DateTimeField(editable=False, help_text="Since when no more jobs come.", null=True, verbose_name="sealed at")),
                    ("completed_at", models.DateTimeField(editable=False, help_text="Since when it is sealed, and all of its own jobs and parts have finished.", null=True, verbose_name="completed at")),
                    ("tree_completed_at", models.DateTimeField(editable=False, help_text="Since when everything below it is complete, too.", null=True, verbose_name="tree completed at")),
                    ("jobs", models.BigIntegerField(default=0, editable=False, verbose_name="jobs")),
                    ("successful", models.BigIntegerField(default=0, editable=False, verbose_name="successful")),
                    ("failed", models.BigIntegerField(default=0, editable=False, verbose_name="failed")),
                    ("cancelled", models.BigIntegerField(default=0, editable=False, verbose_name="cancelled")),
                    ("open_predecessors", models.BigIntegerField(default=0, editable=False, help_text="How many of those that it follows are not complete.", verbose_name="open predecessors")),
                    ("open_parts", models.BigIntegerField(default=0, editable=False, help_text="How many batches that it is to be complete with are open.", verbose_name="open parts")),
                    ("open_children", models.BigIntegerField(default=0, editable=False, help_text="How many batches right below it are open.", verbose_name="open children")),
                    ("failed_children", models.BigIntegerField(default=0, editable=False, help_text="In how many of these something has failed.", verbose_name="failed children")),
                    ("completions", models.BigIntegerField(default=0, editable=False, help_text="How often its tree was complete.", verbose_name="completions")),
                    ("follows", models.TextField(choices=[("each", "Each result"), ("each item", "Each element of a result"), ("gather", "All results"), ("completion", "The end")], editable=False, help_text="What of the batches before it makes its jobs; empty: they are added.", null=True, verbose_name="follows")),
                    ("cancel_requested_at", models.DateTimeField(editable=False, help_text="Since when nothing of it is to begin.", null=True, verbose_name="cancel requested at")),
                    ("on_failed_job", models.TextField(choices=[("continue", "Go on"), ("cancel branch", "Cancel it and what is below it"), ("cancel workflow", "Cancel the workflow")], default="continue", editable=False, help_text="What else ends when one of its jobs fails.", verbose_name="on a failed job")),
                    ("dedupe_key", models.TextField(editable=False, help_text="At most one workflow of the name has it.", null=True, verbose_name="dedupe key")),
                    ("runs_after_failure", models.BooleanField(default=False, editable=False, verbose_name="runs after a failure")),
                    ("skips_none", models.BooleanField(default=False, editable=False, help_text="Does a result of None make no job?", verbose_name="skips None")),
                    ("failed_predecessors", models.BigIntegerField(default=0, editable=False, help_text="In how many of those that it follows, or above them, something has failed.", verbose_name="failed predecessors")),
                    ("carried_failure", models.BooleanField(default=False, editable=False, help_text="Did it say to those that follow it that something has failed?", verbose_name="carried failure")),
                    ("tree_failed", models.BooleanField(default=False, editable=False, help_text="Has something failed in the whole of it?", verbose_name="tree failed")),
                    ("opener_id", models.BigIntegerField(editable=False, help_text="The job that opened it.", null=True, verbose_name="opener id")),
                    ("name", models.TextField(blank=True, default="", verbose_name="name")),
                    ("step", PlainJSONField(editable=False, help_text="The columns of the jobs that it makes.", null=True, verbose_name="step")),
                    ("callbacks", PlainJSONField(default=list, editable=False, help_text="What is enqueued at its end.", verbose_name="callbacks")),
                    ("metadata", PlainJSONField(default=dict, verbose_name="metadata")),
                    ("told_at", models.DateTimeField(editable=False, help_text="When it was told that the jobs of the tree are to be deleted.", null=True, verbose_name="told at")),
                    ("deleting_at", models.DateTimeField(editable=False, help_text="Nothing of it runs again.", null=True, verbose_name="deleting since")),
                    ("unasked_at", models.DateTimeField(editable=False, null=True, verbose_name="unasked at")),
                    ("runs_again", models.BooleanField(default=False, editable=False, verbose_name="runs again")),
                    ("broken", models.TextField(default="", editable=False, help_text="Why it could not be counted, and is left alone since.", verbose_name="broken")),
                    ("parent", models.ForeignKey(editable=False, null=True, on_delete=models.DO_NOTHING, related_name="children", to="pgjobs.batch", verbose_name="parent")),
                    ("root", models.ForeignKey(db_constraint=False, editable=False, on_delete=models.DO_NOTHING, related_name="tree", to="pgjobs.batch", verbose_name="root")),
                ],
                options={
                    "verbose_name": "batch",
                    "verbose_name_plural": "workflows",
                    "db_table": "pgjobs_batch",
                    "default_permissions": ("view",),
                    "required_db_vendor": "postgresql",
                },
            ),
        ]),
        PostgresSQL(read("schedules"), DROP_SCHEDULES, state_operations=[
            migrations.CreateModel(
                name="Occurrence",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("schedule", models.TextField(verbose_name="schedule")),
                    ("scheduled_for", models.DateTimeField(verbose_name="scheduled for")),
                    ("outcome", models.TextField(choices=[("enqueued", "Enqueued"), ("joined", "Joined a job that waited"), ("skipped", "Skipped"), ("missed", "Missed"), ("failed", "Not enqueued")], verbose_name="outcome")),
                    ("job_id", models.BigIntegerField(null=True, verbose_name="job id")),
                    ("note", models.TextField(blank=True, default="", verbose_name="note")),
                    ("created_at", models.DateTimeField(db_default=Now(), editable=False, verbose_name="created at")),
                ],
                options={
                    "verbose_name": "occurrence",
                    "verbose_name_plural": "occurrences",
                    "db_table": "pgjobs_occurrence",
                    "unique_together": {("schedule", "scheduled_for")},
                    "default_permissions": ("view",),
                    "required_db_vendor": "postgresql",
                },
            ),
            migrations.CreateModel(
                name="Schedule",
                fields=[
                    ("name", models.TextField(primary_key=True, serialize=False, verbose_name="name")),
                    ("task_path", models.TextField(verbose_name="task")),
                    ("args", PlainJSONField(default=list, verbose_name="positional arguments")),
                    ("kwargs", PlainJSONField(default=dict, verbose_name="keyword arguments")),
                    ("cron", models.TextField(blank=True, null=True, verbose_name="cron")),
                    ("every", models.FloatField(blank=True, help_text="Seconds.", null=True, verbose_name="every")),
                    ("timezone", models.TextField(default="UTC", verbose_name="time zone")),
                    ("skipped_time", models.TextField(blank=True, help_text='"after" the gap, or "never". Empty: as the expression is.', null=True, verbose_name="a time that the clock leaves out")),
                    ("repeated_time", models.TextField(blank=True, help_text='"once" or "twice". Empty: as the expression is.', null=True, verbose_name="a time that the clock shows twice")),
                    ("starts_at", models.DateTimeField(blank=True, null=True, verbose_name="from")),
                    ("ends_at", models.DateTimeField(blank=True, null=True, verbose_name="until")),
                    ("except_dates", TextArrayField(blank=True, default=list, verbose_name="except on")),
                    ("max_runs", models.IntegerField(blank=True, help_text="Empty: without end.", null=True, verbose_name="at most so often")),
                    ("jitter", models.FloatField(default=0, help_text="A job starts up to so many seconds later.", verbose_name="jitter")),
                    ("missed", models.TextField(default="latest", verbose_name="missed occurrences")),
                    ("grace", models.FloatField(default=86400, help_text="Seconds after which it is too late.", verbose_name="grace")),
                    ("overlap", models.TextField(default="allow", verbose_name="while an earlier job has not finished")),
                    ("declared", PlainJSONField(editable=False, help_text="Empty: made by a person.", null=True, verbose_name="declared")),
                    ("changed_fields", TextArrayField(default=list, editable=False, verbose_name="changed here")),
                    ("paused_at", models.DateTimeField(editable=False, null=True, verbose_name="paused at")),
                    ("paused_by", models.TextField(blank=True, default="", verbose_name="paused by")),
                    ("pause_reason", models.TextField(blank=True, default="", verbose_name="reason")),
                    ("retired_at", models.DateTimeField(editable=False, help_text="Since then no worker declares it.", null=True, verbose_name="retired at")),
                    ("next_at", models.DateTimeField(editable=False, null=True, verbose_name="next run")),
                    ("plan_from", models.DateTimeField(editable=False, null=True, verbose_name="to be planned from")),
                    ("last_at", models.DateTimeField(editable=False, null=True, verbose_name="last run")),
                    ("last_job_id", models.BigIntegerField(editable=False, null=True, verbose_name="last job")),
                    ("runs", models.IntegerField(default=0, editable=False, verbose_name="runs")),
                    ("error", models.TextField(default="", editable=False, verbose_name="error")),
                ],
                options={
                    "verbose_name": "schedule",
                    "verbose_name_plural": "schedules",
                    "db_table": "pgjobs_schedule",
                    "permissions": (("control_schedule", "Can run, pause and skip schedules"),),
                    "required_db_vendor": "postgresql",
                },
            ),
        ]),
        migrations.CreateModel(
            name="Worker",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("started_at", models.DateTimeField(db_default=Now(), verbose_name="started at")),
                ("heartbeat_at", models.DateTimeField(db_default=Now(), verbose_name="last heartbeat")),
                ("lease_expires_at", models.DateTimeField(verbose_name="lease expires at")),
                ("ended_at", models.DateTimeField(null=True, verbose_name="ended at")),
                ("pid", models.IntegerField(verbose_name="process id")),
                ("slots", models.IntegerField(help_text="Threads that run jobs.", verbose_name="slots")),
                ("lost", models.BooleanField(default=False, help_text="The lease ended before the worker said goodbye.", verbose_name="lost")),
                ("listening", models.BooleanField(default=False, help_text="Idle and to be notified of new jobs; busy workers find them by working.", verbose_name="listening")),
                ("name", models.TextField(verbose_name="name")),
                ("host", models.TextField(verbose_name="host")),
                ("version", models.TextField(verbose_name="version")),
                ("queues", TextArrayField(help_text="Empty: all.", null=True, verbose_name="queues")),
                ("excluded_queues", TextArrayField(default=list, verbose_name="excluded queues")),
                ("backends", TextArrayField(verbose_name="backends")),
                ("task_paths", TextArrayField(help_text="The tasks this worker knows.", verbose_name="tasks")),
                ("schedule_names", TextArrayField(help_text="The schedules that its code declares.", null=True, verbose_name="schedules")),
                ("quiet_requested_at", models.DateTimeField(help_text="Since then the worker is to claim nothing more.", null=True, verbose_name="quiet requested at")),
                ("stop_requested_at", models.DateTimeField(help_text="Since then the worker is to end what it runs, and itself.", null=True, verbose_name="stop requested at")),
                ("lease_seconds", models.FloatField(help_text="Seconds from a renewal to the end of the lease.", null=True, verbose_name="lease")),
                ("token_id", models.BigIntegerField(help_text="The token of a worker over HTTP; empty: a process of ours.", null=True, verbose_name="token id")),
                ("named_at", models.JSONField(editable=False, help_text="When a worker over HTTP last named each attempt that it runs.", null=True, verbose_name="named at")),
            ],
            options={
                "verbose_name": "worker",
                "verbose_name_plural": "workers",
                "db_table": "pgjobs_worker",
                "permissions": (("control_worker", "Can quiet and stop workers"),),
                "default_permissions": ("view", "delete"),
                "required_db_vendor": "postgresql",
            },
        ),
        migrations.CreateModel(
            name="BulkChange",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField(db_default=Now(), editable=False, verbose_name="created at")),
                ("user_id", models.TextField(blank=True, default="", help_text="Primary key of who asked for it.", verbose_name="user id")),
                ("cancel_requested_at", models.DateTimeField(null=True, verbose_name="cancel requested at")),
                ("finished_at", models.DateTimeField(null=True, verbose_name="finished at")),
                ("job_id", models.BigIntegerField(null=True, verbose_name="job id")),
                ("total", models.IntegerField(help_text="Jobs of the selection; empty: too many to count.", null=True, verbose_name="total")),
                ("changed", models.IntegerField(default=0, verbose_name="changed")),
                ("passed_over", models.IntegerField(default=0, help_text="Jobs that had another status by then.", verbose_name="passed over")),
                ("conflicts", models.IntegerField(default=0, help_text="Jobs whose unique key another one has.", verbose_name="conflicts")),
                ("conflict_ids", models.JSONField(default=list, verbose_name="jobs in conflict")),
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
        PostgresSQL(read("statistics"), DROP_STATISTICS, state_operations=[
            migrations.CreateModel(
                name="Statistic",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("begins_at", models.DateTimeField(verbose_name="begins at")),
                    ("enqueued", models.BigIntegerField(default=0, verbose_name="enqueued")),
                    ("successful", models.BigIntegerField(default=0, verbose_name="successful")),
                    ("failed", models.BigIntegerField(default=0, verbose_name="failed")),
                    ("cancelled", models.BigIntegerField(default=0, verbose_name="cancelled")),
                    ("retried", models.BigIntegerField(default=0, verbose_name="retried")),
                    ("lost", models.BigIntegerField(default=0, verbose_name="lost")),
                    ("waited", models.FloatField(default=0, verbose_name="waited")),
                    ("ran", models.FloatField(default=0, verbose_name="ran")),
                    ("period", models.TextField(default="part", verbose_name="period")),
                    ("queue_name", models.TextField(verbose_name="queue")),
                    ("task_path", models.TextField(verbose_name="task")),
                    ("waits", CountArrayField(default=list, verbose_name="waiting times")),
                    ("runs", CountArrayField(default=list, verbose_name="running times")),
                ],
                options={
                    "verbose_name": "statistic",
                    "verbose_name_plural": "statistics",
                    "db_table": "pgjobs_statistic",
                    "default_permissions": (),
                    "required_db_vendor": "postgresql",
                },
            ),
            migrations.CreateModel(
                name="StatisticSum",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("begins_at", models.DateTimeField(verbose_name="begins at")),
                    ("enqueued", models.BigIntegerField(default=0, verbose_name="enqueued")),
                    ("successful", models.BigIntegerField(default=0, verbose_name="successful")),
                    ("failed", models.BigIntegerField(default=0, verbose_name="failed")),
                    ("cancelled", models.BigIntegerField(default=0, verbose_name="cancelled")),
                    ("retried", models.BigIntegerField(default=0, verbose_name="retried")),
                    ("lost", models.BigIntegerField(default=0, verbose_name="lost")),
                    ("waited", models.FloatField(default=0, verbose_name="waited")),
                    ("ran", models.FloatField(default=0, verbose_name="ran")),
                    ("period", models.TextField(default="part", verbose_name="period")),
                    ("queue_name", models.TextField(null=True, verbose_name="queue")),
                    ("task_path", models.TextField(null=True, verbose_name="task")),
                    ("waits", CountArrayField(default=list, verbose_name="waiting times")),
                    ("runs", CountArrayField(default=list, verbose_name="running times")),
                ],
                options={
                    "verbose_name": "sum of statistics",
                    "verbose_name_plural": "sums of statistics",
                    "db_table": "pgjobs_statistic_sum",
                    "default_permissions": (),
                    "required_db_vendor": "postgresql",
                },
            ),
            migrations.CreateModel(
                name="QueueSample",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("measured_at", models.DateTimeField(db_default=Now(), verbose_name="measured at")),
                    ("ready", models.BigIntegerField(default=0, verbose_name="ready")),
                    ("running", models.BigIntegerField(default=0, verbose_name="running")),
                    ("scheduled", models.BigIntegerField(default=0, verbose_name="scheduled")),
                    ("retrying", models.BigIntegerField(default=0, verbose_name="retrying")),
                    ("blocked", models.BigIntegerField(default=0, verbose_name="blocked")),
                    ("waiting_since", models.DateTimeField(null=True, verbose_name="waiting since")),
                    ("last_job_id", models.BigIntegerField(null=True, verbose_name="last job id")),
                    ("counted_job_id", models.BigIntegerField(null=True, verbose_name="counted job id")),
                    ("is_cut", models.BooleanField(default=False, help_text="There are more jobs than were looked at.", verbose_name="cut")),
                    ("queue_name", models.TextField(null=True, verbose_name="queue")),
                ],
                options={
                    "verbose_name": "sample of a queue",
                    "verbose_name_plural": "samples of queues",
                    "db_table": "pgjobs_queue_sample",
                    "default_permissions": (),
                    "required_db_vendor": "postgresql",
                },
            ),
        ]),
        PostgresSQL(read("watching"), DROP_WATCHING, state_operations=[
            migrations.CreateModel(
                name="Mute",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("muted_at", models.DateTimeField(db_default=Now(), verbose_name="muted at")),
                    ("until", models.DateTimeField(verbose_name="until")),
                    ("kind", models.TextField(verbose_name="kind")),
                    ("subject", models.TextField(default="", help_text="A queue, a task, a key.", verbose_name="subject")),
                    ("reason", models.TextField(default="", verbose_name="reason")),
                    ("muted_by", models.TextField(default="", verbose_name="muted by")),
                ],
                options={
                    "verbose_name": "muted warning",
                    "verbose_name_plural": "muted warnings",
                    "db_table": "pgjobs_mute",
                    "unique_together": {("kind", "subject")},
                    "default_permissions": (),
                    "required_db_vendor": "postgresql",
                },
            ),
            migrations.CreateModel(
                name="Stack",
                fields=[
                    ("job_id", models.BigIntegerField(primary_key=True, serialize=False, verbose_name="job id")),
                    ("claim", models.BigIntegerField(help_text="The attempt that was asked about.", verbose_name="claim")),
                    ("worker_id", models.BigIntegerField(verbose_name="worker id")),
                    ("requested_at", models.DateTimeField(db_default=Now(), verbose_name="requested at")),
                    ("written_at", models.DateTimeField(null=True, verbose_name="written at")),
                    ("stack", models.TextField(default="", verbose_name="stack")),
                ],
                options={
                    "verbose_name": "stack",
                    "verbose_name_plural": "stacks",
                    "db_table": "pgjobs_stack",
                    "default_permissions": (),
                    "required_db_vendor": "postgresql",
                },
            ),
        ]),
        PostgresSQL(read("tokens"), DROP_TOKENS, state_operations=[
            migrations.CreateModel(
                name="Token",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("created_at", models.DateTimeField(db_default=Now(), editable=False, verbose_name="created at")),
                    ("expires_at", models.DateTimeField(blank=True, null=True, verbose_name="expires at")),
                    ("revoked_at", models.DateTimeField(editable=False, null=True, verbose_name="revoked at")),
                    ("last_used_at", models.DateTimeField(editable=False, help_text="Give or take a minute.", null=True, verbose_name="last used at")),
                    ("successor_id", models.BigIntegerField(editable=False, help_text="The token that a rotation has made of it.", null=True, verbose_name="successor")),
                    ("per_second", models.FloatField(blank=True, help_text="For each web process. Empty: any number.", null=True, validators=[MinValueValidator(0.001), MaxValueValidator(1000000)], verbose_name="requests per second")),
                    ("name", models.TextField(verbose_name="name")),
                    ("prefix", models.TextField(editable=False, help_text="The beginning of the secret.", verbose_name="begins with")),
                    ("digest", models.TextField(editable=False, unique=True, verbose_name="digest")),
                    ("verbs", TextArrayField(help_text="work, enqueue, read, manage", verbose_name="verbs")),
                    ("queues", TextArrayField(blank=True, help_text="Empty: all.", null=True, verbose_name="queues")),
                    ("tasks", TextArrayField(blank=True, help_text="Empty: all.", null=True, verbose_name="tasks")),
                    ("created_by", models.TextField(default="", editable=False, verbose_name="created by")),
                ],
                options={
                    "verbose_name": "API token",
                    "verbose_name_plural": "API tokens",
                    "db_table": "pgjobs_token",
                    "permissions": (("control_token", "Can make, rotate and revoke tokens"),),
                    "default_permissions": ("view",),
                    "required_db_vendor": "postgresql",
                },
            ),
        ]),
        PostgresSQL(read("lane"), DROP_LANE),
        PostgresSQL(read("postpone"), DROP_POSTPONE),
        PostgresSQL(read("wake"), DROP_WAKE),
        PostgresSQL(read("watch"), DROP_WATCH),
        PostgresSQL(read("merge"), DROP_MERGE),
        PostgresSQL(read("resolve"), "DROP FUNCTION pgjobs_resolve_v1(bigint[], integer, bigint[]);"),
        PostgresSQL(read("recheck"), DROP_RECHECK),
        PostgresSQL("".join(read(name) for name in SETTLE), DROP_SETTLE),
        PostgresSQL(read("batch_plain_sql"), DROP_PLAIN_SQL),
        PostgresSQL(read("recount"), "DROP FUNCTION pgjobs_recount_v1(bigint[]);"),
    ]
