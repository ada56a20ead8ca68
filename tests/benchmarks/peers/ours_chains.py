"""Run chains of ten steps, one after the other; print the seconds that each took, as JSON.

The server's clock says how long: from the chain's first statement until its tree is complete.
"""

from __future__ import annotations

import json

import django

CHAINS = 12
STEPS = 10


def main() -> None:
    django.setup()
    from ours_tasks import step

    from django_pgjobs import chain

    seconds = []
    for _ in range(CHAINS):
        flow = chain(step.s(0), *[step.s()] * (STEPS - 1))
        flow.wait(timeout=60)
        seconds.append((flow.tree_completed_at - flow.created_at).total_seconds())
    print(json.dumps({"seconds": seconds}), flush=True)


main()
