"""The batches of jobs: a tree of them is a workflow.

Its numbers are written by `pgjobs_settle_v1` in the database and lag behind what is noted but not
counted yet (`queries.batches`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from django_pgjobs.compat import AnyTask
from django_pgjobs.declaring.calls import Call
from django_pgjobs.declaring.keys import Key
from django_pgjobs.enqueueing.columns import Item
from django_pgjobs.models.batch_async import AsyncBatch
from django_pgjobs.models.batch_sets import BatchQuerySet
from django_pgjobs.models.fields import InstantField, PlainJSONField
from django_pgjobs.queries.batches import Asking
from django_pgjobs.queries.database import job_database
from django_pgjobs.status import Follows, OnFailedJob
from django_pgjobs.values.given import flag
from django_pgjobs.workflows import adding, deleting, explaining, following, reading, retrying
from django_pgjobs.workflows.blocks import Block, Policy
from django_pgjobs.workflows.explaining import BatchExplanation
from django_pgjobs.workflows.following import AfterFailureOfStep, Join, runs
from django_pgjobs.workflows.inserting import OnConflict, once_of
from django_pgjobs.workflows.reading import Counts


class Batch(AsyncBatch, models.Model):
    """Jobs that are finished together, and what follows them."""

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

    objects: ClassVar[models.Manager[Batch]] = BatchQuerySet.as_manager()

    class Meta:
        db_table = "pgjobs_batch"
        verbose_name = _("batch")
        # The admin lists those at the top.
        verbose_name_plural = _("workflows")
        default_permissions = ("view",)
        required_db_vendor = "postgresql"

    # Of this object, and not of the row: a running job of the batch that adds to it; and the block
    # in which nothing of it has run.
    asking: Asking | None = None
    opener: Asking | None = None
    block: Block | None = None

    def __str__(self) -> str:
        return f"{self.name or self.follows or 'batch'} #{self.pk}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save *name* and *metadata*: the database writes the rest, and has counted on by now."""
        if not self._state.adding:
            kwargs.setdefault("update_fields", ["name", "metadata"])
        super().save(*args, **kwargs)

    # What goes in

    def add(
        self, *calls: Call, dedupe_key: Key | None = None, on_conflict: OnConflict = "raise"
    ) -> list[str]:
        """Add a job per call, such as `push.s(17)`; return their ids in order.

        All are added, or none. Raise BatchSealed if the batch takes no more.

        *dedupe_key*, a template of the arguments such as "order:{order_id}" or a function of them,
        is given once as long as the batch exists. For a job whose key another one has, or had,
        DuplicateJob is raised; or with `on_conflict="return"` the id of that one is returned.
        """
        return adding.add_calls(self, calls, once_of(dedupe_key, on_conflict))

    def add_many(
        self,
        task: AnyTask,
        arguments: Iterable[Item],
        *,
        dedupe_key: Key | None = None,
        on_conflict: OnConflict = "raise",
    ) -> list[str]:
        """Add a job of *task* per item, a few thousand per statement; return their ids in order.

        An item is a dict of keyword arguments or a tuple of positional ones. Of *dedupe_key* and
        *on_conflict* see `add`.
        """
        return adding.add_many(self, task, arguments, once_of(dedupe_key, on_conflict))

    def add_from(self, task: AnyTask, queryset: models.QuerySet[Any], **arguments: Any) -> int:
        """Add a job of *task* per row of *queryset* in one statement; return how many.

        Each argument is an expression over the row, or a constant, as for `Task.enqueue_from`.
        """
        return adding.add_from(self, task, queryset, arguments)

    def seal(self) -> None:
        """Say that no more comes; what is empty or finished is complete at once.

        In a transaction it holds from the commit on. A batch that is sealed stays so.
        """
        adding.seal(self)
        self.refresh_from_db(using=job_database())

    def batch(
        self,
        name: str = "",
        *,
        metadata: Mapping[str, Any] | None = None,
        on_failed_job: Policy | None = None,
    ) -> Batch:
        """Open a batch that this one is to be complete with; it needs a `seal()` of its own.

        In a running job a second attempt finds the one of that name that the first has opened; what
        a job leaves open is sealed when all jobs of this batch have finished.
        """
        return adding.open_part(self, name, metadata, on_failed_job)

    # What follows

    def each(
        self, call: Call, *, skip_none: bool = False, on_failed_job: Policy | None = None
    ) -> Batch:
        """Run a call for each result, which is its first argument, as soon as it is there.

        Return the batch of these jobs. With *skip_none* a result of None makes no job.
        """
        return self._followed(Follows.EACH, call, skips_none=skip_none, on_failed_job=on_failed_job)

    def each_item(
        self, call: Call, *, skip_none: bool = False, on_failed_job: Policy | None = None
    ) -> Batch:
        """Run a call for each element of each result that is a list, and for any other result.

        None makes no job, with *skip_none* neither where it is an element.
        """
        return self._followed(
            Follows.EACH_ITEM, call, skips_none=skip_none, on_failed_job=on_failed_job
        )

    def gather(self, call: Call, *, after_failure: AfterFailureOfStep = "cancel") -> Batch:
        """Run one call when this batch is complete, with the list of all results as first argument.

        It is not run if anything has failed, unless *after_failure* is "run".
        """
        return self._followed(Follows.GATHER, call, runs_after_failure=runs(after_failure))

    def then(self, call: Call, *, after_failure: AfterFailureOfStep = "cancel") -> Batch:
        """Run one call when this batch is complete, with its own arguments only.

        It is not run if anything has failed, unless *after_failure* is "run".
        """
        return self._followed(Follows.COMPLETION, call, runs_after_failure=runs(after_failure))

    def join(self, *others: Batch) -> Join[Batch]:
        """Return what stands for several batches of this workflow or part together."""
        return Join(self, others)

    def _followed(self, follows: Follows, call: Call, **options: Any) -> Batch:
        return following.open_follower(self, [self], follows, call, **options)

    # What comes out

    def counts(self, *, tree: bool = False) -> Counts:
        """Return the numbers of jobs as they are now, with *tree* of all batches below as well."""
        return reading.counts(self, of_tree=flag(tree, name="tree"))

    def results(self) -> Iterator[Any]:
        """Yield the results of the successful jobs of all batches below that nothing follows.

        In order of the batches and jobs, read page by page. If nothing follows this batch, they are
        its own, and those of its parts.
        """
        return reading.results(self)

    def explain(self) -> BatchExplanation:
        """Say why it is not complete with all below it; nothing is written or locked."""
        return explaining.explain(self)

    def wait(self, timeout: float | timedelta | None = None) -> Batch:
        """Wait until all below is complete; return this batch, refreshed.

        *timeout* is seconds or a timedelta, None: for ever. Raise TimeoutError when it is over,
        JobError if the batch cannot be counted, and RuntimeError in an open transaction, or in a
        TestCase if it is not complete.
        """
        return reading.wait(self, timeout)

    def retry(self, *, cancelled: bool = False) -> int:
        """Requeue the failed jobs of all batches below; return how many. The tree opens again.

        When it is complete once more, it says so once more. With *cancelled* jobs that were
        cancelled are requeued as well. If some are requeued, a cancel of the tree is taken back:
        jobs of it that still wait run, too.
        """
        count = retrying.retry(self, cancelled=flag(cancelled, name="cancelled"))
        self.refresh_from_db(using=job_database())
        return count

    def cancel(self) -> bool:
        """Cancel this batch and all below; return False if they were complete or cancelled.

        Jobs that wait end as cancelled, those that run are asked to end, nothing is added or
        made any more. Workers go on with that after the commit, 1,000 jobs at a time.
        """
        is_news = retrying.cancel(self)
        self.refresh_from_db(using=job_database())
        return is_news

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """Delete a workflow that is complete, with all batches below and their jobs.

        Return the number of rows, in all and by model, as other models do. Outside of a transaction
        each page of 1,000 is one. Raise ValueError for a batch below another one, UnknownBatch if
        it is gone, and BatchOpen if something is unfinished: `cancel()` it first, and wait.
        """
        return deleting.delete(self)

    # What is told at the end

    def on_success(self, call: Call) -> None:
        """Enqueue a call, with the id of this batch first, when all below has succeeded."""
        adding.add_callback(self, "success", call)

    def on_failure(self, call: Call) -> None:
        """Enqueue a call, with the id of this batch first, when all has ended and some failed."""
        adding.add_callback(self, "failure", call)

    def on_complete(self, call: Call) -> None:
        """Enqueue a call, with the id of this batch first, when all below has ended."""
        adding.add_callback(self, "complete", call)
