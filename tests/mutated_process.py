"""What `tests.mutations` takes out of the life and the end of a worker's process."""

from __future__ import annotations

WORKER = "django_pgjobs/worker/"
SQL = "django_pgjobs/sql/"

# Name, file, what is replaced and by what, and the tests of which one must fail.
PROCESS = (
    (
        "losses of a broken process",
        f"{WORKER}runner.py",
        "self._farewell.loses_jobs = True\n        self._exit_code",
        "self._exit_code",
        ("tests/worker/test_shutdown.py",),
    ),
    (
        "attempts that losses leave",
        f"{WORKER}run.py",
        "most + row.lost_count)",
        "most)",
        ("tests/worker/test_rescue.py",),
    ),
    (
        "bound of interruptions",
        f"{SQL}give_back_jobs.sql",
        "WHEN job.interruptions >= outcome.counted_from THEN job.attempts\n",
        "WHEN outcome.counted_from = 0 THEN job.attempts\n",
        ("tests/worker/test_give_back.py",),
    ),
    (
        "log lines that raise",
        f"{WORKER}safe_log.py",
        "        except BaseException:\n            if",
        "        except JobInterrupt:\n            if",
        ("tests/worker/test_safe_log.py",),
    ),
    (
        "signal handlers of forked processes",
        f"{WORKER}shutdown.py",
        "_installed.pop().leave_to_parent()",
        "_installed.pop()",
        ("tests/process/test_forks.py",),
    ),
    (
        "statements read at import",
        "django_pgjobs/sql/__init__.py",
        "TEXTS[name].splitlines()",
        '(Path(__file__).parent / f"{name}.sql").read_text().splitlines()',
        ("tests/process/test_upgrade_on_disk.py",),
    ),
    (
        "leases from before the clock was set back",
        f"{SQL}cut_leases.sql",
        "statement_timestamp() + lease.length + lease.length",
        "statement_timestamp() + lease.length + interval '1 year'",
        ("tests/worker/test_clock_set_back.py",),
    ),
    (
        "slots that can be had",
        f"{WORKER}executor.py",
        "            if not self._threads:\n                raise\n",
        "            raise\n",
        ("tests/worker/test_scarce_threads.py",),
    ),
    (
        "one child after the other",
        f"{WORKER}supervisor.py",
        "all(child.is_ready or child.is_done for child in self._children)",
        "True",
        ("tests/process/test_supervisor.py",),
    ),
    (
        "mercy for those beside a job that kills",
        f"{SQL}rescue_jobs.sql",
        "NOT counted.together\n",
        "TRUE\n",
        ("tests/worker/test_rescue.py",),
    ),
    (
        "bound of that mercy",
        f"{SQL}rescue_jobs.sql",
        "counted.most::bigint * 3",
        "counted.most::bigint * 1000",
        ("tests/worker/test_rescue.py",),
    ),
)
