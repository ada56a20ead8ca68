"""The tax office: another company's program, which knows the shop's HTTP API and nothing else.

URL=http://127.0.0.1:8000/pgjobs/api/ TOKEN=pgj_... python tax_office.py
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "clients" / "python"))

from pgjobs_worker import Discard, Job, Worker

worker = Worker(os.environ["URL"], os.environ["TOKEN"], name="tax office", slots=8)


@worker.task("example_project.payroll.paying.deduct_taxes")
def deduct_taxes(job: Job, pay: dict[str, Any]) -> dict[str, Any]:
    """Return what is left."""
    if not isinstance(pay["amount"], int):
        raise Discard("an amount is a number of cents")
    job.sleep(0.01)
    return {**pay, "amount": pay["amount"] * 4 // 5}


if __name__ == "__main__":
    worker.run()
