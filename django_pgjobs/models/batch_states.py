"""Conditions on batches and on jobs of them, each told once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.db.models import (
    BigIntegerField,
    BooleanField,
    Case,
    Exists,
    F,
    Func,
    OuterRef,
    Q,
    QuerySet,
    TextField,
    Value,
    When,
)

from django_pgjobs.models.batches import Batch
from django_pgjobs.models.jobs import Job
from django_pgjobs.queries.database import rows_of
from django_pgjobs.queries.workflow_pages import TreeRow
from django_pgjobs.status import FINISHED, BatchState, Follows, JobStatus

EVERY = Q()
# Of a batch: what no list shows. They may be long.
LARGE_FIELDS = ("step", "callbacks", "metadata")
# Of a workflow; its own index holds the few that are.
_HAS_BROKEN_BELOW = Exists(
    Batch.objects.filter(root_id=OuterRef("pk")).exclude(broken="").order_by()
)
_ENDED = Q(tree_completed_at__isnull=False)
_LACKS_WHAT_IT_FOLLOWS = Q(
    follows__in=(Follows.GATHER, Follows.COMPLETION),
    failed_predecessors__gt=0,
    runs_after_failure=False,
)
# The first that holds is the state.
_RULES = (
    (~Q(broken="") | _HAS_BROKEN_BELOW, BatchState.BROKEN),
    (_ENDED & Q(cancel_requested_at__isnull=False, failed=0), BatchState.CANCELLED),
    (_ENDED & Q(tree_failed=True), BatchState.FAILED),
    (_ENDED & _LACKS_WHAT_IT_FOLLOWS, BatchState.NOT_RUN),
    (_ENDED, BatchState.SUCCESSFUL),
    (Q(cancel_requested_at__isnull=False), BatchState.CANCELLING),
    (Q(sealed_at=None, follows__isnull=False, jobs=0), BatchState.WAITING),
    (Q(sealed_at=None, follows=None), BatchState.OPEN),
)

_TREE = "(WITH RECURSIVE below AS (SELECT batch.id FROM pgjobs_batch AS batch WHERE batch.id = "
_BELOW = (
    " UNION ALL SELECT child.id FROM below"
    " JOIN pgjobs_batch AS child ON child.parent_id = below.id"
    ") SELECT below.id FROM below)"
)
# As an array it is worked out once, before the jobs are looked for by their index. A list is
# hashed, and the test of a truth value keeps it from being joined, which would have no order. It is
# made of the array, of whose length the planner knows nothing: it takes a tree for many times as
# large as it is, and would search the list from its begin for each job instead.
_BY_INDEX = (" = ANY (ARRAY" + _TREE, _BELOW + ")")
_IN_OPEN = (
    "(%(expressions)s = ANY (ARRAY(SELECT batch.id FROM pgjobs_batch AS batch"
    " JOIN pgjobs_batch AS root ON root.id = batch.root_id WHERE root.tree_completed_at IS NULL)))"
)
_BY_ROW = (" IN (SELECT unnest(ARRAY" + _TREE, _BELOW + ")) IS TRUE")


def with_states(batches: QuerySet[Batch]) -> QuerySet[Any]:
    """Return *batches*, each with its *state*, one of `BatchState`."""
    cases = [When(condition, then=Value(state.value)) for condition, state in _RULES]
    running = Value(BatchState.RUNNING.value)
    return batches.annotate(state=Case(*cases, default=running, output_field=TextField()))


def owners_first(tree: Sequence[TreeRow]) -> Iterator[tuple[TreeRow, Any]]:
    """Yield the rows of a tree with their batches and states, owners right before what is below."""
    found = with_states(rows_of(Batch).defer(*LARGE_FIELDS)).in_bulk([row.id for row in tree])
    below: dict[int | None, list[TreeRow]] = {}
    for row in tree[1:]:
        below.setdefault(row.parent_id, []).append(row)
    waiting = list(tree[:1])
    while waiting:
        row = waiting.pop()
        if row.id in found:  # not deleted meanwhile
            yield row, found[row.id]
            waiting += reversed(below.get(row.id, []))


def all_workflows() -> QuerySet[Batch]:
    """Return the batches at the roots, by the condition of their index."""
    return Batch.objects.filter(root_id=F("id"))


def in_batches(batch: Q) -> Q:
    """Return the condition *batch*, on the `batch_id` of jobs, so that the indexes serve it.

    That of waiting jobs holds these only; those that run are found among all that run.
    """
    finished = Q(status__in=sorted(FINISHED)) & batch
    live = (Q(status=JobStatus.READY) & batch) | (Q(status=JobStatus.RUNNING) & batch)
    # By itself, too: the index of finished jobs then gives their order.
    return batch & (live | finished)


def of_batches(ids: list[int]) -> Q:
    """Return the condition that a job is in one of these batches, of which there may be many.

    They are one parameter: as thousands they would take seconds to be put into a statement, which
    can have 65,535.
    """
    listed = Func(
        F("batch_id"),
        Value(ids),
        template="(%(expressions)s::bigint[]))",
        arg_joiner=" = ANY (",
        output_field=BooleanField(),
    )
    return in_batches(Q(listed))


def in_tree(batch_id: int, *, is_large: bool = False) -> Q:
    """Return the condition that a job is in a batch or one below it.

    Nobody knows how many jobs a tree has when the statement is planned. If *is_large*, the index of
    batches does not serve it: it might be read to its end for a page of jobs in another order.
    """
    begin, end = _BY_ROW if is_large else _BY_INDEX
    below = Func(
        F("batch_id") + 0 if is_large else F("batch_id"),
        Value(batch_id, BigIntegerField()),
        template="(%(expressions)s" + end + ")",
        arg_joiner=begin,
        output_field=BooleanField(),
    )
    return Q(below) if is_large else in_batches(Q(below))


def follows_failure() -> Q:
    """Return the condition that a job is that of a `gather` or `then` behind something that failed,
    or that is open: it runs again when that is complete, and is not to be requeued with it.
    """
    return is_of_whole(Q(failed_predecessors__gt=0) | Q(open_predecessors__gt=0))


def is_of_whole(condition: Q = EVERY) -> Q:
    """Return the condition that a job is that of a `gather` or `then`, of a batch that is so."""
    wholes = Batch.objects.filter(
        condition, pk=OuterRef("batch_id"), follows__in=(Follows.GATHER, Follows.COMPLETION)
    )
    return Q(Exists(wholes), source_id=0)


def is_of_open() -> Q:
    """Return the condition that a job is one of a workflow that is not complete."""
    return Q(
        batch_id__in=Batch.objects.filter(root__tree_completed_at=None).order_by().values("pk")
    )


def in_open() -> Q:
    """Return the same condition, so that the index of batches serves it."""
    found = Func(F("batch_id"), template=_IN_OPEN, output_field=BooleanField())
    return in_batches(Q(found))


def newest_in_batch(batch_id: int) -> int | None:
    """Return the id of the newest job of a batch, None if there is none: a row of each index."""
    parts = [
        Job.objects.filter(batch_id=batch_id, status=status)
        .order_by("-id")
        .values_list("pk", flat=True)[:1]
        for status in JobStatus.values
    ]
    return max(parts[0].union(*parts[1:], all=True), default=None)
