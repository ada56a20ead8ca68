"""Rate limits that are missing, or too small for one start: their jobs wait for ever.

`manage.py check --database`, `runjobs --check`, the worker's log and the Overview tell of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from django_pgjobs.conf import get_conf
from django_pgjobs.declaring.keys import parse_template
from django_pgjobs.declaring.registry import find_task, list_task_paths
from django_pgjobs.declaring.tasks import Task
from django_pgjobs.queries.rate_limits import MissingRate


def named_limits() -> dict[str, int]:
    """Return the limits that the tasks known here name, and the most that a start takes of each.

    Of "shopify:{shop_id}" that is "shopify". What a function will return is unknown.
    """
    costs: dict[str, int] = {}
    for path in list_task_paths():
        task = find_task(path)
        for name in _names_of(task):
            costs[name] = max(costs.get(name, 1), getattr(task, "rate_cost", 1))
    return costs


def _names_of(task: object) -> Iterator[str]:
    if not isinstance(task, Task):
        return
    for key in task.rate_limit:
        if not isinstance(key, str):
            continue
        literal, field = next(iter(parse_template(key)), ("", None))
        if field is None:
            yield literal
        elif ":" in literal:
            yield literal.partition(":")[0]


def fact_of(missing: MissingRate) -> str:
    """Return a sentence that says what is missing or too small, and the consequence."""
    if missing.cost is not None:
        who = f"jobs that wait for {missing.key!r} take" if missing.has_jobs else "a task takes"
        whose = "they" if missing.has_jobs else "its jobs"
        return (
            f"{who} {missing.cost} tokens of the rate limit {missing.name!r} at once, whose burst "
            f"is {missing.burst}: {whose} cannot start."
        )
    if missing.has_jobs:
        said, whose = f"jobs wait for the rate limit of {missing.key!r}", "they"
    else:
        said, whose = f"a task names the rate limit {missing.key!r}", "its jobs"
    return f"{said}, which does not exist: {whose} cannot start."


def will_be_made(missing: MissingRate) -> bool:
    """Does a setting declare the limit, which is not there, so that `migrate` makes it?"""
    declared = get_conf().RATE_LIMITS
    return missing.cost is None and not declared.keys().isdisjoint((missing.name, missing.key))


def remedy_for(missing: MissingRate) -> str:
    """Return what to do about it."""
    if missing.cost is not None:
        return (
            f"Let it allow {missing.cost} at once (its burst, or its count if it has none), or "
            "lower rate_cost."
        )
    if will_be_made(missing):
        return "PGJOBS['RATE_LIMITS'] declares it: manage.py migrate makes the row."
    return (
        f"Create {missing.name!r} in the admin, by RateLimit.objects.create(name=..., count=..., "
        "period=...), or in PGJOBS['RATE_LIMITS'] and migrate."
    )
