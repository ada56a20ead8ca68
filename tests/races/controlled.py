"""What the rules say of trees whatever people have done to them, at rest."""

from __future__ import annotations

import json
from collections import Counter

from django.db import connection

from django_pgjobs.models import Batch
from tests.races.test_batch_model import Rules


class Controlled(Rules):
    """The rules that hold whatever people have done."""

    def __init__(self, results: list[tuple[int, str]], requeued: set[int]) -> None:
        super().__init__()
        self.requeued = requeued
        self.results: dict[int, list[str]] = {}
        for job_id, result in results:
            self.results.setdefault(job_id, []).append(result)
        self.kept = set()
        with connection.cursor() as cursor:
            cursor.execute("SELECT batch_id, source_id, is_kept FROM pgjobs_batch_page")
            for batch_id, source_id, is_kept in cursor.fetchall():
                assert is_kept and self.batches[batch_id].cancel_requested_at
                self.kept.add((batch_id, source_id))

    def check(self) -> None:
        """Fail with the first batch that is not as it should be."""
        called: dict[int, Counter[str]] = {}
        for job in self.jobs.get(None, []):
            called.setdefault(job.args[0], Counter())[job.args[1]] += 1
        assert self.jobs.keys() <= {None, *self.batches}
        for batch in self.batches.values():
            self.check_numbers(batch)
            calls = called.get(batch.pk, Counter())
            assert calls["complete"] == batch.completions, batch
            assert calls["success"] + calls["failure"] == batch.completions, batch
            if batch.follows in ("gather", "completion"):
                self.check_whole(batch)
            elif batch.follows is not None:
                self.check_streamed(batch)

    def check_numbers(self, batch: Batch) -> None:
        """Fail unless its numbers are those of its jobs, and of the batches around it."""
        ends = [len(self.of(batch, each)) for each in ("successful", "failed", "cancelled")]
        assert [batch.successful, batch.failed, batch.cancelled] == ends, batch
        assert batch.jobs == sum(ends) == len(self.jobs.get(batch.pk, [])), batch
        assert batch.completed_at and batch.tree_completed_at and batch.sealed_at, batch
        assert (batch.open_predecessors, batch.open_parts, batch.open_children) == (0, 0, 0), batch
        assert batch.broken == "", batch
        below = [each for each in self.batches.values() if each.parent_id == batch.pk]
        above = [self.batches[each] for each in self.edges.get(batch.pk, [])]
        assert batch.failed_children == sum(each.tree_failed for each in below), batch
        assert batch.failed_predecessors == sum(each.carried_failure for each in above), batch
        is_cancelled = batch.cancel_requested_at is not None
        has_failed = batch.failed + batch.cancelled > 0
        assert batch.tree_failed == (has_failed or is_cancelled or batch.failed_children > 0), batch
        assert batch.carried_failure == (
            has_failed
            or (is_cancelled and batch.cancel_requested_at <= batch.completed_at)
            or any(each.tree_failed for each in below if each.follows is None)
            or (batch.failed_predecessors > 0 and not batch.runs_after_failure)
        ), batch

    def check_whole(self, batch: Batch) -> None:
        """Fail unless what gathers ran, and has read the results that there are."""
        jobs = [job for job in self.jobs.get(batch.pk, []) if job.source_id == 0]
        lacks = batch.failed_predecessors > 0 and not batch.runs_after_failure
        if batch.cancel_requested_at is not None or lacks:
            assert len(jobs) <= 1, batch
            return
        assert len(jobs) == 1 and not batch.runs_again, batch
        if batch.follows == "gather" and jobs[0].status == "successful":
            above = [self.batches[each] for each in jobs[0].args["results_of"]]
            read = sorted(
                (job for each in above for job in self.of(each, "successful")),
                key=lambda job: job.pk,
            )
            found = [[each, text and json.loads(text)] for each, text in jobs[0].result]
            assert found == [[job.batch_id, job.result] for job in read], batch

    def check_streamed(self, batch: Batch) -> None:
        """Fail unless each result has its jobs; twice only of one that somebody has requeued."""
        made: dict[int | None, Counter[str]] = {}
        for job in self.jobs.get(batch.pk, []):
            made.setdefault(job.source_id, Counter())[json.dumps(job.args)] += 1
        for above in self.edges[batch.pk]:
            for source in self.jobs.get(above, []):
                found = made.pop(source.pk, Counter())
                if (batch.pk, source.pk) in self.kept:
                    continue
                results = self.results.get(source.pk, [])
                every = sum((elements(batch, each) for each in results), Counter[str]())
                if source.status == "successful":
                    assert json.dumps(source.result) in map(normal, results), source.pk
                    if batch.cancel_requested_at is None:
                        last = elements(batch, json.dumps(source.result))
                        assert not last - found, (batch, source.pk)
                if source.pk not in self.requeued and source.source_id != 0:
                    assert not found - every, (batch, source.pk)
        assert not made, batch


def normal(result: str) -> str:
    """Return the JSON text of a result as all of them are written here."""
    return json.dumps(json.loads(result or "null"))


def elements(batch: Batch, result: str) -> Counter[str]:
    """Return the arguments of the jobs that are made of a result."""
    value = json.loads(result) if result else None
    is_item = batch.follows == "each item"
    values = value if is_item and isinstance(value, list) else [value]
    if is_item and value is None:
        values = []
    return Counter(
        json.dumps([each]) for each in values if each is not None or not batch.skips_none
    )
