"""What `tests.mutations` takes out of the protection of statements, and of the rights of roles."""

from __future__ import annotations

SEARCH_PATH = ("tests/test_search_path.py", "tests/worker/test_search_path.py")
ROLES = ("tests/test_grants.py", "tests/worker/test_roles.py")

# Name, file, what is replaced, by what, and the tests that guard it.
STATEMENTS = (
    (
        "second look of those who wait for other jobs",
        "django_pgjobs/migrations/0004_dependencies.py",
        "WHEN serialization_failure THEN\n                        -- A row",
        "WHEN division_by_zero THEN\n                        -- A row",
        ("tests/races/test_dependencies.py",),
    ),
    (
        "second look of a commit with a dependency",
        "django_pgjobs/migrations/0004_dependencies.py",
        "EXCEPTION WHEN serialization_failure THEN",
        "EXCEPTION WHEN division_by_zero THEN",
        ("tests/races/test_moved_rows.py",),
    ),
    (
        "savepoint of a change that is crossed",
        "django_pgjobs/queries/crossing.py",
        "with transaction.atomic(using=cursor.db.alias):",
        "if transaction:",
        ("tests/races/test_moved_rows.py",),
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
        "django_pgjobs/queries/connection.py",
        '    "search_path": "pg_catalog, pg_temp",\n',
        "",
        SEARCH_PATH,
    ),
    (
        "operator of a claim",
        "django_pgjobs/sql/claim_jobs.sql",
        "END OPERATOR(pg_catalog.||) %(worker_name)s",
        "END || %(worker_name)s",
        SEARCH_PATH,
    ),
    (
        "functions of PostgreSQL",
        "django_pgjobs/sql/__init__.py",
        'text = CALL.sub("pg_catalog.", text)',
        "pass",
        SEARCH_PATH,
    ),
    (
        "schema in a job that changed its path",
        "django_pgjobs/worker/runner.py",
        "name_schema(connection.schema)",
        "name_schema(None)",
        SEARCH_PATH,
    ),
    (
        "no compilation in functions",
        "django_pgjobs/migrations/0009_functions.py",
        "ALTER FUNCTION pgjobs_recheck_v1() SET jit = off;",
        "",
        ("tests/test_raw_sql.py",),
    ),
    (
        "right of a worker on its keyed claims",
        "django_pgjobs/grants.py",
        '"pgjobs_keyed_claim": "SELECT, INSERT, UPDATE"',
        '"pgjobs_keyed_claim": "SELECT"',
        ROLES,
    ),
    (
        "right of a web process on dependencies",
        "django_pgjobs/grants.py",
        '"pgjobs_dependency": "SELECT, INSERT, DELETE",\n    "pgjobs_worker": "SELECT, UPDATE (',
        '"pgjobs_dependency": "SELECT, INSERT",\n    "pgjobs_worker": "SELECT, UPDATE (',
        ("tests/worker/test_roles.py",),
    ),
)
