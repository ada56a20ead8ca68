"""The numbers of a batch's page are of one moment, whatever is committed while it is drawn."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from django_pgjobs.admin.workflows import batch_page
from tests.admin.test_workflows import PAGE, plain, read
from tests.factories import make_batch
from tests.helpers import connect

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_total_is_that_of_the_lines(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_batch("payroll", jobs=5, successful=1)
    list_tree = batch_page.list_tree

    def list_and_change(*args: Any, **flags: Any) -> Any:
        rows = list_tree(*args, **flags)
        with connect() as other:
            other.execute("UPDATE pgjobs_batch SET successful = 4")
            other.execute("UPDATE pgjobs_batch SET tree_completed_at = now()")
        return rows

    monkeypatch.setattr(batch_page, "list_tree", list_and_change)
    text = plain(read(admin_client, PAGE, root))
    numbers = "5 jobs: 1 successful, 0 failed, 0 cancelled, 4 unfinished"
    # In its head and in its line.
    assert text.count(numbers) == 2
    # The next one sees what was committed.
    monkeypatch.undo()
    assert "4 successful" in plain(read(admin_client, PAGE, root))


def test_in_a_transaction_of_the_project_the_page_is_drawn(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_batch("payroll", jobs=5, failed=1)
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    assert "1 of 5 jobs" in plain(read(admin_client, PAGE, root))


def look_and_note(user: Any, verb: str, job: Any) -> bool:
    """Let everybody do everything, and note who may operate; for PGJOBS["ADMIN_PERMISSION"]."""
    if verb == "pgjobs.operate_job":
        User.objects.filter(pk=user.pk).update(last_name=verb)
    return True


def test_a_permission_that_writes_what_others_write_is_no_error(
    admin_client: Client, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As two pages do that ask at once, and note when somebody was there last."""
    settings.PGJOBS = {"ADMIN_PERMISSION": f"{__name__}.look_and_note"}
    root = make_batch("payroll", jobs=5, failed=1)
    failed_jobs = batch_page.failed_jobs
    left = ["anna"]

    def write_and_list(*args: Any) -> Any:
        while left:
            with connect() as other:
                other.execute("UPDATE auth_user SET first_name = %s", [left.pop()])
        return failed_jobs(*args)

    monkeypatch.setattr(batch_page, "failed_jobs", write_and_list)
    assert "1 of 5 jobs" in plain(read(admin_client, PAGE, root))
    assert User.objects.get().last_name == "pgjobs.operate_job"
