"""The example's payroll, and what the demo says of it: run on the test's connection."""

from __future__ import annotations

import io
from typing import Any

import django
import pytest
from django.core import mail
from django.db import IntegrityError, transaction

from django_pgjobs.models import Batch, Job
from django_pgjobs.testing import run_jobs
from example_project.payroll import paying
from example_project.payroll.demo import payday, report
from example_project.payroll.demo.checks import check_payroll, check_rescue
from example_project.payroll.demo.payday import Paid, Payday, hire
from example_project.payroll.models import Cheque, Employee, Payroll
from example_project.payroll.paying import pay_everybody
from example_project.shop.demo.checks import Check
from example_project.shop.demo.feed import DemoError
from example_project.shop.demo.progress import Progress

pytestmark = pytest.mark.django_db


class OneProcess:
    """Stands in for the demo's workers: whoever looks after them lets the jobs run."""

    def check(self) -> None:
        """Run what waits."""
        run_jobs()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    """Nobody waits for the time clock, and mail goes nowhere."""
    monkeypatch.setattr(paying, "LOOK_SECONDS", 0)
    if django.VERSION >= (6, 1):
        settings.MAILERS = {"default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}


def failed(found: list[Check]) -> list[str]:
    return [check.text for check in found if not check.passed]


def test_everybody_gets_a_cheque_and_the_boss_a_mail() -> None:
    """S2.1, S2.16, S2.28: taxes and a cheque per result while others are calculated, then mail."""
    assert hire(3) == 3
    payroll = pay_everybody("2026-11")
    assert Job.objects.filter(batch_id=payroll.batch_id).count() == 3
    assert run_jobs() == 10
    net = {each.pk: each.hours * each.wage * 4 // 5 for each in Employee.objects.all()}
    assert dict(payroll.cheques.values_list("employee", "amount")) == net
    [summary] = payroll.summaries.all()
    assert (summary.cheques, summary.amount) == (3, sum(net.values()))
    assert mail.outbox[0].body.startswith("3 cheques")
    assert Batch.objects.get(pk=payroll.batch_id).tree_completed_at


def test_cheques_go_before_the_calculations_that_wait() -> None:
    hire(3)
    payroll = pay_everybody("2026-11")
    with pytest.raises(RuntimeError):
        run_jobs(limit=3)
    assert payroll.cheques.count() == 1


def test_a_month_is_paid_once() -> None:
    pay_everybody("2026-11")
    with pytest.raises(IntegrityError), transaction.atomic():
        pay_everybody("2026-11")
    assert Batch.objects.filter(parent=None).count() == 1


def test_a_payroll_that_is_rolled_back_leaves_nothing() -> None:
    hire(2)
    with transaction.atomic():
        pay_everybody("2026-11")
        transaction.set_rollback(True)
    assert not Payroll.objects.exists()
    assert not Batch.objects.exists()
    assert run_jobs() == 0


@pytest.fixture
def paid() -> Paid:
    """A payroll in which all went well."""
    day = Payday("run", OneProcess(), employees=5)  # type: ignore[arg-type]
    return day.run(Progress(io.StringIO(), "", 1), kill=False)


@pytest.mark.slow
def test_the_checks_pass_when_all_went_well_and_notice_what_did_not(paid: Paid) -> None:
    assert failed(check_payroll(paid, killed=False)) == []
    assert any("payroll cheques" in line for line in report.summary(paid))
    cheque = paid.payroll.cheques.latest("pk")
    twice = Cheque.objects.create(
        payroll=paid.payroll, employee=cheque.employee, amount=cheque.amount
    )
    assert failed(check_payroll(paid, killed=False)) == ["cheques in all"]
    twice.delete()
    Cheque.objects.filter(pk=cheque.pk).update(amount=1)
    assert failed(check_payroll(paid, killed=False)) == ["employees with a cheque"]
    Batch.objects.update(tree_failed=True)
    assert "workflows that are complete" in failed(check_payroll(paid, killed=False))


@pytest.mark.slow
def test_a_kill_that_hit_nothing_proves_nothing(paid: Paid) -> None:
    assert failed(check_payroll(paid, killed=True)) == ["jobs of the killed payroll worker rescued"]
    paid.orphans = list(paid.jobs.values_list("pk", flat=True)[:2])
    assert failed(check_rescue(paid)) != []
    paid.jobs.filter(pk__in=paid.orphans).update(lost_count=1)
    assert failed(check_rescue(paid)) == []


def test_a_payroll_without_progress_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    class Idle(OneProcess):
        def check(self) -> None:
            """Do nothing."""

    monkeypatch.setattr(payday, "STALL_SECONDS", 0.01)
    day = Payday("run", Idle(), employees=5)  # type: ignore[arg-type]
    with pytest.raises(DemoError, match=r"no cheque was written for 0\.01 s; 0 are"):
        day.run(Progress(io.StringIO(), "", 1), kill=False)
