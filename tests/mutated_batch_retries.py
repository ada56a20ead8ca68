"""What `tests.mutations` takes out of retries of trees, and of cancels that are taken back."""

from __future__ import annotations

from tests.mutated_batches import CHANGES, ENDINGS, FINISH, STEPS, TERMS

UNCANCEL = "django_pgjobs/sql/uncancel_batches.sql"
UNCANCELLED = ("tests/test_workflow_uncancel.py",)
RERUNS = ("tests/races/test_batch_retries.py",)
REQUEUES = ("tests/races/test_batch_requeues.py",)
DELETIONS = ("tests/races/test_batch_deletions.py",)

# Name, file, what is replaced and by what, and the tests of which one must fail.
BATCH_RETRIES = (
    (
        "batch that was complete before the cancel",
        UNCANCEL,
        "COALESCE(batch.completed_at <= batch.cancel_requested_at, FALSE)",
        "FALSE",
        UNCANCELLED,
    ),
    (
        "batch whose cancel is only noted when it is taken back",
        UNCANCEL,
        "    SET cancels = FALSE\n",
        "    SET cancels = change.cancels\n",
        RERUNS,
    ),
    (
        "batch that has kept results",
        ENDINGS,
        "AND (batch.cancel_requested_at IS NOT NULL OR (\n                SELECT page.",
        "AND (TRUE OR (\n                SELECT page.",
        UNCANCELLED,
    ),
    (
        "batch that begins beside a retry before it",
        CHANGES,
        "WHERE change.batch_id = edge.waits_for AND change.reopens",
        "WHERE FALSE",
        UNCANCELLED,
    ),
    (
        "batch whose results change while it is cancelled",
        CHANGES,
        "(batch.jobs = 0 OR batch.runs_again)",
        "batch.jobs = 0",
        UNCANCELLED,
    ),
    (
        "batch whose job runs when what it follows has changed",
        CHANGES,
        "OR (batch.runs_again AND tally.finishes)",
        "",
        RERUNS,
    ),
    (
        "batch whose job is there",
        STEPS,
        "WHERE one <> ALL (again || found.waiting || found.running || found.postponed)",
        "WHERE one <> ALL (again || found.postponed)",
        RERUNS,
    ),
    (
        "batch whose job somebody has locked",
        STEPS,
        "        postponed := found.postponed;\n",
        "",
        RERUNS,
    ),
    (
        "batch that is cancelled too late",
        CHANGES,
        "AND (batch.tree_completed_at IS NULL OR tally.reopens OR tally.grows)",
        "",
        RERUNS,
    ),
    (
        "workflow of which a job is requeued while it is deleted",
        "django_pgjobs/sql/requeue_jobs.sql",
        "        AND root.deleting_at IS NULL\n",
        "",
        RERUNS,
    ),
    (
        "workflow that is deleted while somebody retries it",
        "django_pgjobs/sql/mark_deleting.sql",
        "        FOR UPDATE SKIP LOCKED\n",
        "        FOR NO KEY UPDATE SKIP LOCKED\n",
        RERUNS,
    ),
    (
        "workflow that is retried while somebody begins to delete it",
        "django_pgjobs/sql/hold_tree.sql",
        "FOR KEY SHARE\n",
        "",
        RERUNS,
    ),
    (
        "batch that the job which has opened it adds to again",
        TERMS,
        "SELECT FROM asking WHERE asking.id = {it}.opener_id",
        "SELECT FROM asking WHERE FALSE",
        UNCANCELLED,
    ),
    (
        "result whose job runs again before it is taken up",
        STEPS,
        "                    AND (batch.is_cancelled OR (\n",
        "                    AND (TRUE OR (\n",
        REQUEUES,
    ),
    (
        "result whose job is requeued while it is taken up",
        STEPS,
        "            FOR KEY SHARE SKIP LOCKED;\n            is_locked",
        "            ;\n            is_locked",
        REQUEUES,
    ),
    (
        "result that is taken up while that of another batch is replaced",
        STEPS,
        "        batch_id := NULL;\n    END LOOP;\n",
        "        batch_id := NULL;\n        EXIT;\n    END LOOP;\n",
        REQUEUES,
    ),
    (
        "result that replaces half of one",
        FINISH,
        "    SET position = 0\n",
        "    SET position = page.position\n",
        REQUEUES,
    ),
    (
        "batch of nothing that replaces a list",
        STEPS,
        "AND (job.result IS NOT NULL OR batch.follows = 'each')",
        "",
        REQUEUES,
    ),
    (
        "batch whose jobs another retry has locked",
        "django_pgjobs/workflows/retrying.py",
        "done.touched.add(owners[row.id])\n",
        "pass\n            done.touched.update(owners.values())\n",
        REQUEUES,
    ),
    (
        "workflow half of which is deleted when a cancel is noted",
        "django_pgjobs/sql/list_deleting.sql",
        "%(marked)s::bigint[]) AND",
        "%(roots)s::bigint[]) AND",
        DELETIONS,
    ),
    (
        "workflow that seems to be deleted",
        "django_pgjobs/worker/process/batch_care.py",
        "with self._connection.transaction(), self._connection.cursor() as cursor:",
        "with self._connection.cursor() as cursor:",
        DELETIONS,
    ),
)
