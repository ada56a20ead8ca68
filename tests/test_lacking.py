"""What a row lacks of what its task declares, and what is worked out for it."""

from __future__ import annotations

from typing import Any

import pytest

from django_pgjobs import task
from django_pgjobs.control.explain import explain
from django_pgjobs.enqueueing.filling import filled_in
from django_pgjobs.models import RateLimit
from django_pgjobs.queries.filling import Control
from tests.factories import make_job
from tests.worker import declared

BARE = Control("default", 0, None, None, False, None, 1, None, False)
asked: list[str] = []


def key_named(name: str) -> Any:
    """Return a function that gives a key and notes that it was asked."""

    def key(shop_id: int) -> str:
        asked.append(name)
        return f"{name}:{shop_id}"

    return key


@task(
    concurrency_key=key_named("concurrency"),
    rate_limit=key_named("rate"),
    unique_key=key_named("unique"),
    unique_until="claimed",
    ordering="skip",
    rate_cost=2,
    queue_name="mail",
    priority=7,
)
def all_of_it(shop_id: int) -> None:
    """Declare everything that a row may lack."""


GIVEN = {
    "concurrency_key": "mine",
    "concurrency_limit": 3,
    "skips_waiting": True,
    "rate_limit_keys": "mine",
    "rate_cost": 5,
    "unique_key": "mine",
    "queue_name": "urgent",
    "priority": 1,
}


@pytest.fixture(autouse=True)
def _forget() -> None:
    asked.clear()


def test_all_keys_that_a_row_lacks_are_worked_out() -> None:
    filled = filled_in(all_of_it, BARE, [7], {})
    assert sorted(asked) == ["concurrency", "rate", "unique"]
    assert filled == Control(
        "mail", 7, "concurrency:7", None, True, "rate:7", 2, "unique:7", True, yields=True
    )


@pytest.mark.parametrize(
    ("column", "name"),
    [
        ("concurrency_key", "concurrency"),
        ("rate_limit_keys", "rate"),
        ("unique_key", "unique"),
    ],
)
def test_a_key_that_the_row_gives_is_not_worked_out(column: str, name: str) -> None:
    filled = filled_in(all_of_it, BARE._replace(**{column: "mine"}), [7], {})
    assert sorted(asked) == sorted({"concurrency", "rate", "unique"} - {name})
    assert getattr(filled, column) == "mine"


def test_of_a_row_that_gives_all_of_it_nothing_is_asked() -> None:
    """Not even whether its arguments fit: it fails when it runs, as any other."""
    row = BARE._replace(**GIVEN)
    assert filled_in(all_of_it, row, ["does", "not", "fit"], {}) == row
    assert asked == []


@pytest.mark.django_db
@pytest.mark.parametrize("missing", [None, *GIVEN])
def test_explain_says_undeclared_of_rows_that_lack_something(missing: str | None) -> None:
    """Without calling a function of the project."""
    RateLimit.objects.create(name="mine", count=10, period=1.0)
    columns = {name: value for name, value in GIVEN.items() if name != missing}
    codes = [reason.code for reason in explain(make_job(all_of_it.module_path, **columns)).reasons]
    # Nothing is declared that would be another limit than none.
    assert ("undeclared" in codes) == (missing not in (None, "concurrency_limit"))
    assert asked == []


@pytest.mark.django_db
def test_explain_says_nothing_of_rows_that_lack_nothing() -> None:
    given = [
        (declared.one_at_a_time, {"concurrency_key": "shop:7"}),
        (declared.placed, {"queue_name": "mail", "priority": 7}),
        (declared.unique, {"unique_key": "report:May"}),
    ]
    for its_task, columns in given:
        codes = [each.code for each in explain(make_job(its_task.module_path, **columns)).reasons]
        assert "undeclared" not in codes
    codes = [each.code for each in explain(make_job(declared.unique.module_path)).reasons]
    assert "undeclared" in codes
