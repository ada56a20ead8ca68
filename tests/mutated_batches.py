"""What `tests.mutations` takes out of the counting of batches."""

from __future__ import annotations

SQL = "django_pgjobs/migrations/sql/0001"
SETTLE = f"{SQL}/settle.sql"
CHANGES = f"{SQL}/batch_changes.sql"
CANCELS = f"{SQL}/batch_cancels.sql"
ENDINGS = f"{SQL}/batch_endings.sql"
PLAIN_SQL = f"{SQL}/batch_plain_sql.sql"
STEPS = f"{SQL}/batch_steps.sql"
FINISH = "django_pgjobs/sql/finish_successful_in_batches.sql"
TERMS = "django_pgjobs/sql/terms.py"
SETTLING = "django_pgjobs/worker/claiming/settling.py"
WORKFLOWS = ("tests/test_workflows.py",)
CONTROL = ("tests/test_workflow_control.py",)
WORKER = ("tests/worker/test_batches.py",)
RECOUNT = f"{SQL}/recount.sql"
CARE = ("tests/worker/test_batch_care.py",)
MISHAPS = ("tests/test_workflow_mishaps.py",)
KEYS = ("tests/test_workflow_keys.py",)
RACES = ("tests/races/test_batches.py",)
RETRIES = ("tests/test_workflow_retry.py",)
COUNTING = ("tests/test_workflow_counting.py",)
CANCELLED = ("tests/races/test_batch_cancels.py",)
REQUEUES = ("tests/races/test_batch_requeues.py",)

