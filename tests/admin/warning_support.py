"""What tests of warnings share: reading them as the Overview does, and following them."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from django_pgjobs.admin.overview.destinations import page_of
from django_pgjobs.queries.overview import Installation, get_installation
from django_pgjobs.warnings import situation
from django_pgjobs.warnings.notices import Notice
from tests.admin.overview_support import numbers


@pytest.fixture(autouse=True)
def no_dead_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not count what other tests left dead in the tables."""

    def without_dead_rows(cursor: Any, **bounds: Any) -> Installation:
        return get_installation(cursor, **bounds)._replace(dead_rows=0)

    monkeypatch.setattr(situation, "get_installation", without_dead_rows)


def texts() -> list[str]:
    """Return the warnings of the page."""
    return [notice.text for notice in notices()]


def notices() -> list[Notice]:
    """Return the warnings of the page."""
    found: list[Notice] = numbers()["warnings"]
    return found


def linked_ids(client: Client, notice: Notice) -> set[int]:
    """Return the jobs of the list that a warning leads to."""
    page, _, query = page_of(notice)
    response = client.get(f"{reverse(f'admin:{page}')}?{query}")
    assert response.status_code == 200
    return {job.pk for job in response.context["cl"].result_list}
