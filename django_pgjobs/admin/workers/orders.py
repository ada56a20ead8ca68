"""Orders to workers as the page Workers sends them, and the record of who gave them."""

from __future__ import annotations

import re
from typing import Any

from django_pgjobs.admin.audit import MAX_ENTRIES, record
from django_pgjobs.orders import ALL, VERBS, WorkerOrder, carry_out

ORDER = re.compile(rf"({'|'.join(VERBS)}) ({ALL}|[1-9][0-9]{{0,17}})", re.ASCII)


def parse_order(text: str) -> WorkerOrder | None:
    """Return the order that a form sent, None if it is none."""
    found = ORDER.fullmatch(text)
    if found is None:
        return None
    return WorkerOrder(found[1], None if found[2] == ALL else int(found[2]))


def carry_out_for(user: Any, order: WorkerOrder, *, site: Any) -> int:
    """Do it and write it down; return how many workers it met."""
    workers = carry_out(order)
    for worker in workers[:MAX_ENTRIES]:
        record(user, f"{order.verb}_worker", obj=worker, site=site)
    if len(workers) > MAX_ENTRIES:
        record(user, f"{order.verb}_worker", target=f"{len(workers)} workers", site=site)
    return len(workers)
