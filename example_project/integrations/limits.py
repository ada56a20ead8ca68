"""How much an integration may do at a time and in a second.

The key of an integration's jobs and of its rate limit are made here for those who read; the
tasks in `syncing` declare the same as templates.
"""

from __future__ import annotations

from django.db import transaction

from django_pgjobs.models import RateLimit
from example_project.integrations.models import Integration

# Jobs of one integration at a time, over all workers. A ConcurrencyLimit in the admin goes first.
SYNCS_AT_A_TIME = 50

# The name of the rate limit: PGJOBS["RATE_LIMITS"] in the settings makes the row that holds for
# every integration, a row "outside-api:17" goes first for number 17.
OUTSIDE_API = "outside-api"
# What the outside API says it allows, calls per second.
ALLOWED = {Integration.Plan.BASIC: 25, Integration.Plan.ENTERPRISE: 250}
# So long we take for it. A job takes its token when it is claimed, and calls when a thread has come
# to it: calls that come up to a quarter of a second late are still no more in any second.
PERIOD_SECONDS = 1.25


def concurrency_key(integration_id: int) -> str:
    """Return the key that all jobs of an integration share."""
    return f"integration:{integration_id}"


def rate_key(integration_id: int) -> str:
    """Return the key of an integration's rate limit."""
    return f"{OUTSIDE_API}:{integration_id}"


def calls_per_second(plan: str) -> int:
    """Return how many calls per second we make in the long run."""
    return int(ALLOWED[Integration.Plan(plan)] / PERIOD_SECONDS)


def allowances() -> dict[int, int]:
    """Return the calls per second of all integrations that have bought more than the basic plan."""
    bought = Integration.objects.exclude(plan=Integration.Plan.BASIC)
    return {pk: ALLOWED[Integration.Plan(plan)] for pk, plan in bought.values_list("pk", "plan")}


def set_plan(integration: Integration, plan: Integration.Plan) -> None:
    """Store the plan and its rate limit; all workers keep to it from the next claim on."""
    name = rate_key(integration.pk)
    with transaction.atomic():
        integration.plan = plan
        integration.save(update_fields=["plan"])
        if plan == Integration.Plan.BASIC:
            RateLimit.objects.filter(name=name).delete()
        else:
            allowed = ALLOWED[Integration.Plan(plan)]
            limit = {"count": allowed, "period": PERIOD_SECONDS, "note": f"plan {plan}"}
            RateLimit.objects.update_or_create(name=name, defaults=limit)
