"""The schedules, and what became of each of their occurrences."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from django_pgjobs.models.fields import InstantField, PlainJSONField, TextArrayField
from django_pgjobs.status import OccurrenceOutcome


class Schedule(models.Model):
    """When jobs of a task are enqueued by themselves.

    The row is what counts: what code declares is written into it when a worker starts, except
    for the columns that a person has changed (`changed_fields`).
    """

    name = models.TextField(_("name"), primary_key=True)
    task_path = models.TextField(_("task"))
    args = PlainJSONField(_("positional arguments"), default=list)
    kwargs = PlainJSONField(_("keyword arguments"), default=dict)
    cron = models.TextField(_("cron"), null=True, blank=True)
    every = models.FloatField(_("every"), null=True, blank=True, help_text=_("Seconds."))
    timezone = models.TextField(_("time zone"), default="UTC")
    skipped_time = models.TextField(
        _("a time that the clock leaves out"),
        null=True,
        blank=True,
        help_text=_('"after" the gap, or "never". Empty: as the expression is.'),
    )
    repeated_time = models.TextField(
        _("a time that the clock shows twice"),
        null=True,
        blank=True,
        help_text=_('"once" or "twice". Empty: as the expression is.'),
    )
    starts_at = InstantField(_("from"), null=True, blank=True)
    ends_at = InstantField(_("until"), null=True, blank=True)
    except_dates = TextArrayField(_("except on"), default=list, blank=True)
    max_runs = models.IntegerField(
        _("at most so often"), null=True, blank=True, help_text=_("Empty: without end.")
    )
    jitter = models.FloatField(
        _("jitter"), default=0, help_text=_("A job starts up to so many seconds later.")
    )
    missed = models.TextField(_("missed occurrences"), default="latest")
    grace = models.FloatField(
        _("grace"), default=86400, help_text=_("Seconds after which it is too late.")
    )
    overlap = models.TextField(_("while an earlier job has not finished"), default="allow")
    declared = PlainJSONField(
        _("declared"), null=True, editable=False, help_text=_("Empty: made by a person.")
    )
    changed_fields = TextArrayField(_("changed here"), default=list, editable=False)
    paused_at = InstantField(_("paused at"), null=True, editable=False)
    paused_by = models.TextField(_("paused by"), default="", blank=True)
    pause_reason = models.TextField(_("reason"), default="", blank=True)
    retired_at = InstantField(
        _("retired at"),
        null=True,
        editable=False,
        help_text=_("Since then no worker declares it."),
    )
    next_at = InstantField(_("next run"), null=True, editable=False)
    # When next_at is -infinity.
    plan_from = InstantField(_("to be planned from"), null=True, editable=False)
    last_at = InstantField(_("last run"), null=True, editable=False)
    last_job_id = models.BigIntegerField(_("last job"), null=True, editable=False)
    runs = models.IntegerField(_("runs"), default=0, editable=False)
    error = models.TextField(_("error"), default="", editable=False)

    class Meta:
        db_table = "pgjobs_schedule"
        verbose_name = _("schedule")
        verbose_name_plural = _("schedules")
        permissions = (("control_schedule", "Can run, pause and skip schedules"),)
        required_db_vendor = "postgresql"

    def __str__(self) -> str:
        return self.name


class Occurrence(models.Model):
    """One time of a schedule that has come, and its job or why it has none."""

    id = models.BigAutoField(primary_key=True)
    schedule = models.TextField(_("schedule"))
    scheduled_for = InstantField(_("scheduled for"))
    outcome = models.TextField(_("outcome"), choices=OccurrenceOutcome)
    job_id = models.BigIntegerField(_("job id"), null=True)
    note = models.TextField(_("note"), default="", blank=True)
    created_at = InstantField(_("created at"), db_default=Now(), editable=False)

    class Meta:
        db_table = "pgjobs_occurrence"
        verbose_name = _("occurrence")
        verbose_name_plural = _("occurrences")
        default_permissions = ("view",)
        required_db_vendor = "postgresql"
        unique_together = (("schedule", "scheduled_for"),)

    def __str__(self) -> str:
        return f"{self.schedule} {self.scheduled_for}"
