"""The workers: a row per process, which is its lease."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from django_pgjobs.models.fields import InstantField, TextArrayField


class Worker(models.Model):
    """One `runjobs` process, or a worker over HTTP: its lease covers every job it runs.

    A worker is live while `ended_at` is empty and its lease runs.
    """

    id = models.BigAutoField(primary_key=True)
    started_at = InstantField(_("started at"), db_default=Now())
    heartbeat_at = InstantField(_("last heartbeat"), db_default=Now())
    lease_expires_at = InstantField(_("lease expires at"))
    lease_seconds = models.FloatField(
        _("lease"), null=True, help_text=_("Seconds from a renewal to the end of the lease.")
    )
    ended_at = InstantField(_("ended at"), null=True)
    token_id = models.BigIntegerField(
        _("token id"),
        null=True,
        help_text=_("The token of a worker over HTTP; empty: a process of ours."),
    )
    pid = models.IntegerField(_("process id"))
    slots = models.IntegerField(_("slots"), help_text=_("Threads that run jobs."))
    lost = models.BooleanField(
        _("lost"), default=False, help_text=_("The lease ended before the worker said goodbye.")
    )
    listening = models.BooleanField(
        _("listening"),
        default=False,
        help_text=_("Idle and to be notified of new jobs; busy workers find them by working."),
    )
    quiet_requested_at = InstantField(
        _("quiet requested at"),
        null=True,
        help_text=_("Since then the worker is to claim nothing more."),
    )
    stop_requested_at = InstantField(
        _("stop requested at"),
        null=True,
        help_text=_("Since then the worker is to end what it runs, and itself."),
    )
    name = models.TextField(_("name"))
    host = models.TextField(_("host"))
    version = models.TextField(_("version"))
    queues = TextArrayField(_("queues"), null=True, help_text=_("Empty: all."))
    excluded_queues = TextArrayField(_("excluded queues"), default=list)
    backends = TextArrayField(_("backends"))
    task_paths = TextArrayField(
        _("tasks"),
        help_text=_("The tasks this worker knows."),
    )
    schedule_names = TextArrayField(
        _("schedules"), null=True, help_text=_("The schedules that its code declares.")
    )
    named_at = models.JSONField(
        _("named at"),
        null=True,
        editable=False,
        help_text=_("When a worker over HTTP last named each attempt that it runs."),
    )

    class Meta:
        db_table = "pgjobs_worker"
        verbose_name = _("worker")
        verbose_name_plural = _("workers")
        default_permissions = ("view", "delete")
        permissions = (("control_worker", "Can quiet and stop workers"),)
        required_db_vendor = "postgresql"

    def __str__(self) -> str:
        return f"{self.name} #{self.pk}"

    @staticmethod
    def that_is_live() -> models.Q:
        """Return the condition of a live worker, as `{worker.is_live}` has it."""
        return models.Q(ended_at=None, lease_expires_at__gt=Now())
