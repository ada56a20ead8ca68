"""What people ask of running jobs, and which warnings they do not want to see."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from django_pgjobs.models.fields import InstantField


class Stack(models.Model):
    """Where a running job is: somebody asks its worker, which writes the stack of its thread."""

    job_id = models.BigIntegerField(_("job id"), primary_key=True)
    claim = models.BigIntegerField(_("claim"), help_text=_("The attempt that was asked about."))
    worker_id = models.BigIntegerField(_("worker id"))
    requested_at = InstantField(_("requested at"), db_default=Now())
    written_at = InstantField(_("written at"), null=True)
    stack = models.TextField(_("stack"), default="")

    class Meta:
        db_table = "pgjobs_stack"
        verbose_name = _("stack")
        verbose_name_plural = _("stacks")
        default_permissions = ()
        required_db_vendor = "postgresql"

    def __str__(self) -> str:
        return f"{self.job_id}"


class Mute(models.Model):
    """A warning that is not to be shown for a while."""

    id = models.BigAutoField(primary_key=True)
    muted_at = InstantField(_("muted at"), db_default=Now())
    until = InstantField(_("until"))
    kind = models.TextField(_("kind"))
    subject = models.TextField(_("subject"), default="", help_text=_("A queue, a task, a key."))
    reason = models.TextField(_("reason"), default="")
    muted_by = models.TextField(_("muted by"), default="")

    class Meta:
        db_table = "pgjobs_mute"
        verbose_name = _("muted warning")
        verbose_name_plural = _("muted warnings")
        unique_together = (("kind", "subject"),)
        default_permissions = ()
        required_db_vendor = "postgresql"

    def __str__(self) -> str:
        return f"{self.kind} {self.subject}".strip()
