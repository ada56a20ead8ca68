"""Changes of many jobs at once, by a person: which jobs, what is done to them, and doing it.

`Selection` says which, `ACTIONS` what; a `BulkChange` is one of them on its way. A small one is
done while the person waits (`run_change`), a large one by a background job (`enqueue_change`).
"""

from __future__ import annotations

from django_pgjobs.bulk.actions import ACTIONS, Action
from django_pgjobs.bulk.changes import cancel_change, create_change, run_change, run_page
from django_pgjobs.bulk.job import drop_job, enqueue_change, has_job, run_bulk_change
from django_pgjobs.bulk.lookups import InvalidLookup, conditions
from django_pgjobs.bulk.selection import Selection

__all__ = [
    "ACTIONS",
    "Action",
    "InvalidLookup",
    "Selection",
    "cancel_change",
    "conditions",
    "create_change",
    "drop_job",
    "enqueue_change",
    "has_job",
    "run_bulk_change",
    "run_change",
    "run_page",
]
