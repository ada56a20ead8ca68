"""What the tests of the Overview share."""

from __future__ import annotations

import re
from typing import Any

from django.test import Client
from django.urls import reverse
from psycopg import sql

from django_pgjobs.admin.overview.chart import RANGES, SPLITS
from django_pgjobs.admin.overview.page import describe, read_numbers


def ago(seconds: float) -> sql.Composable:
    """Return SQL of an instant in the past."""
    return sql.SQL("statement_timestamp() - make_interval(secs => {})").format(seconds)


def numbers(key: str = "1h", by: str = "outcome") -> dict[str, Any]:
    """Return what the page is drawn from."""
    chosen, split = RANGES[key], SPLITS[by]
    return describe(read_numbers(chosen, split), chosen, split)


def read(client: Client, **query: str) -> str:
    """Return the text of the Overview."""
    response = client.get(reverse("admin:app_list", args=["pgjobs"]), query)
    assert response.status_code == 200
    return response.content.decode()


def words(text: str) -> str:
    """Return a page's text without tags, on one line."""
    return " ".join(re.sub(r"<[^>]*>", " ", text).split())
