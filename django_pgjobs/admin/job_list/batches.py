"""How the list finds the jobs of a batch, or of one with all below it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.db.models import Q

from django_pgjobs.admin.job_list.search import Condition
from django_pgjobs.admin.job_list.tabs import Tab
from django_pgjobs.models import Batch
from django_pgjobs.models.batch_states import newest_in_batch
from django_pgjobs.queries.database import job_cursor
from django_pgjobs.queries.workflow_pages import TreeSum, summarise_trees
from django_pgjobs.status import JobStatus
from django_pgjobs.values.moments import aware

# Of a tree with more jobs the list is looked through, as for other conditions.
MAX_SORTED = 20_000


class AskedBatches:
    """The batches that a search for jobs names."""

    def __init__(self, parts: Iterable[Condition], tab: Tab) -> None:
        lookups = [part.lookups for part in parts]
        self.tab = tab
        self.batch_id = next((found["batch"] for found in lookups if "batch" in found), None)
        self.tree_id = next((found["tree"] for found in lookups if "tree" in found), None)
        self.has_small_tree = self.tree_id is not None and self._is_small(self.tree_id)

    @property
    def are_by_id(self) -> bool:
        """Does the index of batches give the jobs, on all tabs by id?"""
        return self.batch_id is not None or self.has_small_tree

    def _is_small(self, tree_id: int) -> bool:
        with job_cursor() as cursor:
            found = summarise_trees(cursor, [tree_id]).get(tree_id)
        return found is None or (not found.is_cut and self._count(found) <= MAX_SORTED)

    def _count(self, found: TreeSum) -> int:
        """Return how many rows of the index hold the jobs of the tab."""
        counts: dict[Any, int] = {
            JobStatus.FAILED: found.failed,
            JobStatus.CANCELLED: found.cancelled,
            JobStatus.SUCCESSFUL: found.successful,
        }
        return counts.get(self.tab.lookups.get("status"), found.jobs)

    def as_read(self, parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the lookups of a search as one page of the list is read by them."""
        if self.tree_id is None or self.has_small_tree:
            return parts
        names = {"tree": "large_tree"}
        return [{names.get(name, name): part[name] for name in part} for part in parts]

    def ends(self) -> list[Q]:
        """Return the condition of not being newer than a batch, through whose jobs ids lead."""
        if self.batch_id is None or self.tab.is_finished:
            return []
        newest = newest_in_batch(self.batch_id)
        return [Q(id__lte=newest)] if newest is not None else []

    def ends_of_large_tree(self) -> list[datetime]:
        """Return when all jobs of a large tree had ended, nothing if it is open."""
        if self.tree_id is None or self.has_small_tree:
            return []
        found = Batch.objects.filter(pk=self.tree_id).values_list("tree_completed_at", flat=True)
        return [aware(end) for end in found if end is not None]
