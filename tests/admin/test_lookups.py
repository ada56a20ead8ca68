"""Lookups that come back from a browser: what they find, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg import sql

from django_pgjobs.bulk.lookups import InvalidLookup, conditions
from django_pgjobs.bulk.selection import Selection
from django_pgjobs.models import Job
from tests.factories import make_job

pytestmark = pytest.mark.django_db


def ids_of(lookups: dict[str, Any]) -> list[int]:
    """Return the ids of the jobs that the lookups keep."""
    return list(Job.objects.filter(conditions(lookups)).order_by("id").values_list("id", flat=True))


def nested(levels: int) -> dict[str, Any]:
    """Return lookups in each other."""
    return {"id": 1} if levels == 0 else {"any_of": [nested(levels - 1)]}


HOUR_AGO = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
FAILED = {
    "status": "failed",
    "finished_at": sql.SQL("now()"),
    "last_attempted_at": sql.SQL("now() - interval '5 s'"),
    "errors": [
        {"exception_class": "first.Error", "message": "old"},
        {"exception_class": "shop.Boom", "message": "Order 17 of 'anna' is lost"},
    ],
}


@pytest.mark.parametrize(
    ("columns", "lookups"),
    [
        ({"queue_name": "mail"}, {"queue_name": "mail"}),
        ({"queue_name": "mail"}, {"queue_name__in": ["x", "mail"]}),
        ({"task_path": "shop.tasks.send"}, {"task_path__startswith": "shop."}),
        ({"task_path": "shop.tasks.SEND"}, {"task_path__icontains": "send"}),
        ({"attempts": 4}, {"attempts__gte": 4, "attempts__lt": 5}),
        ({"due_at": sql.SQL("now() + interval '1 day'")}, {"due_at__isnull": False}),
        ({"enqueued_at": sql.SQL("now() - interval '1 day'")}, {"enqueued_at__lt": HOUR_AGO}),
        ({"hold": "dependencies"}, {"hold__isnull": False}),
        ({"tags": ["a", "nightly"]}, {"tag": "nightly"}),
        ({"worker_ids": ["web-1:3", "web-2:4"]}, {"worker": "web-2:4"}),
        ({"concurrency_key": "shop:7"}, {"key": "shop:7"}),
        ({"unique_key": "shop:7"}, {"key": "shop:7"}),
        ({"subject": "shop.order:17"}, {"subject": "shop.order:17"}),
        ({"schedule": "nightly"}, {"schedule": "nightly"}),
        ({"kwargs": {"a": {"b": "val"}}}, {"argument": {"path": ["a", "b"], "value": "val"}}),
        ({"kwargs": {"a": 17}}, {"argument": {"path": ["a"], "value": 17}}),
        ({"kwargs": {"a": True}}, {"argument": {"path": ["a"], "value": True}}),
        ({"kwargs": {"a": 17}}, {"argument": {"path": ["a"], "value": "17"}}),
        ({"args": ["x", {"b": "y"}]}, {"argument": {"path": ["1", "b"], "value": "y"}}),
        (FAILED, {"error": "shop.boom"}),
        (FAILED, {"error": "is LOST"}),
        (FAILED, {"error_class": "shop.Boom"}),
        (FAILED, {"error_class": "shop.Boom", "error_message": "Order * of * is lost"}),
        (FAILED, {"duration__gte": 4.5, "duration__lte": 6}),
        ({"priority": 5}, {"any_of": [{"priority": 5}, {"queue_name": "none"}]}),
        ({"priority": 5}, {"all_of": [{"priority__gt": 4}, {"priority__lt": 6}]}),
    ],
)
def test_a_lookup_finds_what_it_says(columns: dict[str, Any], lookups: dict[str, Any]) -> None:
    make_job()
    wanted = make_job(**columns)
    assert ids_of(lookups) == [wanted]


@pytest.mark.parametrize(
    "lookups",
    [
        {"worker_set__id": 1},
        {"args__icontains": "x"},
        {"result": 1},
        {"task_path__regex": "(a+)+$"},
        {"id__in": list(range(20_000))},
        {"id__in": "1,2"},
        {"id": "1 OR 1=1"},
        {"id": True},
        {"id": 2**70},
        {"queue_name": "a\0b"},
        {"queue_name": "\ud800"},
        {"queue_name": ["x"]},
        {"queue_name": None},
        {"queue_name": "x" * 5_000},
        {"enqueued_at__lt": "soon"},
        {"enqueued_at__lt": "2026-13-45T00:00:00"},
        {"due_at__isnull": "yes"},
        {"duration__gte": "1"},
        {"duration__gte": -1},
        {"argument": {"path": [], "value": 1}},
        {"argument": {"path": ["a"]}},
        {"argument": "a"},
        {"any_of": []},
        {"any_of": {"id": 1}},
        {
            "any_of": [
                nested(10),
            ]
        },
        {"pk": 1},
        {"": 1},
        {"__": 1},
        {"status__": "x"},
    ],
    ids=lambda lookups: str(lookups)[:60],
)
def test_a_hostile_lookup_is_refused(lookups: dict[str, Any]) -> None:
    with pytest.raises(InvalidLookup):
        ids_of(lookups)


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {"lookups": []},
        {"lookups": {"x": 1}},
        {"lookups": {}, "until": 5},
        {"lookups": {}, "until": "never"},
        {"lookups": {}, "max_id": "1"},
        {"lookups": {}, "max_id": True},
    ],
)
def test_a_hostile_selection_is_refused(value: Any) -> None:
    with pytest.raises(InvalidLookup):
        Selection.from_json(value)


def test_a_selection_survives_json() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    selection = Selection({"enqueued_at__lt": moment, "status__in": ("failed",)}, moment, 17)
    again = Selection.from_json(selection.to_json())
    assert again.until == moment
    assert again.max_id == 17
    assert again.statuses == {"failed"}
    assert again.to_json() == selection.to_json()


def test_a_selection_is_pinned_once() -> None:
    job_id = make_job()
    pinned = Selection({}).pinned()
    assert pinned.max_id == job_id
    make_job()
    assert pinned.pinned() is pinned


def test_the_statuses_of_a_selection_are_those_its_lookups_leave() -> None:
    assert len(Selection({}).statuses) == 5
    assert Selection({"status": "failed"}).statuses == {"failed"}
    both = Selection({"status__in": ["ready", "running"], "status": "ready"})
    assert both.statuses == {"ready"}
    assert Selection({"status": "nonsense"}).statuses == frozenset()
