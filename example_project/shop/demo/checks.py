"""Whether each effect has happened exactly once, asked of the database."""

from __future__ import annotations

import operator
from collections import Counter
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db.models import Count

from django_pgjobs.models import Job
from example_project.shop.demo.drain import Drained
from example_project.shop.demo.feed import Sent
from example_project.shop.demo.plan import Plan, PlannedOrder
from example_project.shop.models import Customer, Order, PaymentEvent, WelcomeMail

# How the answer found has to be to the expected one.
RULES = {"": operator.eq, "at most ": operator.le, "at least ": operator.ge}


@dataclass(frozen=True, slots=True)
class Check:
    """One question, the answer expected and the answer found."""

    text: str
    expected: int
    found: int
    rule: str = ""

    @property
    def passed(self) -> bool:
        """Whether the answer is the expected one."""
        return bool(RULES[self.rule](self.found, self.expected))


def check_everything(
    run: str, plan: Plan, sent: Sent, drained: Drained, *, killed: bool
) -> list[Check]:
    """Return all checks of the run named *run*."""
    return [
        *check_sign_ups(run, plan, sent),
        *check_payments(plan),
        *check_jobs(plan, sent),
        *(check_rescue(drained) if killed else []),
    ]


def check_sign_ups(run: str, plan: Plan, sent: Sent) -> list[Check]:
    """Check that committed sign-ups had their effect once and rolled-back ones had none."""
    of_run = Customer.objects.filter(user__username__contains=f".{run}.")
    mails = WelcomeMail.objects.filter(recipient__contains=f".{run}.")
    ghosts = User.objects.filter(username__in=plan.rolled_back)
    with_one = of_run.annotate(mails=Count("welcome_mails")).filter(mails=1)
    ghost_jobs = Job.objects.filter(id__in=sent.rolled_back_jobs)
    return [
        Check("customers with exactly one welcome mail", len(plan.committed), with_one.count()),
        Check("welcome mails in all", len(plan.committed), mails.count()),
        Check("users left by rolled-back sign-ups", 0, ghosts.count()),
        Check("jobs left by rolled-back sign-ups", 0, ghost_jobs.count()),
    ]


def check_payments(plan: Plan) -> list[Check]:
    """Check that each event was applied once and that each order came out right."""
    planned = plan.early + plan.orders
    references = [order.reference for order in planned]
    events = PaymentEvent.objects.filter(order__reference__in=references)
    orders = Order.objects.in_bulk(references, field_name="reference")
    right = sum(_is_right(orders.get(order.reference), order) for order in planned)
    revisions = sum(order.revision for order in orders.values())
    expected = sum(len(order.events) for order in planned)
    return [
        Check("payment events on record", expected, events.count()),
        Check("changes to orders, one for each event", expected, revisions),
        Check("orders with the right status and amounts", len(planned), right),
    ]


def check_jobs(plan: Plan, sent: Sent) -> list[Check]:
    """Check that every job has finished as it should."""
    ids = set(sent.jobs)
    rows = Job.objects.filter(id__range=(min(ids), max(ids))).values_list(
        "id", "status", "result", "attempts"
    )
    jobs = {row[0]: row[1:] for row in rows if row[0] in ids}
    statuses = Counter(status for status, _, _ in jobs.values())
    results = Counter(jobs[job][1] for job in sent.webhook_jobs if job in jobs)
    late = [jobs[job] for job in sent.early_jobs if job in jobs]
    retried = sum(result == "applied" and attempts > 1 for _, result, attempts in late)
    return [
        Check("jobs successful", len(ids) - plan.malformed, statuses["successful"]),
        Check("malformed webhooks discarded", plan.malformed, statuses["failed"]),
        Check("second deliveries recognised", plan.duplicates, results["duplicate"]),
        Check("webhooks retried until their order was there", len(plan.early_bodies), retried),
        Check("jobs left ready or running", 0, statuses["ready"] + statuses["running"]),
    ]


def check_rescue(drained: Drained) -> list[Check]:
    """Check that what the killed worker was running was run again by another."""
    # A job whose commit was on its way when the worker died is none: it had finished.
    orphans = Job.objects.filter(id__in=drained.orphans).exclude(
        worker_id=drained.killed_worker, status__in=("successful", "failed")
    )
    # Not all of them successful: the malformed webhook may be among them.
    rescued = orphans.finished().filter(lost_count__gt=0).count()
    # A kill that hit nothing proves nothing: one at least is expected.
    return [Check("jobs of the killed worker rescued", max(1, orphans.count()), rescued)]


def _is_right(order: Order | None, planned: PlannedOrder) -> bool:
    return order is not None and (
        order.status,
        order.total_amount,
        order.captured_amount,
        order.refunded_amount,
        order.revision,
    ) == (
        planned.status,
        planned.total_amount,
        planned.captured_amount,
        planned.refunded_amount,
        len(planned.events),
    )
