"""What the address of the installation says if some of it cannot be read."""

from __future__ import annotations

from importlib.util import module_from_spec
from typing import Any

import pytest
from django.core.handlers.base import BaseHandler
from django.db import DatabaseError

from django_pgjobs.metrics import views
from django_pgjobs.metrics.of_installation import PARTS, describe_installation
from tests.aliases import extra_alias
from tests.helpers import connect
from tests.metrics.parsing import read, value_of

pytestmark = pytest.mark.django_db


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("table", "missing"),
    [
        ("pgjobs_rate_state", {"limits", "tables"}),
        ("pgjobs_schedule", {"workers", "schedules", "tables"}),
    ],
)
def test_what_somebody_has_locked_is_left_out_and_the_rest_is_said(
    table: str, missing: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    with connect() as other, other.transaction():
        other.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        metrics = read(describe_installation())
    parts = {part: value_of(metrics, "pgjobs_part_read", part=part) for part in PARTS}
    assert parts == {part: part not in missing for part in PARTS}
    assert value_of(metrics, "pgjobs_stuck_jobs") == 0
    for part in missing:
        assert f"the metrics of {part} cannot be read" in caplog.text


def test_where_nothing_can_be_read_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise DatabaseError("no such table")

    for part in PARTS:
        monkeypatch.setitem(PARTS, part, refuse)
    with pytest.raises(DatabaseError):
        describe_installation()


def test_no_transaction_is_open_whichever_database_has_the_jobs() -> None:
    """With one around it, a part that cannot be read would spoil the others."""
    with extra_alias("jobs", ATOMIC_REQUESTS=True):
        assert views.__spec__ and views.__spec__.loader
        loaded = module_from_spec(views.__spec__)
        views.__spec__.loader.exec_module(loaded)
        assert BaseHandler().make_view_atomic(loaded.metrics) is loaded.metrics
