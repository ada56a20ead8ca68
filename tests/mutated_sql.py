"""What `tests.mutations` takes out of the protection of statements, and of the rights of roles."""

from __future__ import annotations

SEARCH_PATH = ("tests/test_search_path.py", "tests/worker/test_search_path.py")
ROLES = ("tests/test_grants.py", "tests/worker/test_roles.py")
LANE = "django_pgjobs/migrations/sql/0001/lane.sql"
LANE_TESTS = ("tests/worker/test_lane.py",)

# Name, file, what is replaced, by what, and the tests that guard it.
STATEMENTS = (
    (
        "second look of those who wait for other jobs",
        "django_pgjobs/migrations/sql/0001/resolve.sql",
        "WHEN serialization_failure THEN\n                -- A row",
        "WHEN division_by_zero THEN\n                -- A row",
        ("tests/races/test_dependencies.py",),
    ),
    (
        "second look of a commit with a dependency",
        "django_pgjobs/migrations/sql/0001/recheck.sql",
        "EXCEPTION WHEN serialization_failure THEN",
        "EXCEPTION WHEN division_by_zero THEN",
        ("tests/races/test_moved_rows.py",),
    ),
    (
        "dependency that is loaded before its job",
        "django_pgjobs/migrations/sql/0001/recheck.sql",
        "WHERE job.id = NEW.job_id",
        "WHERE job.id = NEW.job_id\n        ) AND FALSE AND EXISTS (SELECT",
        ("tests/worker/test_loaded_dump.py",),
    ),
    (
        "savepoint of a change that is crossed",
        "django_pgjobs/queries/crossing.py",
        "with transaction.atomic(using=cursor.db.alias):",
        "if transaction:",
        ("tests/races/test_moved_rows.py",),
    ),
    (
        "parts enter the sums of statistics once",
        "django_pgjobs/sql/roll_up_statistics.sql",
        "WHERE %(period)s::text = 'part'\n)",
        ")",
        ("tests/test_statistic_sums.py",),
    ),
    (
        "what is in the sums of statistics is read there only",
        "django_pgjobs/sql/number_terms.py",
        "WHERE part.period = 'part'",
        "WHERE {part.is_of_any_period}",
        ("tests/test_statistic_sums.py",),
    ),
    (
        "text with a NUL in an array",
        "django_pgjobs/queries/arrays.py",
        ' or between in "".join(texts):',
        ":",
        ("tests/test_array_text.py",),
    ),
    (
        "second look of a change that is crossed",
        "django_pgjobs/queries/crossing.py",
        "is_crossed = isinstance(error.__cause__, SerializationFailure)",
        "is_crossed = not isinstance(error.__cause__, SerializationFailure)",
        ("tests/races/test_moved_rows.py",),
    ),
    *(
        (
            f"second look of {name}",
            f"django_pgjobs/queries/{module}.py",
            f'fetch_again_if_crossed(cursor, "{name}"',
            f'fetch(cursor, "{name}"',
            ("tests/races/test_moved_rows.py",),
        )
        for module, name in (
            ("jobs", "cancel_jobs"),
            ("jobs", "requeue_jobs"),
            ("jobs", "reschedule_jobs"),
            ("bulk", "discard_jobs"),
            ("bulk", "move_jobs"),
            ("bulk", "reset_attempts"),
            ("bulk", "delete_jobs"),
        )
    ),
    (
        "note of a refusal that is over",
        "django_pgjobs/sql/promote_due_jobs.sql",
        "CASE WHEN starts_with(job.note, 'passed over: ') THEN '' ELSE job.note END",
        "job.note",
        ("tests/worker/test_promote.py",),
    ),
    (
        "search path of own connections",
        "django_pgjobs/queries/own_settings.py",
        '    "search_path": "pg_catalog, pg_temp",\n',
        "",
        (
            "tests/worker/test_search_path.py::test_own_connections_search_no_schema_but_postgresqls",
        ),
    ),
    (
        "pause that is over",
        "django_pgjobs/sql/terms.py",
        "({it}.resume_at IS NULL OR {it}.resume_at > statement_timestamp())",
        "({it}.resume_at IS NULL OR TRUE)",
        ("tests/test_terms.py",),
    ),
    (
        "limit of the key itself before one of a pattern",
        "django_pgjobs/sql/terms.py",
        "WHERE exact.pattern = {it}",
        "WHERE FALSE",
        ("tests/test_explain_limits.py", "tests/admin/test_limits.py"),
    ),
    (
        "longest pattern of a limit",
        "django_pgjobs/sql/terms.py",
        " ORDER BY length(maximum.pattern) DESC",
        " ORDER BY length(maximum.pattern)",
        ("tests/test_explain_limits.py", "tests/admin/test_limits.py"),
    ),
    (
        "operator of a claim",
        "django_pgjobs/sql/claim_terms.py",
        "END OPERATOR(pg_catalog.||) %(worker_name)s",
        "END || %(worker_name)s",
        ("tests/test_search_path.py::test_a_statement_uses_nobody_elses_operators",),
    ),
    (
        "functions of PostgreSQL",
        "django_pgjobs/sql/__init__.py",
        'text = CALL.sub("pg_catalog.", text)',
        "pass",
        ("tests/test_search_path.py::test_a_statement_names_the_schema_of_everything",),
    ),
    (
        "schema in a job that changed its path",
        "django_pgjobs/worker/process/worker_process.py",
        "name_schema(connection.schema)",
        "name_schema(None)",
        ("tests/worker/test_search_path.py::test_a_job_may_change_its_search_path",),
    ),
    (
        "no compilation in functions",
        "django_pgjobs/migrations/sql/0001/recheck.sql",
        "SET enable_seqscan = off SET jit = off",
        "SET enable_seqscan = off",
        ("tests/test_raw_sql.py::test_functions_that_read_tables_compile_nothing",),
    ),
    (
        "lane of a new job",
        LANE,
        "BEFORE INSERT OR UPDATE OF concurrency_key, rate_limit_keys, lane",
        "BEFORE UPDATE OF concurrency_key, rate_limit_keys, lane",
        LANE_TESTS,
    ),
    (
        "lane of other keys",
        LANE,
        "BEFORE INSERT OR UPDATE OF concurrency_key, rate_limit_keys, lane",
        "BEFORE INSERT",
        LANE_TESTS,
    ),
    (
        "lane that somebody wrote",
        LANE,
        "\n        OR NEW.lane IS NOT NULL",
        "",
        LANE_TESTS,
    ),
    (
        "lane of plain jobs, which calls nothing",
        LANE,
        "OR NEW.lane IS NOT NULL",
        "OR TRUE",
        LANE_TESTS,
    ),
    (
        "short locks of a migration",
        "django_pgjobs/operations.py",
        "limit_waits(cursor, LOCK_SECONDS)",
        "limit_waits(cursor, 0)",
        ("tests/test_later_migrations.py",),
    ),
    (
        "rest of an interrupted index",
        "django_pgjobs/operations.py",
        "if is_valid is False:",
        "if is_valid is None:",
        ("tests/test_later_migrations.py",),
    ),
    (
        "index in its own time",
        "django_pgjobs/queries/locks.py",
        '_set_timeouts(cursor, "0", "0", is_local=False)\n    try:',
        '_set_timeouts(cursor, "50ms", "50ms", is_local=False)\n    try:',
        ("tests/test_later_migrations.py",),
    ),
    (
        "right of a worker on its keyed claims",
        "django_pgjobs/management/grants.py",
        '"pgjobs_keyed_claim": "SELECT, INSERT, UPDATE"',
        '"pgjobs_keyed_claim": "SELECT"',
        ROLES,
    ),
    (
        "right of a web process on dependencies",
        "django_pgjobs/management/grants.py",
        '"pgjobs_dependency": "SELECT, INSERT, DELETE",\n    "pgjobs_worker": "SELECT, UPDATE (',
        '"pgjobs_dependency": "SELECT, INSERT",\n    "pgjobs_worker": "SELECT, UPDATE (',
        ("tests/worker/test_roles.py",),
    ),
)
