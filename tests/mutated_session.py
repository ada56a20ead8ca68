"""What `tests.mutations` takes out of the care for sessions and servers."""

from __future__ import annotations

QUERIES = "django_pgjobs/queries/"
WORKER = "django_pgjobs/worker/"

HOUSEKEEPING = ("tests/worker/test_housekeeping.py",)
SESSIONS = ("tests/worker/test_sessions.py",)
FAILOVER = ("tests/process/test_failover.py",)
INNOCENT = "tests/worker/test_innocent_rows.py::"
SCHEMA = ("tests/process/test_schema.py",)

# Name, file, what is replaced and by what, and the tests that notice.
SESSION_CARE = (
    (
        "use of a session that is noted",
        f"{QUERIES}sessions.py",
        "            self.is_used = True\n            try",
        "            try",
        HOUSEKEEPING,
    ),
    (
        "reset after a failed attempt",
        f"{WORKER}running/calling.py",
        " or outcome.kind is not Kind.DONE",
        "",
        (
            "tests/worker/test_housekeeping.py::test_an_attempt_that_failed_is_cleaned_up_after_whatever_its_task_promises",
        ),
    ),
    (
        "pooled connection that is given back",
        f"{WORKER}running/housekeeping.py",
        "than there are threads.\n        connection.close()",
        "than there are threads.\n        pass",
        ("tests/worker/test_pooled.py",),
    ),
    (
        "error in the encoding of the database",
        f"{WORKER}claiming/refused.py",
        "if is_untranslatable(error)",
        "if False",
        ("tests/worker/test_other_encodings.py",),
    ),
    (
        "session of a job that the server refused",
        f"{WORKER}running/housekeeping.py",
        "        usage.is_stale\n        or raw.closed",
        "        raw.closed",
        ("tests/worker/test_pooled.py",),
    ),
    (
        "own session that is given up",
        f"{QUERIES}connection.py",
        "            self.close()\n            raise SessionUnusable(f",
        "            raise SessionUnusable(f",
        SESSIONS,
    ),
    (
        "altered column that the claim returns",
        f"{QUERIES}errors.py",
        "error.sqlstate in STALE or error.diag.source_function == PLAN_CHECK",
        "error.sqlstate in STALE",
        SESSIONS,
    ),
    (
        "what the schema lacks",
        f"{QUERIES}errors.py",
        "Trouble.MISFIT if is_misfit else Trouble.REFUSED",
        "Trouble.REFUSED",
        (f"{INNOCENT}test_an_outcome_waits_for_what_the_schema_lacks",),
    ),
    (
        "right that the role lacks",
        f"{QUERIES}errors.py",
        "code == FORBIDDEN and error.diag.source_function != RIGHTS_CHECK",
        "code == FORBIDDEN",
        ("tests/worker/test_roles.py::test_an_outcome_waits_for_a_right_that_the_role_lacks",),
    ),
    (
        "row that is found before it is blamed",
        f"{WORKER}turns/careful.py",
        "with connection.transaction():",
        "if True:",
        (f"{INNOCENT}test_nobody_comes_between_the_row_that_is_found_and_what_is_done_with_it",),
    ),
    (
        "row that is refused alone twice",
        f"{WORKER}turns/careful.py",
        "if found == suspected or trouble_of(error) is not Trouble.REFUSED:",
        "if True:",
        (f"{INNOCENT}test_a_row_that_comes_before_the_one_that_is_found_is_blamed_itself",),
    ),
    (
        "short pause after a lock",
        f"{WORKER}turns/refusals.py",
        "first = LOCKED_SECONDS if is_locked else JOB_SECONDS[0]",
        "first = JOB_SECONDS[0]",
        (f"{INNOCENT}test_a_job_whose_change_waited_for_a_lock_is_left_alone_for_a_moment_only",),
    ),
    (
        "row that row security refuses",
        f"{QUERIES}errors.py",
        "error.diag.source_function != RIGHTS_CHECK",
        "False",
        ("tests/worker/test_roles.py::test_a_row_that_row_security_refuses_is_to_blame",),
    ),
    ("look for a standby", f"{QUERIES}connection.py", "if is_standby:", "if False:", FAILOVER),
    (
        "no new session while a commit hangs",
        f"{QUERIES}connection.py",
        'if last_wait == "SyncRep":',
        "if False:",
        ("tests/worker/test_hanging_commits.py",),
    ),
    (
        "primary of several hosts",
        f"{QUERIES}own_settings.py",
        '{"target_session_attrs": "primary"}',
        "{}",
        FAILOVER,
    ),
    (
        "timeout for idle sessions",
        f"{QUERIES}own_settings.py",
        '    "idle_session_timeout": "0",\n',
        "",
        SESSIONS,
    ),
    (
        "migrations that are not applied",
        f"{QUERIES}server.py",
        "if applied is not None and missing:",
        "if False:",
        SCHEMA,
    ),
)
