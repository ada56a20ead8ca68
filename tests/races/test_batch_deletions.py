"""Who deletes a tree at the same time as others cancel, retry or look: no half of it is left."""

from __future__ import annotations

import threading
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
from tests.races.test_batch_retries import settle_all
from tests.races.test_batches import InThread

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.race]


def test_a_cancel_that_comes_too_late_leaves_no_half_of_a_tree(
    own: OwnConnection, in_thread: InThread
) -> None:
    """It is noted when some jobs are deleted already: the others are deleted all the same."""
    with workflow("late") as flow:
        flow.add(tasks.add.s(1, 1), tasks.add.s(2, 2))
    cancelled, goes_on = threading.Event(), threading.Event()

    def cancel_slowly() -> None:
        with transaction.atomic():
            Batch.objects.get(pk=flow.pk).cancel()
            cancelled.set()
            assert goes_on.wait(30)

    canceller = in_thread(cancel_slowly)
    assert cancelled.wait(30)
    run_jobs()
    with transaction.atomic(), connection.cursor() as cursor:
        assert batch_care.begin_deletion(cursor, [flow.pk]) == [flow.pk]
        assert batch_care.delete_tree_jobs(cursor, [flow.pk], max_jobs=1)
    goes_on.set()
    canceller.result()
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
