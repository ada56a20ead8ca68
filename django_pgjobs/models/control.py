"""The tables of what decides when a job may start: limits, pauses, dependencies.

Rows are changed at run time, in the admin or by SQL, and hold from the next claim on.
"""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from django_pgjobs.models.fields import InstantField
from django_pgjobs.status import AfterFailure, PauseKind


class Dependency(models.Model):
    """An unfinished job that another one waits for; deleted when it has finished."""

    id = models.BigAutoField(primary_key=True)
    predecessor_id = models.BigIntegerField(_("predecessor id"))
    job_id = models.BigIntegerField(_("job id"))
    after_failure = models.TextField(
        _("after a failure"),
        choices=AfterFailure,
        help_text=_("What becomes of the job when its predecessor fails or is cancelled."),
    )

    class Meta:
        db_table = "pgjobs_dependency"
        verbose_name = _("dependency")
        verbose_name_plural = _("dependencies")
        default_permissions = ("view",)
        required_db_vendor = "postgresql"

    def __str__(self) -> str:
        return f"#{self.job_id} after #{self.predecessor_id}"


class ConcurrencyLimit(models.Model):
    """How many jobs of a concurrency key run at a time; overrides what their tasks declare."""

    pattern = models.TextField(
        _("key or pattern"),
        primary_key=True,
        help_text=_(
            'A concurrency key, or a pattern such as "shop:*". The key itself goes first, then '
            "the longest pattern."
        ),
    )
    max_running = models.IntegerField(_("at most at a time"), validators=[MinValueValidator(1)])
    weight = models.SmallIntegerField(
        _("weight"),
        default=1,
        validators=[MinValueValidator(1), MaxValueValidator(1000)],
        help_text=_("How many jobs each key gets when it is its turn."),
    )
    note = models.TextField(_("note"), default="", blank=True)

    class Meta:
        db_table = "pgjobs_concurrency_limit"
        verbose_name = _("concurrency limit")
        verbose_name_plural = _("concurrency limits")
        required_db_vendor = "postgresql"

    def __str__(self) -> str:
        return f"{self.pattern}: {self.max_running}"


class QueueSettings(models.Model):
    """The limit and boost of a queue, for all workers, from the next claim on."""

    queue_name = models.TextField(_("queue"), primary_key=True)
    max_running = models.IntegerField(
        _("at most at a time"),
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text=_("Over all workers. Empty: no limit."),
    )
    boost = models.SmallIntegerField(
        _("boost"),
        default=0,
        validators=[MinValueValidator(-200), MaxValueValidator(200)],
        help_text=_("Added to the priority of every job of the queue when jobs are claimed."),
    )
    note = models.TextField(_("note"), default="", blank=True)

    class Meta:
        db_table = "pgjobs_queue_settings"
        verbose_name = _("queue settings")
        verbose_name_plural = _("queue settings")
        permissions = (("control_queue", "Can pause queues and change limits"),)
        required_db_vendor = "postgresql"

    def __str__(self) -> str:
        return self.queue_name


class Pause(models.Model):
    """A queue, a task or a concurrency key of which no job is claimed."""

    id = models.BigAutoField(primary_key=True)
    kind = models.TextField(_("kind"), choices=PauseKind)
    name = models.TextField(
        _("name"), help_text=_('A queue, a task\'s path, or a key or pattern such as "shop:*".')
    )
    reason = models.TextField(_("reason"), default="", blank=True)
    paused_by = models.TextField(_("paused by"), default="", blank=True)
    paused_at = InstantField(_("paused at"), db_default=Now(), editable=False)
    resume_at = InstantField(
        _("resumes at"), null=True, blank=True, help_text=_("Empty: when somebody resumes it.")
    )

    class Meta:
        db_table = "pgjobs_pause"
        verbose_name = _("pause")
        verbose_name_plural = _("pauses")
        unique_together = (("kind", "name"),)
        required_db_vendor = "postgresql"

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    @staticmethod
    def that_holds() -> models.Q:
        """Return the condition of a pause that is in force now, as `{pause.holds}` has it."""
        return models.Q(resume_at=None) | models.Q(resume_at__gt=Now())


class RateLimit(models.Model):
    """At most *count* in any *period* seconds, over all workers, for each key separately.

    With a *burst* at most so many are taken at once, and then one every period / count.
    """

    name = models.TextField(
        _("name"),
        primary_key=True,
        help_text=_('"shopify" holds for each key of "shopify:..."; "shopify:17" for that key.'),
    )
    count = models.IntegerField(_("count"), validators=[MinValueValidator(1)])
    period = models.FloatField(
        _("period"),
        validators=[MinValueValidator(0.001), MaxValueValidator(31_622_400)],
        help_text=_("Seconds."),
    )
    burst = models.IntegerField(
        _("burst"),
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text=_(
            "How many may come at once, then one every period / count. Empty: all of the count."
        ),
    )
    note = models.TextField(_("note"), default="", blank=True)

    class Meta:
        db_table = "pgjobs_rate_limit"
        verbose_name = _("rate limit")
        verbose_name_plural = _("rate limits")
        required_db_vendor = "postgresql"

    def __str__(self) -> str:
        return f"{self.name}: {self.count} in {self.period:g} s"

    @property
    def burst_in_force(self) -> int:
        """How many may come at once, as `{rate_limit.burst_in_force}` has it."""
        return self.count if self.burst is None else self.burst

    def clean(self) -> None:
        """Refuse what the table's constraints refuse, in words."""
        if self.burst is not None and self.count is not None and self.burst > self.count:
            raise ValidationError({"burst": _("Expected at most the count.")})

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Write the row; raise ValueError, before anything is sent, for a burst above the count."""
        count, burst = self.count, self.burst
        # An expression is for the server to judge.
        if isinstance(count, int) and isinstance(burst, int) and burst > count:
            raise ValueError(f"expected burst to be at most the count, {count}, got {burst}.")
        super().save(*args, **kwargs)


class RateState(models.Model):
    """What one key of a rate limit has used: all its tokens are free at *next_free*.

    The table remembers in two more columns when they were taken.
    """

    key = models.TextField(_("key"), primary_key=True)
    next_free = InstantField(_("all free at"))

    class Meta:
        db_table = "pgjobs_rate_state"
        verbose_name = _("state of a rate limit")
        verbose_name_plural = _("states of rate limits")
        default_permissions = ("view", "delete")
        required_db_vendor = "postgresql"

    def __str__(self) -> str:
        return self.key
