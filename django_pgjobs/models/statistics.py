"""The statistics: what ran and came in, by minute, queue and task; what waited, once a minute."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from django_pgjobs.models.fields import CountArrayField, InstantField


class Counted(models.Model):
    """The numbers of a period.

    Several rows may be of the same period: their numbers are to be added. Times are seconds; the
    lists count attempts by classes of time (`queries.statistics.upper_bound`).
    """

    id = models.BigAutoField(primary_key=True)
    begins_at = InstantField(_("begins at"))
    enqueued = models.BigIntegerField(_("enqueued"), default=0)
    successful = models.BigIntegerField(_("successful"), default=0)
    failed = models.BigIntegerField(_("failed"), default=0)
    cancelled = models.BigIntegerField(_("cancelled"), default=0)
    retried = models.BigIntegerField(_("retried"), default=0)
    lost = models.BigIntegerField(_("lost"), default=0)
    waited = models.FloatField(_("waited"), default=0)
    ran = models.FloatField(_("ran"), default=0)
    period = models.TextField(_("period"), default="part")
    waits = CountArrayField(_("waiting times"), default=list)
    runs = CountArrayField(_("running times"), default=list)

    class Meta:
        abstract = True
        default_permissions = ()
        required_db_vendor = "postgresql"


class Statistic(Counted):
    """What ended and came in within a period, of one queue and task."""

    queue_name = models.TextField(_("queue"))
    task_path = models.TextField(_("task"))

    class Meta(Counted.Meta):
        db_table = "pgjobs_statistic"
        verbose_name = _("statistic")
        verbose_name_plural = _("statistics")

    def __str__(self) -> str:
        return f"{self.queue_name} {self.task_path} {self.begins_at}"


class StatisticSum(Counted):
    """The same of one queue, in all its tasks, or of one task, in all queues; the other is None."""

    queue_name = models.TextField(_("queue"), null=True)
    task_path = models.TextField(_("task"), null=True)

    class Meta(Counted.Meta):
        db_table = "pgjobs_statistic_sum"
        verbose_name = _("sum of statistics")
        verbose_name_plural = _("sums of statistics")

    def __str__(self) -> str:
        return f"{self.queue_name or self.task_path} {self.begins_at}"


class QueueSample(models.Model):
    """How many jobs of a queue had not finished at a moment; without a queue: of all of them."""

    id = models.BigAutoField(primary_key=True)
    measured_at = InstantField(_("measured at"), db_default=Now())
    ready = models.BigIntegerField(_("ready"), default=0)
    running = models.BigIntegerField(_("running"), default=0)
    scheduled = models.BigIntegerField(_("scheduled"), default=0)
    retrying = models.BigIntegerField(_("retrying"), default=0)
    blocked = models.BigIntegerField(_("blocked"), default=0)
    waiting_since = InstantField(_("waiting since"), null=True)
    last_job_id = models.BigIntegerField(_("last job id"), null=True)
    counted_job_id = models.BigIntegerField(_("counted job id"), null=True)
    is_cut = models.BooleanField(
        _("cut"), default=False, help_text=_("There are more jobs than were looked at.")
    )
    queue_name = models.TextField(_("queue"), null=True)

    class Meta:
        db_table = "pgjobs_queue_sample"
        verbose_name = _("sample of a queue")
        verbose_name_plural = _("samples of queues")
        default_permissions = ()
        required_db_vendor = "postgresql"

    def __str__(self) -> str:
        return f"{self.queue_name} {self.measured_at}"
