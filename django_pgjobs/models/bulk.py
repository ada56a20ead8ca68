"""Bulk changes: what a person asked for, and how far it is."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from django_pgjobs.models.fields import InstantField


class BulkChange(models.Model):
    """One action of a person on all jobs of a selection, done in pages of jobs.

    A small one is done while the person waits, a large one by a job. Each page is one
    transaction that also moves *position*, so what is interrupted goes on where it was.
    """

    id = models.BigAutoField(primary_key=True)
    created_at = InstantField(_("created at"), db_default=Now(), editable=False)
    user_id = models.TextField(
        _("user id"), default="", blank=True, help_text=_("Primary key of who asked for it.")
    )
    cancel_requested_at = InstantField(_("cancel requested at"), null=True)
    finished_at = InstantField(_("finished at"), null=True)
    job_id = models.BigIntegerField(_("job id"), null=True)
    total = models.IntegerField(
        _("total"), null=True, help_text=_("Jobs of the selection; empty: too many to count.")
    )
    changed = models.IntegerField(_("changed"), default=0)
    passed_over = models.IntegerField(
        _("passed over"), default=0, help_text=_("Jobs that had another status by then.")
    )
    conflicts = models.IntegerField(
        _("conflicts"), default=0, help_text=_("Jobs whose unique key another one has.")
    )
    conflict_ids = models.JSONField(_("jobs in conflict"), default=list)
    verb = models.TextField(_("action"))
    options = models.JSONField(_("options"), default=dict)
    selection = models.JSONField(_("selection"), default=dict)
    position = models.JSONField(_("position"), null=True)
    reason = models.TextField(_("reason"), default="", blank=True)
    error = models.TextField(_("error"), default="", blank=True)

    class Meta:
        db_table = "pgjobs_bulk_change"
        verbose_name = _("bulk change")
        verbose_name_plural = _("bulk changes")
        default_permissions = ("view",)
        required_db_vendor = "postgresql"

    def __str__(self) -> str:
        return f"{self.verb} #{self.pk}"
