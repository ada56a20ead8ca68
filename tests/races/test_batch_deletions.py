"""Who deletes a tree at the same time as others cancel, retry or look: no half of it is left."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from django.db import connection, transaction

from django_pgjobs import workflow
from django_pgjobs.exceptions import JobError
from django_pgjobs.models import Batch, Job
from django_pgjobs.queries import batch_care
from django_pgjobs.queries.batch_care import TreeRetention
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.testing import run_jobs
from django_pgjobs.worker.process.batch_care import BatchCare
from tests import tasks
from tests.helpers import connect
from tests.races.support import open_cancel
from tests.races.test_batch_retries import settle_all

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.race]


def test_a_cancel_that_comes_too_late_leaves_no_half_of_a_tree(own: OwnConnection) -> None:
    """It is noted when some jobs are deleted already: the others are deleted all the same."""
    with workflow("late") as flow:
        flow.add(tasks.add.s(1, 1), tasks.add.s(2, 2))
    with open_cancel(flow.pk) as commit:
        run_jobs()
        with transaction.atomic(), connection.cursor() as cursor:
            assert batch_care.begin_deletion(cursor, [flow.pk]) == [flow.pk]
            assert batch_care.delete_tree_jobs(cursor, [flow.pk], max_jobs=1)
        commit()
    with transaction.atomic(), connection.cursor() as cursor:
        assert batch_care.begin_deletion(cursor, [flow.pk]) == [flow.pk]
    with pytest.raises(JobError, match="is being deleted"):
        flow.retry()
    settle_all(own)
    flow.delete()
    assert not Batch.objects.exists() and not Job.objects.exists()


def test_nobody_sees_that_a_tree_is_deleted_before_it_is_sure(
    own: OwnConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else another one goes on with what the pruner is about to leave."""
    with workflow("old") as flow:
        flow.add(tasks.add.s(1, 1))
    run_jobs()
    seen = []
    fetch = batch_care.fetch

    def look(cursor: Any, name: str, params: Any) -> Any:
        if name == "list_deleting":
            with connect() as other:
                seen.extend(other.execute("SELECT deleting_at FROM pgjobs_batch").fetchall())
        return fetch(cursor, name, params)

    monkeypatch.setattr(batch_care, "fetch", look)
    care = BatchCare(own, TreeRetention(0.0, 0.0, 0.0), Counter(), is_stopped=lambda: False)
    care.tell()
    care.prune()
    assert seen == [(None,)]
    assert not Batch.objects.exists() and not Job.objects.exists()
