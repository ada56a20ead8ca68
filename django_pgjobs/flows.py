"""`workflow()`, `chain()`, `group()`, their async twins, and `current_batch()`."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from inspect import iscoroutine
from typing import (
    TYPE_CHECKING,
    Any,
    Never,
    NoReturn,
    ParamSpec,
    TypedDict,
    Unpack,
)

from asgiref.sync import sync_to_async
from django.db import transaction

from django_pgjobs.context import current_job
from django_pgjobs.declaring.calls import Call
from django_pgjobs.exceptions import DuplicateWorkflow
from django_pgjobs.queries import batches
from django_pgjobs.queries.batches import Asking
from django_pgjobs.queries.database import job_cursor, job_database
from django_pgjobs.values.bounds import MAX_KEY_BYTES
from django_pgjobs.values.given import flag
from django_pgjobs.values.payload import fits_column
from django_pgjobs.values.twins import has_async_twin
from django_pgjobs.workflows.adding import check_name, check_policy, encode_metadata
from django_pgjobs.workflows.blocks import Block, Policy, batch_model, rows
from django_pgjobs.workflows.inserting import OnConflict, check_on_conflict

if TYPE_CHECKING:
    from django_pgjobs.models import Batch

P = ParamSpec("P")


class Opening(AbstractContextManager["Batch"]):
    """What `workflow` returns: its block has the batch."""

    def __init__(self, block: AbstractContextManager[Batch]) -> None:
        self._block = block

    def __enter__(self) -> Batch:
        return self._block.__enter__()

    def __exit__(self, *error: Any) -> bool | None:
        return self._block.__exit__(*error)

    if not TYPE_CHECKING:  # else every name would pass a type checker

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(name)
            raise AttributeError(
                f"workflow() has no {name!r} before its block. Write `with workflow(...) as "
                f"flow:`, and flow.{name} in the block."
            )


def _opens(function: Callable[P, Iterator[Batch]]) -> Callable[P, AbstractContextManager[Batch]]:
    block = contextmanager(function)

    @wraps(function)
    def opening(*args: P.args, **kwargs: P.kwargs) -> AbstractContextManager[Batch]:
        return Opening(block(*args, **kwargs))

    return opening


class WorkflowOptions(TypedDict, total=False):
    """What `workflow` takes beside a name."""

    dedupe_key: str | None
    on_conflict: OnConflict
    on_failed_job: Policy
    metadata: Mapping[str, Any] | None
    seal: bool


@has_async_twin
@_opens
def workflow(
    name: str,
    *,
    dedupe_key: str | None = None,
    on_conflict: OnConflict = "raise",
    on_failed_job: Policy = "continue",
    metadata: Mapping[str, Any] | None = None,
    seal: bool = True,
) -> Iterator[Batch]:
    """Open a batch at the root of a tree, in a block of one transaction, and seal it at its end.

    Nothing of it is there if the block raises. With `seal=False` it stays open for more jobs, until
    somebody calls its `seal()`. What follows it is said inside the block.

    At most one workflow of a name has a *dedupe_key* (up to 512 bytes), as long as it is there.
    For a second one DuplicateWorkflow is raised; or with `on_conflict="return"` the block gets the
    one that is there: what it opens is what was opened then, and nothing is added.

    *on_failed_job* says what is cancelled when a job fails, in all batches below that say
    nothing else. Raise TypeError or ValueError for an argument that cannot be used.
    """
    _check_names(name, dedupe_key, on_conflict)
    flag(seal, name="seal")
    with transaction.atomic(using=job_database()):
        policy = check_policy(on_failed_job)
        batch, is_new = _open(name, dedupe_key, on_conflict, policy, metadata)
        block = batch.block = Block(is_replay=not is_new, is_private=is_new)
        try:
            yield batch
        finally:
            block.is_open = False
        if seal:
            batch.seal()
        block.is_replay = block.is_private = False


def _open(
    name: str,
    dedupe_key: str | None,
    on_conflict: str,
    on_failed_job: str | None,
    metadata: Mapping[str, Any] | None,
) -> tuple[Batch, bool]:
    """Return the batch at the root, and whether it is new; raise DuplicateWorkflow."""
    with job_cursor() as cursor:
        opened = batches.open_workflow(
            cursor,
            name=name,
            metadata=encode_metadata(metadata),
            dedupe_key=dedupe_key,
            on_failed_job=on_failed_job or "continue",
        )
    if opened is None or not (opened[1] or on_conflict == "return"):
        batch_id = opened[0] if opened else None
        raise DuplicateWorkflow(
            f"workflow {name!r} with the dedupe key {dedupe_key!r} exists"
            + (f": batch {batch_id}." if batch_id else "."),
            batch_id=batch_id,
        )
    return rows().get(pk=opened[0]), opened[1]


def _check_names(name: str, dedupe_key: str | None, on_conflict: str) -> None:
    check_name(name)
    if dedupe_key is not None and not fits_column(dedupe_key, MAX_KEY_BYTES):
        raise ValueError(
            f"expected dedupe_key to be text of 1 to {MAX_KEY_BYTES} bytes without NUL, got "
            f"{dedupe_key!r}."
        )
    check_on_conflict(on_conflict)
    if on_conflict == "return" and dedupe_key is None:
        raise ValueError("expected a dedupe_key with on_conflict='return', got none.")


@has_async_twin
def chain(*calls: Call, name: str = "chain") -> Batch:
    """Run calls one after the other, each with the result of the one before as first argument.

    Return the batch of the first one; all is enqueued in one transaction, or in that of the caller.
    If a call fails, those behind it are not run. Raise ValueError without any call, and TypeError,
    ValueError or InvalidTask for a call that cannot be placed there.
    """
    if not calls:
        raise ValueError("chain() expected at least one call, got none.")
    with workflow(name) as flow:
        flow.add(calls[0])
        last = flow
        for call in calls[1:]:
            last = last.each(call)
    return flow


@has_async_twin
def group(
    calls: Iterable[Call],
    *others: Never,
    name: str = "group",
    then: Call | None = None,
    gather: Call | None = None,
) -> Batch:
    """Run calls side by side; then one with no argument of theirs, or with the list of all results.

    Return the batch of the calls; all is enqueued in one transaction, or in that of the caller.
    Neither *then* nor *gather* is run if one of the calls fails. Raise TypeError for a call that is
    in no list.
    """
    given = _list_of(calls, *others)
    with workflow(name) as flow:
        flow.add(*given)
        if gather is not None:
            flow.gather(gather)
        if then is not None:
            flow.then(then)
    return flow


async def aworkflow(
    name: str, fill: Callable[[Batch], object], **options: Unpack[WorkflowOptions]
) -> Batch:
    """Open a workflow as `workflow` does, in async code; return its batch.

    *fill* is called with it inside the block, in a thread, because a transaction is open there. It
    is a plain function that calls `add`, `each` and so on.
    """
    if not callable(fill):
        said = f"expected fill to be a plain function that takes the batch, got {fill!r:.80}."
        raise TypeError(said)

    def open_and_fill() -> Batch:
        with workflow(name, **options) as flow:
            filled = fill(flow)
            if iscoroutine(filled):
                filled.close()
                raise TypeError("expected fill to be a plain function, got one to be awaited.")
        return flow

    return await sync_to_async(open_and_fill, thread_sensitive=True)()


async def achain(*calls: Call, name: str = "chain") -> Batch:
    """See `chain`."""
    return await sync_to_async(chain, thread_sensitive=True)(*calls, name=name)


async def agroup(
    calls: Iterable[Call],
    *others: Never,
    name: str = "group",
    then: Call | None = None,
    gather: Call | None = None,
) -> Batch:
    """See `group`."""
    open_group = sync_to_async(group, thread_sensitive=True)
    return await open_group(_list_of(calls, *others), name=name, then=then, gather=gather)


def _list_of(calls: object, *others: object) -> list[Any]:
    if others or not isinstance(calls, Iterable):
        got = f"{1 + len(others)} arguments" if others else reprlib.repr(calls)
        raise TypeError(f"expected a list of calls, as in group([push.s(17)]), got {got}.")
    return list(calls)


def current_batch() -> Batch:
    """Return the batch of the job that is running here; it takes more, even if it is sealed.

    Raise LookupError outside of a job, and in one that belongs to no batch.
    """
    try:
        job = current_job()
    except LookupError:
        raise LookupError("current_batch() was called outside a running job.") from None
    if job.batch_id is None:
        raise LookupError(f"current_batch() was called in job {job.id}, which is in no batch.")
    # Its row is read when something of it is asked for.
    batch: Batch = batch_model().from_db(job_database(), ["id"], [job.batch_id])
    batch.asking = Asking(job.id, job.claim)
    return batch