# Name, file, what is replaced and by what, and the tests of which one must fail.
BATCHES = (
    (
        "batch that is sealed beside who adds",
        TERMS,
        " FOR KEY SHARE OF batch",
        "",
        RACES,
    ),
    (
        "batch whose wish to seal refuses who adds",
        TERMS,
        " WHERE change.batch_id = {it}.id AND (change.seals OR change.cancels))",
        " WHERE change.batch_id = {it}.id AND FALSE)",
        RACES,
    ),
    (
        "batch that its running job adds to",
        TERMS,
        "SELECT FROM asking WHERE asking.batch_id = {it}.id",
        "SELECT FROM asking WHERE FALSE",
        WORKFLOWS,
    ),
    (
        "batch and a job that adds to it",
        TERMS,
        "AND running.claim = %(claim)s::bigint\n    FOR KEY SHARE\n",
        "AND running.claim = %(claim)s::bigint\n",
        RACES,
    ),
    (
        "batch that is sealed only if nobody adds",
        CHANGES,
        "            FOR UPDATE SKIP LOCKED\n        );\n    END IF",
        "        );\n    END IF",
        RACES,
    ),
    (
        "batch that only one counts at a time",
        CHANGES,
        "        ORDER BY batch.id\n        FOR NO KEY UPDATE SKIP LOCKED\n    ) AS taken",
        "        ORDER BY batch.id\n    ) AS taken",
        (*RACES, "tests/races/test_batch_model.py"),
    ),
    (
        "batch whose wish to seal comes while it is counted",
        CHANGES,
        "(change.seals OR change.predecessors <> 0) AND change.batch_id = ANY (unsealed)",
        "FALSE",
        RACES,
    ),
    (
        "batch in a transaction with an old snapshot",
        SETTLE,
        "IF current_setting('transaction_isolation') <> 'read committed' THEN",
        "IF FALSE THEN",
        WORKER,
    ),
    (
        "batch that waits for its parts",
        ENDINGS,
        "AND batch.sealed_at IS NOT NULL AND batch.open_parts <= 0",
        "AND batch.sealed_at IS NOT NULL",
        WORKFLOWS,
    ),
    (
        "batch whose followers are still to open again",
        ENDINGS,
        "WHERE noted.batch_id = child.id AND noted.predecessors <> 0",
        "WHERE FALSE",
        REQUEUES,
    ),
    (
        "batch that is opened again by a requeue",
        "django_pgjobs/sql/requeue_jobs.sql",
        "WHERE taken.status = 'cancelled'), TRUE",
        "WHERE taken.status = 'cancelled'), FALSE",
        REQUEUES,
    ),
    (
        "batch whose part was open again, and is complete by now",
        CHANGES,
        "bool_or(gone.reopens OR gone.parts > 0) AS reopens",
        "bool_or(gone.reopens) AS reopens",
        REQUEUES,
    ),
    (
        "batch above one that was open again, and is complete by now",
        CHANGES,
        "bool_or(gone.children > 0) AS grows",
        "FALSE AS grows",
        REQUEUES,
    ),
    (
        "batch that what failed before cancels",
        CHANGES,
        "tally.fails AND batch.failed > 0",
        "batch.failed > 0",
        ("tests/worker/test_batch_care.py",),
    ),
    (
        "batch after a failure above it",
        CHANGES,
        "AND (batch.runs_after_failure OR batch.failed_predecessors <= 0)",
        "",
        WORKFLOWS,
    ),
    (
        "batch and what it makes of long results",
        FINISH,
        "            > %(max_streamed)s::integer AS is_long",
        "            > %(max_streamed)s::integer AND FALSE AS is_long",
        WORKER,
    ),
    (
        "batch and a long result with a large call",
        FINISH,
        "sum(json_array_length(source.result) * source.weight)",
        "sum(json_array_length(source.result))",
        WORKER,
    ),
    (
        "batch and pages of a large call",
        STEPS,
        "GREATEST(page_size / batch.weight, 1)",
        "page_size",
        WORKER,
    ),
    (
        "batch whose counting fails an atomic job",
        "django_pgjobs/worker/running/calling.py",
        "if is_of_the_moment(error) or connections[database].needs_rollback:",
        "if True:",
        ("tests/worker/test_atomic.py",),
    ),
    (
        "batch that a cancelled one is made of",
        CANCELS,
        "child.parent_id = ANY (stopped) AND child.cancel_requested_at IS NULL",
        "FALSE",
        CONTROL,
    ),
    (
        "batch whose jobs were locked when it was cancelled",
        CANCELS,
        "        ) IS NOT NULL OR (",
        "        ) IS NOT NULL AND FALSE OR (",
        WORKER,
    ),
    (
        "batch of a cancel of its job",
        "django_pgjobs/sql/cancel_jobs.sql",
        "    {ended.changes_of_batches}\n    -- Nobody",
        "    INSERT INTO pgjobs_batch_change (batch_id) SELECT 1 WHERE FALSE\n    -- Nobody",
        WORKER,
    ),
    (
        "batch of which nobody is told that a job was cancelled",
        "django_pgjobs/sql/cancel_jobs.sql",
        "    RETURNING pg_notify('pgjobs_control', 'batches')\n",
        "",
        WORKER,
    ),
    (
        "batch in the list of what is left",
        "django_pgjobs/worker/upkeep/batches.py",
        "            self._pump.settle(ids)\n",
        "            pass\n",
        WORKER,
    ),
    (
        "batch whose jobs are not known yet",
        SETTLING,
        "        # Before the batches are taken out, so",
        "        self._due = {}\n        # Before the batches are taken out, so",
        CARE,
    ),
    (
        "batch that raises alone",
        SETTLING,
        "            self._mark_broken(batch_id, str(refusal).strip(), connection)\n",
        "",
        WORKER,
    ),
    (
        "batch that is counted again while something is noted",
        RECOUNT,
        "                WHERE change.batch_id = batch.id\n                LIMIT 1\n",
        "                WHERE FALSE\n                LIMIT 1\n",
        CARE,
    ),
    (
        "batch whose predecessors somebody has changed",
        RECOUNT,
        "CASE\n                    WHEN above.is_moved THEN above.open - batch.open_predecessors\n",
        "CASE\n                    WHEN above.is_moved THEN 0\n",
        CARE,
    ),
    (
        "batch that is broken for ever",
        "django_pgjobs/worker/process/batch_care.py",
        "                self._mend(batch_id)\n",
        "                pass\n",
        CARE,
    ),
    (
        "workflow whose owner was not told",
        "django_pgjobs/worker/process/batch_care.py",
        "        return not errors\n",
        "        return True\n",
        CARE,
    ),
    (
        "workflow that is told of at each pass",
        "django_pgjobs/sql/list_ended_trees.sql",
        "COALESCE(root.told_at, '-infinity')",
        "'-infinity'::timestamptz",
        CARE,
    ),
    (
        "workflow that is deleted while it is open",
        "django_pgjobs/workflows/deleting.py",
        "    if found.tree_completed_at is None:\n",
        "    if False:\n",
        MISHAPS,
    ),
    (
        "workflow that is deleted before its jobs",
        "django_pgjobs/sql/list_empty_trees.sql",
        "        LIMIT 1\n    ) IS NULL\n",
        "        LIMIT 0\n    ) IS NULL\n",
        MISHAPS,
    ),
    (
        "dedupe key of a batch that is taken",
        "django_pgjobs/sql/add_once_to_batch.sql",
        "    WHERE fresh.id IN (SELECT taken.job_id FROM taken)\n",
        "",
        RACES,
    ),
    (
        "dedupe key of a batch that was given",
        "django_pgjobs/workflows/inserting.py",
        '    if once.on_conflict == "raise" and met:\n',
        "    if False:\n",
        KEYS,
    ),
    (
        "batch that plain SQL adds to",
        PLAIN_SQL,
        "    INSERT INTO home.pgjobs_batch_change (batch_id, jobs) VALUES (NEW.batch_id, 1);\n",
        "",
        WORKFLOWS,
    ),
    (
        "batch cancelled beside who adds to it",
        CHANGES,
        "(change.seals OR change.predecessors <> 0)\n                LIMIT 1",
        "(change.seals OR change.cancels)\n                LIMIT 1",
        CANCELLED,
    ),
    (
        "batch opened below one while that is cancelled",
        CHANGES,
        "(tally.cancels OR tally.grows) AND batch.cancel_requested_at IS NOT NULL AS stops",
        "tally.cancels AS stops",
        CANCELLED,
    ),
    (
        "batch and what fails beside what follows it",
        ENDINGS,
        "WHERE part.parent_id = batch.id AND part.follows IS NULL AND part.tree_failed",
        "WHERE TRUE",
        COUNTING,
    ),
    (
        "batch that was cancelled before it had jobs",
        ENDINGS,
        "                OR batch.cancel_requested_at IS NOT NULL\n",
        "",
        RETRIES,
    ),
    (
        "batch whose results came while it was cancelled",
        FINISH,
        "follower.is_cancelled OR former.has_page AS is_kept",
        "former.has_page AS is_kept",
        RETRIES,
    ),
    (
        "batch whose job is run again",
        STEPS,
        "WHERE job.batch_id = ANY (former) AND job.source_id = 0\n        FOR UPDATE",
        "WHERE FALSE\n        FOR UPDATE",
        RETRIES,
    ),
    (
        "batch of elements in order",
        FINISH,
        "    ORDER BY item.source_id, item.place\n",
        "    ORDER BY item.source_id, item.place DESC\n",
        ("tests/test_workflow_joins.py",),
    ),
    (
        "batch of jobs that have expired",
        "django_pgjobs/sql/expire_jobs.sql",
        "    {ended.changes_of_batches}",
        "    INSERT INTO pgjobs_batch_change (batch_id) SELECT 1 WHERE FALSE",
        ("tests/worker/test_batch_ends.py",),
    ),
)
