"""What the demo prints about the payroll."""

from __future__ import annotations

from collections.abc import Iterator

from example_project.payroll.demo.checks import early_cheques, first_cheque_seconds
from example_project.payroll.demo.payday import Paid
from example_project.payroll.demo.web import language_of_office
from example_project.shop.demo.report import row


def summary(paid: Paid) -> Iterator[str]:
    """Yield the lines of the table."""
    yield row("payroll cheques", paid.payroll.cheques.count(), f"in {paid.seconds:.1f} s")
    note = f"the first after {first_cheque_seconds(paid):.1f} s"
    yield row("  while calculating", early_cheques(paid), note)
    yield row("  taxes deducted", paid.taxed.count(), f"over HTTP, by {language_of_office()}")
    if paid.killed_pid:
        yield row("  after kill -9", paid.left, f"{len(paid.orphans)} jobs were rescued")
