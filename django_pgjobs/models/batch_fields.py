"""The columns of a batch, as fields.

Its numbers are written by `pgjobs_settle_v1` in the database and lag behind what is noted but not
counted yet (`queries.batches`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from django_pgjobs.models.fields import InstantField, PlainJSONField
from django_pgjobs.status import Follows, OnFailedJob


class BatchFields(models.Model):
    """What the table has of a batch."""

    id = models.BigAutoField(primary_key=True)
    root = models.ForeignKey(
        "self",
        on_delete=models.DO_NOTHING,
        verbose_name=_("root"),
        related_name="tree",
        editable=False,
        db_constraint=False,
    )
    parent = models.ForeignKey(
        "self",
        on_delete=models.DO_NOTHING,
        verbose_name=_("parent"),
        null=True,
        related_name="children",
        editable=False,
    )
    flow_id = models.BigIntegerField(
        _("flow id"),
        editable=False,
        help_text=_("The batch that is opened by hand and that this one follows, or is."),
    )
    created_at = InstantField(_("created at"), db_default=Now(), editable=False)
    sealed_at = InstantField(
        _("sealed at"), null=True, editable=False, help_text=_("Since when no more jobs come.")
    )
    completed_at = InstantField(
        _("completed at"),
        null=True,
        editable=False,
        help_text=_("Since when it is sealed, and all of its own jobs and parts have finished."),
    )
    tree_completed_at = InstantField(
        _("tree completed at"),
        null=True,
        editable=False,
        help_text=_("Since when everything below it is complete, too."),
    )
    jobs = models.BigIntegerField(_("jobs"), default=0, editable=False)
    successful = models.BigIntegerField(_("successful"), default=0, editable=False)
    failed = models.BigIntegerField(_("failed"), default=0, editable=False)
    cancelled = models.BigIntegerField(_("cancelled"), default=0, editable=False)
    open_predecessors = models.BigIntegerField(
        _("open predecessors"),
        default=0,
        editable=False,
        help_text=_("How many of those that it follows are not complete."),
    )
    open_parts = models.BigIntegerField(
        _("open parts"),
        default=0,
        editable=False,
        help_text=_("How many batches that it is to be complete with are open."),
    )
    open_children = models.BigIntegerField(
        _("open children"),
        default=0,
        editable=False,
        help_text=_("How many batches right below it are open."),
    )
    failed_children = models.BigIntegerField(
        _("failed children"),
        default=0,
        editable=False,
        help_text=_("In how many of these something has failed."),
    )
    completions = models.BigIntegerField(
        _("completions"),
        default=0,
        editable=False,
        help_text=_("How often its tree was complete."),
    )
    follows = models.TextField(
        _("follows"),
        choices=Follows,
        null=True,
        editable=False,
        help_text=_("What of the batches before it makes its jobs; empty: they are added."),
    )
    cancel_requested_at = InstantField(
        _("cancel requested at"),
        null=True,
        editable=False,
        help_text=_("Since when nothing of it is to begin."),
    )
    on_failed_job = models.TextField(
        _("on a failed job"),
        choices=OnFailedJob,
        default=OnFailedJob.CONTINUE,
        editable=False,
        help_text=_("What else ends when one of its jobs fails."),
    )
    dedupe_key = models.TextField(
        _("dedupe key"),
        null=True,
        editable=False,
        help_text=_("At most one workflow of the name has it."),
    )
    runs_after_failure = models.BooleanField(
        _("runs after a failure"), default=False, editable=False
    )
    skips_none = models.BooleanField(
        _("skips None"),
        default=False,
        editable=False,
        help_text=_("Does a result of None make no job?"),
    )
    failed_predecessors = models.BigIntegerField(
        _("failed predecessors"),
        default=0,
        editable=False,
        help_text=_("In how many of those that it follows, or above them, something has failed."),
    )
    carried_failure = models.BooleanField(
        _("carried failure"),
        default=False,
        editable=False,
        help_text=_("Did it say to those that follow it that something has failed?"),
    )
    tree_failed = models.BooleanField(
        _("tree failed"),
        default=False,
        editable=False,
        help_text=_("Has something failed in the whole of it?"),
    )
    opener_id = models.BigIntegerField(
        _("opener id"), null=True, editable=False, help_text=_("The job that opened it.")
    )
    name = models.TextField(_("name"), default="", blank=True)
    step = PlainJSONField(
        _("step"),
        null=True,
        editable=False,
        help_text=_("The columns of the jobs that it makes."),
    )
    callbacks = PlainJSONField(
        _("callbacks"),
        default=list,
        editable=False,
        help_text=_("What is enqueued at its end."),
    )
    metadata = PlainJSONField(_("metadata"), default=dict)
    told_at = InstantField(
        _("told at"),
        null=True,
        editable=False,
        help_text=_("When it was told that the jobs of the tree are to be deleted."),
    )
    deleting_at = InstantField(
        _("deleting since"), null=True, editable=False, help_text=_("Nothing of it runs again.")
    )
    unasked_at = InstantField(_("unasked at"), null=True, editable=False)
    runs_again = models.BooleanField(_("runs again"), default=False, editable=False)
    broken = models.TextField(
        _("broken"),
        default="",
        editable=False,
        help_text=_("Why it could not be counted, and is left alone since."),
    )

    if TYPE_CHECKING:
        root_id: int
        parent_id: int | None

    class Meta:
        abstract = True
