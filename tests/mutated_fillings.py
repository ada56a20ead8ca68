"""What `tests.mutations` takes out of the filling of rows: name, file, old, new, tests."""

from __future__ import annotations

from tests.mutated_claims import SQL, WORKER

FILE = f"{SQL}fill_in_jobs.sql"
TESTS = "tests/worker/test_filling.py::"
KEYS = "tests/worker/test_filling_keys.py::"
TOKENS = "tests/worker/test_filling_tokens.py::"
STRAY = "tests/worker/test_stray_rows.py::"

FILLINGS = (
    (
        "rows that lack what their tasks declare",
        f"{WORKER}process/worker_process.py",
        "attempts = split(attempts, self._done, on_next=self.pump.note_move)",
        "pass",
        (f"{TESTS}test_a_concurrency_key_holds_for_plain_inserts",),
    ),
    (
        "flag of an enqueue",
        f"{SQL}write_terms.py",
        '"is_declared": "TRUE"',
        '"is_declared": "FALSE"',
        (f"{TESTS}test_every_way_to_enqueue_sets_the_flag",),
    ),
    (
        "tokens of a row that is only given its keys",
        f"{SQL}spend_tokens.sql",
        "        AND (job.is_declared OR job.task_path <> ALL (%(declaring_paths)s::text[]))\n",
        "",
        (f"{TOKENS}test_a_row_pays_when_it_runs_and_not_when_it_is_given_its_keys",),
    ),
    (
        "tokens of expired jobs",
        f"{SQL}spend_tokens.sql",
        "        AND COALESCE(job.expires_at > job.last_attempted_at, TRUE)\n",
        "",
        (f"{TOKENS}test_a_job_that_has_expired_when_it_is_claimed_takes_none",),
    ),
    (
        "token of a filling",
        FILE,
        "AND job.id = filling.id AND job.claim = filling.claim",
        "AND job.id = filling.id",
        (f"{TESTS}test_a_filling_that_comes_too_late_changes_nothing",),
    ),
    (
        "claim that does not count",
        FILE,
        "WHEN filling.until_claimed AND job.attempts = 1 THEN 0\n",
        "",
        (f"{TESTS}test_a_key_that_is_free_at_the_claim_is_held_until_it_is_claimed_to_run",),
    ),
    (
        "claim that is not the first",
        FILE,
        "WHEN filling.until_claimed AND job.attempts = 1 THEN 0",
        "WHEN filling.until_claimed THEN 0",
        (f"{TESTS}test_a_claim_that_is_not_the_first_counts",),
    ),
    (
        "twins that come together",
        FILE,
        "OVER (PARTITION BY job.task_path, given.unique_key)",
        "OVER (PARTITION BY given.id)",
        (f"{TESTS}test_of_twins_of_one_claim_the_oldest_stays",),
    ),
    (
        "unique key that somebody just took",
        f"{WORKER}claiming/writing.py",
        "is not Trouble.REFUSED or _is_overtaken(entry, error):",
        "is not Trouble.REFUSED:",
        (f"{KEYS}test_a_unique_key_that_is_taken_meanwhile_fails_nothing",),
    ),
    (
        "rows of a worker that knows nothing of them",
        f"{WORKER}upkeep/unheld.py",
        "math.inf if self._state.stopping else self._sweep_at",
        "math.inf",
        (f"{STRAY}test_a_row_that_says_it_runs_is_taken_over",),
    ),
    (
        "outcome of a row that nothing may change for a while",
        f"{WORKER}claiming/completer.py",
        "        self.refused.keep(attempt, outcome)\n\n",
        "        self._state.let_go(attempt)\n\n",
        ("tests/worker/test_completer.py",),
    ),
    (
        "last try of refused outcomes",
        f"{WORKER}claiming/pump.py",
        "            write_last(self._completer, self._connection)\n",
        "            pass\n",
        ("tests/worker/test_refused_outcomes.py",),
    ),
    (
        "outcome of a later attempt that waits",
        f"{WORKER}claiming/completer.py",
        "other[0].claimed_at > attempt.claimed_at",
        "False",
        ("tests/worker/test_completer.py",),
    ),
    (
        "lost jobs behind those that cannot be rescued",
        f"{WORKER}process/leases.py",
        "known=self._left_alone()",
        "known=()",
        ("tests/worker/test_refused_rescue.py",),
    ),
    (
        "job of a lost claim that cannot be given back for a while",
        f"{WORKER}upkeep/unheld.py",
        "known = [*held, *self._refusals.passed_over()]",
        "known = held",
        ("tests/worker/test_duties.py",),
    ),
    (
        "job that may have killed its worker",
        f"{WORKER}claiming/completer.py",
        "self._state.unwritable.add(attempt.id)\n                self",
        "self",
        ("tests/worker/test_completer.py::test_a_job_left_to_the_rescue_is_not_given_back",),
    ),
    (
        "fillings that wait for unique keys",
        f"{WORKER}claiming/writing.py",
        "                self._completer.pause_keys()\n                break\n",
        "",
        (f"{KEYS}test_keys_of_a_transaction_under_way_rest_together",),
    ),
    (
        "worker that leaves with a filling",
        f"{WORKER}claiming/completer.py",
        " if outcome.control is None}",
        "}",
        (f"{KEYS}test_a_worker_that_leaves_does_not_wait_for_a_key",),
    ),
    (
        "worker that stops and waits for a key",
        f"{WORKER}claiming/completer.py",
        "            self._give_up_keys()\n",
        "            pass\n",
        (f"{KEYS}test_a_worker_that_stops_gives_back_what_waits_for_a_key",),
    ),
)
