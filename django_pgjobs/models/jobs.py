"""The jobs: the schema, and reading them with the ORM.

Everything that changes a job is SQL of ours (`django_pgjobs.control.lifecycle`, the worker), never
`save()`: a job moves between two partitions, and its writes are fenced.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, ClassVar, TypeVar

from asgiref.sync import sync_to_async
from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from django_pgjobs.control import lifecycle
from django_pgjobs.control.changing import cancel_jobs, requeue_jobs, reschedule_jobs, times_of
from django_pgjobs.control.explain import explain
from django_pgjobs.control.explanation import Explanation
from django_pgjobs.control.leaving import why_not_requeued
from django_pgjobs.control.many import change_all
from django_pgjobs.declaring.subjects import subject_of
from django_pgjobs.models.fields import InstantField, PlainJSONField, TextArrayField
from django_pgjobs.status import FINISHED, UNFINISHED, Hold, JobStatus
from django_pgjobs.values.twins import has_async_twin

F = TypeVar("F", bound=Callable[..., Any])


def of_queryset_only(method: F) -> F:
    """Let no template call a method, nor `Job.objects`, for which it would mean all jobs."""
    method.alters_data = True  # type: ignore[attr-defined]
    method.queryset_only = True  # type: ignore[attr-defined]
    return method


class JobQuerySet(models.QuerySet["Job"]):
    """Jobs to read, and to cancel, requeue or reschedule; any of them may be a slice.

    Which jobs are changed is read once, at the beginning. 1,000 are changed at a time, outside of a
    transaction each page in one of its own. Raise JobError if another transaction keeps some of
    them locked for two seconds, or if a trigger refuses the change of some; all others are changed
    by then. What else the database raises comes as it is; pages before it stay changed. After
    values() raise TypeError.
    """

    def unfinished(self) -> JobQuerySet:
        """Keep the jobs that are ready or running."""
        return self.filter(status__in=sorted(UNFINISHED))

    def finished(self) -> JobQuerySet:
        """Keep the jobs that are successful, failed or cancelled."""
        return self.filter(status__in=sorted(FINISHED))

    def for_subject(self, row: models.Model) -> JobQuerySet:
        """Keep the jobs that were enqueued with `using(subject=row)`; *row* is saved."""
        return self.filter(subject=subject_of(row))

    @of_queryset_only
    @has_async_twin
    def cancel(self) -> int:
        """Cancel the jobs that wait and ask those that run to end; return how many."""
        return change_all(self, UNFINISHED, cancel_jobs)

    @of_queryset_only
    @has_async_twin
    def requeue(self, *, run_after: datetime | timedelta | None = None) -> int:
        """Give the finished jobs new attempts, at *run_after*; return how many got some.

        Successful ones, too, unless a status is filtered. A job stays as it is if a live one holds
        its unique key. Raise JobError for jobs of a cancelled batch, after all others were changed.
        """
        change = partial(requeue_jobs, times=times_of(run_after))
        return change_all(self, FINISHED, change, why_not_requeued)

    @of_queryset_only
    @has_async_twin
    def reschedule(self, run_after: datetime | timedelta | None) -> int:
        """Move the jobs that wait to another time, None for now; return how many were moved."""
        change = partial(reschedule_jobs, times=times_of(run_after))
        return change_all(self, {JobStatus.READY}, change)

    @of_queryset_only
    async def acancel(self) -> int:
        """See `cancel`."""
        return await sync_to_async(self.cancel, thread_sensitive=True)()

    @of_queryset_only
    async def arequeue(self, *, run_after: datetime | timedelta | None = None) -> int:
        """See `requeue`."""
        return await sync_to_async(self.requeue, thread_sensitive=True)(run_after=run_after)

    @of_queryset_only
    async def areschedule(self, run_after: datetime | timedelta | None) -> int:
        """See `reschedule`."""
        return await sync_to_async(self.reschedule, thread_sensitive=True)(run_after)


class Job(models.Model):
    """One request to run one task."""

    id = models.BigAutoField(primary_key=True)
    claim = models.BigIntegerField(
        _("claim"),
        default=0,
        editable=False,
        help_text=_("Fencing token: rises at every claim and every give-back."),
    )
    worker_id = models.BigIntegerField(
        _("worker id"),
        null=True,
        editable=False,
        help_text=_("The worker that holds the job, or held it last."),
    )
    enqueued_at = InstantField(_("enqueued at"), db_default=Now(), editable=False)
    run_after = InstantField(
        _("run after"), null=True, help_text=_("The earliest start that was asked for.")
    )
    due_at = InstantField(
        _("due at"),
        null=True,
        editable=False,
        help_text=_("When the job may run next; empty means now."),
    )
    ready_at = InstantField(
        _("ready at"),
        null=True,
        editable=False,
        help_text=_("Since when the job can run again; empty: since it was enqueued or asked for."),
    )
    started_at = InstantField(
        _("started at"), null=True, editable=False, help_text=_("Begin of the first attempt.")
    )
    last_attempted_at = InstantField(
        _("last attempted at"),
        null=True,
        editable=False,
        help_text=_("Begin of the newest attempt."),
    )
    finished_at = InstantField(_("finished at"), null=True, editable=False)
    cancel_requested_at = InstantField(_("cancel requested at"), null=True, editable=False)
    timeout = models.FloatField(
        _("timeout"), null=True, help_text=_("Seconds one attempt may take.")
    )
    attempts = models.IntegerField(
        _("attempts"), default=0, help_text=_("How often the job was started; counted at claim.")
    )
    max_attempts = models.IntegerField(
        _("max attempts"), null=True, help_text=_("Empty: as the task declares.")
    )
    lost_count = models.IntegerField(
        _("lost count"), default=0, help_text=_("How many attempts ended with their worker.")
    )
    max_losses = models.IntegerField(
        _("max losses"), null=True, help_text=_("Empty: as the setting MAX_LOSSES says.")
    )
    expires_at = InstantField(
        _("expires at"), null=True, help_text=_("Then it ends as cancelled, unless it runs.")
    )
    on_failure = models.JSONField(
        _("on failure"),
        null=True,
        help_text=_("The task that is enqueued when the job fails for good."),
    )
    interruptions = models.IntegerField(
        _("interruptions"),
        default=0,
        editable=False,
        help_text=_("How many attempts were interrupted by a shutdown."),
    )
    is_declared = models.BooleanField(
        _("declared"),
        default=False,
        editable=False,
        help_text=_(
            "Does it have what its task declares? If not, the worker that claims it adds that."
        ),
    )
    is_async = models.BooleanField(
        _("async"),
        default=False,
        editable=False,
        help_text=_("Does it run on an event loop? A hint for claims: the task decides."),
    )
    priority = models.SmallIntegerField(
        _("priority"), default=0, help_text=_("-100 to 100; higher runs first.")
    )
    status = models.TextField(_("status"), choices=JobStatus, default=JobStatus.READY)
    queue_name = models.TextField(_("queue"), default="default")
    task_path = models.TextField(_("task"))
    backend = models.TextField(
        _("backend"), default="default", help_text=_("Alias in the setting TASKS.")
    )
    args = PlainJSONField(_("positional arguments"), default=list)
    kwargs = PlainJSONField(_("keyword arguments"), default=dict)
    correlation_id = models.TextField(_("correlation id"), default="", blank=True)
    tags = TextArrayField(_("tags"), default=list, blank=True)
    metadata = PlainJSONField(_("metadata"), default=dict)
    errors = models.JSONField(
        _("errors"),
        default=list,
        help_text=_("One entry per failed attempt."),
    )
    result = PlainJSONField(_("result"), null=True)
    progress = PlainJSONField(_("progress"), null=True)
    worker_ids = TextArrayField(
        _("workers"),
        default=list,
        help_text=_("Name of the worker of each attempt."),
    )
    note = models.TextField(
        _("note"), default="", blank=True, help_text=_("Why the job was last given back.")
    )
    hold = models.TextField(
        _("hold"),
        choices=Hold,
        null=True,
        editable=False,
        help_text=_("Why a ready job waits without a time; empty: it does not."),
    )
    waits_for = models.IntegerField(
        _("waits for"),
        default=0,
        editable=False,
        help_text=_("The number of unfinished jobs this one waits for."),
    )
    concurrency_key = models.TextField(
        _("concurrency key"),
        null=True,
        help_text=_("Jobs that share it run at most so many at a time, over all workers."),
    )
    concurrency_limit = models.IntegerField(
        _("concurrency limit"),
        null=True,
        help_text=_("Empty: one at a time. A concurrency limit in the table goes first."),
    )
    skips_waiting = models.BooleanField(
        _("skips waiting"),
        default=False,
        help_text=_("Does this job pass older ones of its key that wait for a retry?"),
    )
    rate_limit_keys = models.TextField(
        _("rate limits"),
        null=True,
        help_text=_('One per line, each "name" or "name:key".'),
    )
    rate_cost = models.IntegerField(
        _("rate cost"), default=1, help_text=_("What a start takes of each of its rate limits.")
    )
    unique_key = models.TextField(
        _("unique key"),
        null=True,
        help_text=_("At most one unfinished job of the task has it."),
    )
    unique_until_claimed = models.BooleanField(
        _("unique until claimed"),
        default=False,
        help_text=_("Is the unique key free again as soon as the job is claimed?"),
    )
    merged_count = models.IntegerField(
        _("merged"), default=0, help_text=_("How many later enqueues this job took in.")
    )
    subject = models.TextField(
        _("subject"),
        null=True,
        editable=False,
        help_text=_('The row that the job is about: "app.model:key".'),
    )
    batch_id = models.BigIntegerField(
        _("batch id"), null=True, editable=False, help_text=_("The batch that it belongs to.")
    )
    source_id = models.BigIntegerField(
        _("source id"),
        null=True,
        editable=False,
        help_text=_("The job whose result it got; 0: it was made for whole batches."),
    )
    schedule = models.TextField(
        _("schedule"), null=True, editable=False, help_text=_("The schedule that enqueued it.")
    )
    scheduled_for = InstantField(
        _("scheduled for"),
        null=True,
        editable=False,
        help_text=_("The time of its schedule that it was enqueued for."),
    )

    objects: ClassVar[models.Manager[Job]] = JobQuerySet.as_manager()

    class Meta:
        db_table = "pgjobs_job"
        verbose_name = _("job")
        verbose_name_plural = _("jobs")
        default_permissions = ("view", "delete")
        permissions = (
            ("operate_job", "Can requeue, cancel, discard and change jobs"),
            ("enqueue_job", "Can enqueue jobs"),
            ("reveal_job", "Can see the masked values of jobs"),
        )
        required_db_vendor = "postgresql"

    def __str__(self) -> str:
        return f"{self.task_path} #{self.pk}"

    @property
    def allowed_attempts(self) -> int | None:
        """How many attempts there may be, those that were lost included; None: as declared."""
        return self.max_attempts + self.lost_count if self.max_attempts else None

    @property
    def waiting_since(self) -> datetime:
        """Since when the job can run, or could before its newest attempt; it may be yet to come.

        A retry waits since it was due, a requeued job since it was requeued.
        """
        since: datetime = self.ready_at or max(filter(None, (self.enqueued_at, self.run_after)))
        return since

    def cancel(self) -> bool:
        """See `django_pgjobs.cancel`."""
        return lifecycle.cancel(self.pk)

    def requeue(self, *, run_after: datetime | timedelta | None = None) -> bool:
        """See `django_pgjobs.requeue`."""
        return lifecycle.requeue(self.pk, run_after=run_after)

    def reschedule(self, run_after: datetime | timedelta | None) -> bool:
        """See `django_pgjobs.reschedule`."""
        return lifecycle.reschedule(self.pk, run_after)

    def explain(self) -> Explanation:
        """See `django_pgjobs.control.explain.explain`."""
        return explain(self.pk)
