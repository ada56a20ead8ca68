"""How much a row of the list of jobs takes: a page has a hundred of them."""

from __future__ import annotations

import pytest
from django.test import Client

from tests.admin.lists import NOW, listed
from tests.factories import make_jobs

pytestmark = pytest.mark.django_db


def test_a_row_of_a_failed_job_is_small(admin_client: Client) -> None:
    """A hundred of them, with all that a row has, leave an eighth of 150 kB to the rest."""
    path, message = "shop.tasks.number_07", "Read timed out after 30 s: host 'api-12000'"
    make_jobs(
        100,
        task_path=path,
        args=[12_000],
        kwargs={"customer": "c2000", "api_token": "s3cret"},
        tags=["nightly"],
        status="failed",
        errors=[{"exception_class": "shop.errors.Error5", "message": message}],
        last_attempted_at=NOW,
        finished_at=NOW,
    )
    text = listed(admin_client, tab="failed", per="100")
    rows = text[text.index("<tbody>", text.index("result_list")) : text.rindex("</tbody>")]
    assert rows.count("<tr>") == 100
    assert len(rows.encode()) < 112_000
