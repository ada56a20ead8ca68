"""What `tests.mutations` takes out of the release of many dependants, and out of the pruner."""

from __future__ import annotations

RESOLVE = "django_pgjobs/migrations/sql/0001/resolve.sql"
RELEASES = "django_pgjobs/worker/claiming/releases.py"
MANY = ("tests/worker/test_many_dependants.py",)
PRUNER = ("tests/worker/test_pruner.py",)

# Name, file, what is replaced and by what, and the tests of which one must fail.
DEPENDANTS = (
    ("page of dependants", RESOLVE, "LIMIT most\n            ) AS page;", ") AS page;", MANY),
    ("dependants of one in turns", RESOLVE, "THEN 3 ELSE 2 END", "THEN 2 ELSE 3 END", MANY),
    (
        "dependants of who has not ended",
        RESOLVE,
        "WHERE job.id = one.id AND job.status IN ('ready', 'running')\n",
        "WHERE FALSE\n",
        (*MANY, "tests/worker/test_dependency_sweep.py"),
    ),
    (
        "cascade of dependants behind a page",
        RESOLVE,
        "FROM unnest(cancelled) AS one (id)\n",
        "FROM unnest(cancelled) AS one (id)\n                    WHERE FALSE\n",
        MANY,
    ),
    (
        "dependants of others at a commit",
        "django_pgjobs/migrations/sql/0001/recheck.sql",
        "1000, ARRAY[NEW.job_id - 1]",
        "1000",
        MANY,
    ),
    (
        "rest of the dependants in the pump",
        RELEASES,
        "dependencies.rest_of(rows) or None",
        "None",
        MANY,
    ),
    (
        "rest of the dependants of a cancel",
        "django_pgjobs/queries/jobs.py",
        "    dependencies.resolve_rest(cursor, rows)\n",
        "",
        MANY,
    ),
    (
        "drain that waits for dependants",
        "django_pgjobs/worker/upkeep/look.py",
        "not (outlook.is_releasing or outlook.is_settling)",
        "not outlook.is_settling",
        MANY,
    ),
    (
        "dependants that the server refuses, left to the sweep",
        RELEASES,
        "self._rest = None\n",
        "pass\n",
        MANY,
    ),
    (
        "failed job that somebody is to learn of",
        "django_pgjobs/sql/terms.py",
        "({it}.status = 'successful' OR (",
        "(TRUE OR (",
        PRUNER,
    ),
    (
        "failed job that somebody is to learn of before it is deleted by hand",
        "django_pgjobs/sql/delete_jobs.sql",
        "                AND {old.teaches_nobody}\n",
        "",
        ("tests/admin/test_bulk_spared.py",),
    ),
    (
        "end of a job before it is requeued",
        "django_pgjobs/queries/jobs.py",
        "not wait for the next one.\n    dependencies.resolve_dependencies(cursor, ids)\n",
        "not wait for the next one.\n",
        MANY,
    ),
    (
        "groups of a limited queue with a free place",
        "django_pgjobs/worker/claiming/places.py",
        "self._groups.expect(g for g in self._listing.groups if g.queue_name == queue_name)",
        "pass",
        ("tests/worker/test_limited_queues.py",),
    ),
    (
        "page of a sweep",
        "django_pgjobs/sql/sweep_dependencies.sql",
        "(SELECT count(*)::integer FROM page)",
        "2147483647",
        MANY,
    ),
    (
        "pause for a short retention",
        "django_pgjobs/worker/process/pruner.py",
        "self.wait(self._pause)",
        "self.wait(PASS_SECONDS)",
        PRUNER,
    ),
    (
        "minute of everything but jobs",
        "django_pgjobs/worker/process/pruner.py",
        "does_all = does_all or began >= self._rest_due",
        "does_all = True",
        PRUNER,
    ),
    (
        "pass at the end of a drain",
        "django_pgjobs/worker/process/pruner.py",
        "if is_leader or is_awaited:",
        "if is_leader:",
        PRUNER,
    ),
)
