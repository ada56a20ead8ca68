"""What this process knows of a batch: its id, the job that adds to it, and its block."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from django.apps import apps

from django_pgjobs.exceptions import UnknownBatch
from django_pgjobs.queries.batches import NOBODY, Asking
from django_pgjobs.queries.database import is_of_test_case, rows_of
from django_pgjobs.values.job_ids import parse_job_id


@dataclass
class Block:
    """The block of `workflow()`; or, of a part that is opened later, the time until its first job.

    All batches that are opened in it share it. While it is open none of their jobs can have run, so
    what follows them sees all results. In a *replay* the workflow existed before: nothing is added,
    and opening a batch returns the one that was opened then.
    """

    is_open: bool = True
    ends_with_add: bool = False
    is_replay: bool = False
    # Nobody else knows of what is opened in it: it is not committed.
    is_private: bool = False
    # An earlier attempt has opened the part: what it opened below that is not opened again.
    is_known: bool = False
    # How many batches were opened again so far: by owner, way to follow and predecessors.
    replayed: Counter[object] = field(default_factory=Counter)


class AnyBatch(Protocol):
    """What of the model `Batch` is asked for here."""

    pk: Any
    asking: Asking | None
    opener: Asking | None
    block: Block | None

    def refresh_from_db(self, using: str | None = None) -> None:
        """Read the row again."""


B = TypeVar("B", bound=AnyBatch)
# What a failed job cancels.
Policy = Literal["continue", "cancel branch", "cancel workflow"]


def batch_model() -> Any:
    """Return the model `Batch`, which is not loaded before it is asked for."""
    return apps.get_app_config("pgjobs").get_model("Batch")


def rows() -> Any:
    """Return the batches as the database of the jobs has them, and no replica that lags behind."""
    return rows_of(batch_model())


def unknown(batch_id: object) -> UnknownBatch:
    """Return what is raised of a batch that is not there."""
    return UnknownBatch(f"batch {batch_id} does not exist.")


def id_of(batch: AnyBatch) -> int:
    """Return the id of a batch; raise UnknownBatch if none can have it."""
    batch_id = parse_job_id(str(batch.pk))
    if batch_id is None:
        raise unknown(batch.pk)
    return batch_id


def row_of(batch: AnyBatch) -> Any:
    """Return the batch as it is now; raise UnknownBatch if it is gone."""
    found = rows().filter(pk=id_of(batch)).first()
    if found is None:
        raise unknown(batch.pk)
    return found


def is_of_caller(connection: Any) -> bool:
    """Is a transaction of the caller's open, other than that of a TestCase?

    What is counted in it has locks until it commits, for which others might wait crosswise. Without
    autocommit one is open, or begins with the next statement.
    """
    if not connection.in_atomic_block:
        return not connection.get_autocommit()
    return not any(map(is_of_test_case, connection.atomic_blocks))


def is_replay(batch: AnyBatch) -> bool:
    """Is *batch* one that was there before the block that opens it?"""
    return batch.block is not None and batch.block.is_replay


def asking_of(batch: AnyBatch) -> Asking:
    """Return the running job that adds to *batch*: one of it, or the one that has opened it."""
    return batch.asking or batch.opener or NOBODY


def is_known(batch: AnyBatch) -> bool:
    """May what is opened below *batch*, and called at its end, be there already?"""
    return batch.block is not None and batch.block.is_known


def is_in_block(batch: AnyBatch) -> bool:
    """Are all results of *batch* yet to come?"""
    return batch.block is not None and batch.block.is_open
