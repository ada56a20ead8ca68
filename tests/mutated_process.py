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
        "_without(TEXTS[name], left_out)",
        '_without((Path(__file__).parent / f"{name}.sql").read_text(), left_out)',
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
    (
        "frozen children",
        f"{WORKER}supervisor.py",
        "if silent > 2 * self._options.lease + SILENT_SECONDS:",
        "if silent > 1e9:",
        ("tests/worker/test_supervisor.py",),
    ),
    (
        "signs of life that are no readiness",
        f"{WORKER}supervisor.py",
        "if READY in said:",
        "if said:",
        ("tests/worker/test_supervisor.py",),
    ),
    (
        "looks for signs of life",
        f"{WORKER}supervisor.py",
        "            waits.append(LOOK_SECONDS)\n",
        "            pass\n",
        ("tests/worker/test_supervisor.py",),
    ),
    (
        "places that were given up",
        f"{WORKER}supervisor.py",
        "child.is_done, child.failures = False, MAX_FAILURES",
        "child.failures = MAX_FAILURES",
        ("tests/worker/test_supervisor.py",),
    ),
    (
        "pauses of the one who looks",
        f"{WORKER}stillness.py",
        "min(now - self._looked_at, 2 * LOOK_SECONDS)",
        "now - self._looked_at",
        ("tests/worker/test_supervisor.py",),
    ),
    (
        "parts that stand still",
        f"{WORKER}vitals.py",
        "if still > STILL_SECONDS:",
        "if still > 1e9:",
        ("tests/worker/test_vitals.py",),
    ),
    (
        "marks of a role that waits",
        f"{WORKER}role.py",
        "        self.moved_at = WAITS\n        self._wake.wait",
        "        self._wake.wait",
        ("tests/worker/test_vitals.py",),
    ),
    (
        "marks of a connection that connects",
        "django_pgjobs/queries/connection.py",
        "            self.moved_at = math.inf\n",
        "",
        ("tests/worker/test_vitals.py",),
    ),
    (
        "marks of statements",
        "django_pgjobs/queries/connection.py",
        "            self.answer_due = None\n            self.moved_at = time.monotonic()\n",
        "            self.answer_due = None\n",
        ("tests/worker/test_vitals.py",),
    ),
    (
        "lines that are being written",
        f"{WORKER}safe_log.py",
        "            _under_way[threading.get_ident()] = time.monotonic()\n",
        "",
        ("tests/worker/test_vitals.py",),
    ),
    (
        "last words that wait for nobody",
        f"{WORKER}shutdown.py",
        "if select.select([], [descriptor], [], 0)[1]:",
        "if True:",
        ("tests/worker/test_vitals.py",),
    ),
    (
        "outcomes before their lines",
        f"{WORKER}runner.py",
        "        self.pump.add_outcome(attempt, outcome)\n        log_outcome(",
        "        log_start(attempt, self.state.name)\n        self.pump.add_outcome(attempt, outcome)\n"
        "        log_outcome(",
        ("tests/process/test_standstill.py",),
    ),
    (
        "bound of a shutdown",
        f"{WORKER}runner.py",
        "timeout + LAST_STEPS * LAST_SECONDS",
        "1e9",
        ("tests/worker/test_shutdown.py",),
    ),
)
