"""Where is a running job? Its worker is asked in a row, and answers with the stack."""

from __future__ import annotations

from django.db import connections, transaction

from django_pgjobs.queries import notifications, stacks
from django_pgjobs.queries.database import job_cursor, job_database
from django_pgjobs.queries.stacks import StackRow


def ask_where(job_id: int) -> bool:
    """Ask where a running job is; return False if it does not run, or its worker is gone.

    Its worker is notified when the transaction commits; where no notification arrives it answers
    at its next heartbeat, within a third of its lease.
    """
    alias = job_database()
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        is_asked = stacks.ask_for_stack(cursor, job_id)
        if is_asked:
            notifications.notify_of_orders(cursor)
    return is_asked


def where_it_is(job_id: int) -> StackRow | None:
    """Return what its worker has said, None if nobody asked about this attempt."""
    with job_cursor() as cursor:
        return stacks.get_stack(cursor, job_id)
