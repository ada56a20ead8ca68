"""What the pages of workflows read: bounded numbers of whole trees, and a few failed jobs."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from django_pgjobs.queries.arrays import array_text
from django_pgjobs.queries.cursor import Cursor, fetch

# Batches of one tree that are added up, and those of them that its page shows.
MAX_SUMMED = 1_000
MAX_SHOWN = 100
# Right below one batch; its own page has the others.
MAX_CHILDREN = 30
MAX_NAMED = 5
MAX_FAILED = 10
# Failed jobs of all trees in which those of a tree of more than MAX_SUMMED batches are looked for.
MAX_LOOKED_AT = 10_000


class TreeSum(NamedTuple):
    """The numbers of a batch and all below it; if *is_cut*, of its first MAX_SUMMED batches."""

    id: int
    batches: int
    open: int
    broken: int
    jobs: int
    successful: int
    failed: int
    cancelled: int
    is_cut: bool

    @property
    def ended(self) -> int:
        """How many jobs have finished."""
        return self.successful + self.failed + self.cancelled


class TreeRow(NamedTuple):
    """A batch *depth* levels below the one at the top, and how many jobs it has itself."""

    depth: int
    id: int
    parent_id: int | None
    jobs: int
    successful: int
    failed: int
    cancelled: int
    waits_for: list[int]


class FailedJob(NamedTuple):
    """A job that failed for good, with the start of its last error.

    *allowed* is how many attempts there may be; None: as its task declares.
    """

    id: int
    task_path: str
    attempts: int
    allowed: int | None
    finished_at: datetime | None
    error_class: str
    message: str

    @property
    def first_line(self) -> str:
        """The first line of the message."""
        return next(iter(self.message.strip().splitlines()), "")


def summarise_trees(cursor: Cursor, ids: Iterable[int]) -> dict[int, TreeSum]:
    """Return the numbers of batches with all below them, by id; without those that are gone."""
    params = {"ids": array_text(sorted(ids)), "max_batches": MAX_SUMMED}
    return {row[0]: TreeSum._make(row) for row in fetch(cursor, "summarise_trees", params)}


def list_tree(
    cursor: Cursor,
    batch_id: int,
    *,
    behind: int = 0,
    max_children: int | None = None,
    max_batches: int | None = None,
) -> list[TreeRow]:
    """Return a batch and what is below it, level by level: one more than each limit.

    By default MAX_CHILDREN right below each, and MAX_SHOWN in all.
    """
    params = {
        "batch_id": batch_id,
        "behind": behind,
        "max_children": (max_children or MAX_CHILDREN) + 1,
        "max_batches": (max_batches or MAX_SHOWN) + 1,
        "max_named": MAX_NAMED,
    }
    return [TreeRow._make(row) for row in fetch(cursor, "list_tree", params)]


def list_failed(cursor: Cursor, batch_id: int) -> list[FailedJob]:
    """Return the newest failed jobs of a batch and all below it, at most MAX_FAILED.

    All of the first MAX_SUMMED batches are found. Where there are more, so are those among the
    MAX_LOOKED_AT that failed last.
    """
    params = {
        "batch_id": batch_id,
        "max_batches": MAX_SUMMED,
        "max_looked_at": MAX_LOOKED_AT,
        "max_jobs": MAX_FAILED,
    }
    return [FailedJob._make(row) for row in fetch(cursor, "list_failed_in_tree", params)]
