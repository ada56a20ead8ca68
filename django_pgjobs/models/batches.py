"""The batches of jobs, and what can be done with one: a tree of them is a workflow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Self

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_pgjobs.compat import AnyTask
from django_pgjobs.declaring.calls import Call
from django_pgjobs.declaring.keys import Key
from django_pgjobs.declaring.option_names import BatchNames
from django_pgjobs.enqueueing.columns import Item
from django_pgjobs.models.batch_async import AsyncBatch
from django_pgjobs.models.batch_fields import BatchFields
from django_pgjobs.queries.batches import Asking
from django_pgjobs.queries.database import job_database
from django_pgjobs.values.given import flag
from django_pgjobs.workflows import adding, deleting, explaining, reading, retrying
from django_pgjobs.workflows.blocks import Block, Policy
from django_pgjobs.workflows.explaining import BatchExplanation
from django_pgjobs.workflows.following import Followed, Join
from django_pgjobs.workflows.inserting import OnConflict, once_of
from django_pgjobs.workflows.reading import Counts


class BatchQuerySet(models.QuerySet["Batch"]):
    """Batches of any state."""

    def delete(self) -> tuple[int, dict[str, int]]:
        """Delete workflows one after the other, as `Batch.delete` does.

        If that raises for one of them, those before it stay deleted.
        """
        deleted = Counter[str]()
        for batch in self:
            deleted.update(batch.delete()[1])
        return deleted.total(), dict(deleted)

    # Templates do not call it, and Django copies it to no manager.
    delete.alters_data = True  # type: ignore[attr-defined]
    delete.queryset_only = True  # type: ignore[attr-defined]


class Batch(BatchNames, Followed["Batch"], AsyncBatch, BatchFields):
    """Jobs that are finished together, and what follows them."""

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

        All are added, or none, in one transaction or in that of the caller. Raise BatchSealed if
        the batch takes no more, UnknownBatch if it is gone, and TypeError, ValueError or
        InvalidTask for a call that cannot be stored, or whose task merges jobs.

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

        In a transaction it holds from the commit on. A batch that is sealed stays so. Raise
        UnknownBatch if it is gone.
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
        """Open a batch that this one is to be complete with.

        A `with` block seals it at its end, unless that is an exception; else call its `seal()`.
        In a running job a second attempt finds the one of that name that the first has opened; what
        a job leaves open is sealed when all jobs of this batch have finished.
        """
        return adding.open_part(self, name, metadata, on_failed_job)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if kind is None:
            self.seal()

    # What follows: `each`, `each_item`, `gather` and `then` are those of `Followed`

    def join(self, *others: Batch) -> Join[Batch]:
        """Return what stands for several batches of this workflow or part together."""
        return Join(self, others)

    def _owner_and_followed(self) -> tuple[Batch, Sequence[Batch]]:
        return self, [self]

    # What comes out

    def counts(self, *, tree: bool = False) -> Counts:
        """Return the numbers of jobs as they are now, with *tree* of all batches below as well.

        Raise UnknownBatch if it is gone.
        """
        return reading.counts(self, of_tree=flag(tree, name="tree"))

    def results(self) -> Iterator[Any]:
        """Yield the results of the successful jobs of all batches below that nothing follows.

        In order of the batches and jobs, read page by page. If nothing follows this batch, they are
        its own, and those of its parts. Raise UnknownBatch if it is gone.
        """
        return reading.results(self)

    def explain(self) -> BatchExplanation:
        """Say why it is not complete with all below it; nothing is written or locked.

        Raise UnknownBatch if it is gone.
        """
        return explaining.explain(self)

    def wait(self, timeout: float | timedelta | None = None) -> Batch:
        """Wait until all below is complete, failed or not; return this batch, refreshed.

        *timeout* is seconds or a timedelta, None: for ever. Raise TimeoutError when it is over,
        JobError if the batch cannot be counted, UnknownBatch if it is gone, and RuntimeError where
        it could not end: in an open transaction, in one of its own jobs, and in a TestCase if it is
        not complete.
        """
        return reading.wait(self, timeout)

    def retry(self, *, cancelled: bool = False) -> int:
        """Requeue the failed jobs of all batches below; return how many. The tree opens again.

        When it is complete once more, it says so once more. With *cancelled* jobs that were
        cancelled are requeued as well. With it, or if some are requeued, a cancel of the tree is
        taken back: jobs of it that still wait run, too. Jobs that another transaction has locked
        are left out.

        Raise JobError if the workflow is being deleted, or a batch above this one is cancelled, and
        UnknownBatch if it is gone.
        """
        count = retrying.retry(self, cancelled=flag(cancelled, name="cancelled"))
        self.refresh_from_db(using=job_database())
        return count

    def cancel(self) -> bool:
        """Cancel this batch and all below; return False if they were complete or cancelled.

        Jobs that wait end as cancelled, those that run are asked to end, nothing is added or
        made any more. Workers go on with that after the commit, 1,000 jobs at a time. Raise
        UnknownBatch if it is gone.
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
        """Enqueue a call, with the id of this batch first, when all below has succeeded.

        Raise BatchSealed if all has ended by now.
        """
        adding.add_callback(self, "success", call)

    def on_failure(self, call: Call) -> None:
        """Enqueue a call, with the id of this batch first, when all has ended and some failed.

        Raise BatchSealed if all has ended by now.
        """
        adding.add_callback(self, "failure", call)

    def on_complete(self, call: Call) -> None:
        """Enqueue a call, with the id of this batch first, when all below has ended.

        Raise BatchSealed if all has ended by now.
        """
        adding.add_callback(self, "complete", call)
