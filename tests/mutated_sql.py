"""What `tests.mutations` takes out of the protection of statements, and of the rights of roles."""

from __future__ import annotations

SEARCH_PATH = ("tests/test_search_path.py", "tests/worker/test_search_path.py")
ROLES = ("tests/test_grants.py", "tests/worker/test_roles.py")

# Name, file, what is replaced, by what, and the tests that guard it.
STATEMENTS = (
    (
        "search path of own connections",
        "django_pgjobs/queries/connection.py",
        '    "search_path": "pg_catalog, pg_temp",\n',
        "",
        SEARCH_PATH,
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
        "ORDER BY maximum.pattern = {it} DESC, length",
        "ORDER BY length",
        ("tests/admin/test_limits.py",),
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
