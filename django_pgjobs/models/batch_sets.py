"""What is done to several batches at once."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from django.db import models

if TYPE_CHECKING:
    from django_pgjobs.models.batches import Batch  # noqa: F401


class BatchQuerySet(models.QuerySet["Batch"]):
    """Batches of any state."""

    def delete(self) -> tuple[int, dict[str, int]]:
        """Delete workflows one after the other, as `Batch.delete` does; those before one stay gone
        if it raises.
        """
        deleted = Counter[str]()
        for batch in self:
            deleted.update(batch.delete()[1])
        return deleted.total(), dict(deleted)

    # Templates do not call it, and Django copies it to no manager.
    delete.alters_data = True  # type: ignore[attr-defined]
    delete.queryset_only = True  # type: ignore[attr-defined]
