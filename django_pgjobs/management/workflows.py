"""What `manage.py jobs workflows` prints: the newest trees of batches, or one of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder

from django_pgjobs.management.tables import write_table
from django_pgjobs.models import Batch
from django_pgjobs.models.batch_states import all_workflows, with_states

COUNTS = ("jobs", "successful", "failed", "cancelled")
LISTED = ("id", "name", "state", *COUNTS, "created_at")
OF_TREE = ("id", "batch", "state", *COUNTS)

Write = Callable[[str], object]


def list_workflows(write: Write, *, only_open: bool, limit: int, as_json: bool) -> None:
    """Write the newest workflows, with the numbers of their whole trees."""
    roots = with_states(all_workflows()).order_by("-id")
    if only_open:
        roots = roots.filter(tree_completed_at=None)
    rows = [
        dict(
            zip(
                LISTED,
                (root.pk, root.name, root.state, *root.counts(tree=True), root.created_at),
                strict=True,
            )
        )
        for root in roots[:limit]
    ]
    if as_json:
        write(_json(rows))
    else:
        write_table(write, LISTED, [list(row.values()) for row in rows])


def show_tree(write: Write, batch_id: int, *, as_json: bool) -> None:
    """Write a batch and all below it, and what it waits for; raise LookupError if it is gone."""
    top = with_states(Batch.objects.filter(pk=batch_id)).first()
    if top is None:
        raise LookupError(f"there is no batch {batch_id}.")
    rows = list(_tree(top))
    reasons = top.explain().reasons
    if as_json:
        tree = [dict(zip(OF_TREE, row[1:], strict=True)) | {"depth": row[0]} for row in rows]
        reasons_told = [{"code": each.code, "text": each.text} for each in reasons]
        write(_json({"batches": tree, "reasons": reasons_told}))
        return
    write_table(write, OF_TREE, [(i, "  " * depth + name, *rest) for depth, i, name, *rest in rows])
    for reason in reasons:
        write(f"{reason.text} [{reason.code}]")


def _tree(top: Any) -> Iterator[tuple[Any, ...]]:
    """Yield depth, id, name, state and counts of a batch and all below it, owners first."""
    found = with_states(Batch.objects.filter(root_id=top.root_id)).order_by("id")
    below: dict[int | None, list[Any]] = {}
    for batch in found:
        below.setdefault(batch.parent_id, []).append(batch)
    waiting = [(0, top)]
    while waiting:
        depth, batch = waiting.pop()
        yield depth, batch.pk, str(batch).rpartition(" #")[0], batch.state, *batch.counts()
        waiting += [(depth + 1, child) for child in reversed(below.get(batch.pk, []))]


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, cls=DjangoJSONEncoder)
