"""What `tests.mutations` takes out of schedules."""

from __future__ import annotations

FIRING = ("tests/schedules/test_firing.py",)
RACES = ("tests/races/test_schedules.py",)
CLOCKS = ("tests/occurrences/test_planning.py",)

# Name, file, what is replaced and by what, tests.
SCHEDULES = (
    (
        "occurrence that has its row already",
        "django_pgjobs/schedules/firing.py",
        "new = [row for row in planned if (row.schedule, row.scheduled_for) in entered]",
        "new = planned",
        FIRING,
    ),
    (
        "occurrence after a turn in which the server stood still",
        "django_pgjobs/worker/process/scheduler.py",
        "turn.asked_at + wait + 0.001 - time.monotonic()",
        "wait + 0.001",
        ("tests/schedules/test_following.py",),
    ),
    (
        "early wake-up that is not in vain",
        "django_pgjobs/worker/process/scheduler.py",
        "bool(expects_at and turn.read_at and turn.read_at >= expects_at)",
        "bool(expects_at)",
        ("tests/schedules/test_following.py",),
    ),
    (
        "time of a turn",
        "django_pgjobs/schedules/firing.py",
        "            if found and turn.is_over:\n                break",
        "",
        ("tests/schedules/test_slow_keys.py",),
    ),
    (
        "occurrence that a turn did not reach",
        "django_pgjobs/schedules/firing.py",
        "    queries.leave_occurrences(cursor, left)\n",
        "",
        ("tests/schedules/test_slow_keys.py",),
    ),
    (
        "occurrence that was skipped long ahead",
        "django_pgjobs/sql/prune_occurrences.sql",
        "AND GREATEST(old.created_at, old.scheduled_for)\n",
        "AND old.created_at\n",
        FIRING,
    ),
    (
        "lock of a due schedule",
        "django_pgjobs/sql/take_due_schedules.sql",
        "FOR UPDATE SKIP LOCKED",
        "",
        RACES,
    ),
    (
        "plan from the occurrence that was planned",
        "django_pgjobs/schedules/plans.py",
        "begin = max(first, on_time_from)",
        "begin = now",
        FIRING,
    ),
    (
        "schedule that the server refuses",
        "django_pgjobs/worker/process/scheduler.py",
        "            self._size = 1\n",
        "            pass\n",
        RACES,
    ),
    (
        "gap whose end is due anyway",
        "django_pgjobs/occurrences/planning.py",
        "matching < resumed and cron.next_reading(resumed) != resumed",
        "matching < resumed",
        CLOCKS,
    ),
    (
        "schedule of a job that is requeued",
        "django_pgjobs/sql/requeue_jobs.sql",
        "source_id, schedule, scheduled_for, %(note)s::text",
        "source_id, NULL::text, NULL::timestamptz, %(note)s::text",
        ("tests/test_unique_life.py",),
    ),
    (
        "job that was there before its occurrence",
        "django_pgjobs/schedules/jobs.py",
        "if job_id in met:\n        return row",
        "if False:\n        return row",
        ("tests/schedules/test_unique_keys.py",),
    ),
    (
        "schedule that a clock shows again",
        "django_pgjobs/occurrences/planning.py",
        "if cron.next_reading(shown - SAFE) == reading:",
        "if True:",
        ("tests/occurrences/test_clocks.py",),
    ),
    (
        "moment from which a changed schedule is planned",
        "django_pgjobs/migrations/sql/0001/schedules.sql",
        "    NEW.plan_from = clock_timestamp();",
        "    NEW.plan_from = NULL;",
        ("tests/schedules/test_planned_anew.py",),
    ),
    (
        "schedule that was passed over",
        "django_pgjobs/worker/process/scheduler.py",
        "is_in_vain = expects_some and not turn.is_passed_over",
        "is_in_vain = expects_some",
        RACES,
    ),
    (
        "scheduler that may be the only one",
        "django_pgjobs/worker/process/scheduler.py",
        "return self._is_active or self._may_be_alone",
        "return self._is_active",
        ("tests/schedules/test_following.py",),
    ),
    (
        "what was put off is tried again",
        "django_pgjobs/worker/process/scheduler.py",
        "return pause if wait >= pause else max(SHORTEST_PAUSE, wait)",
        "return pause",
        ("tests/schedules/test_following.py",),
    ),
    (
        "turn that stands still",
        "django_pgjobs/schedules/short.py",
        "still_seconds=STILL_SECONDS,",
        "",
        RACES,
    ),
    (
        "schedule of a task that is not here",
        "django_pgjobs/worker/process/scheduler.py",
        "            tasks=self._find_tasks(),\n            max",
        "            max",
        RACES,
    ),
    (
        "schedule that waits to be planned",
        "django_pgjobs/sql/terms.py",
        "AND isfinite({it}.plan_from) THEN {it}.plan_from END",
        "AND isfinite({it}.plan_from) THEN NULL END",
        ("tests/admin/test_schedule_warnings.py", "tests/metrics/test_of_schedules.py"),
    ),
    (
        "news of a schedule after many failures",
        "django_pgjobs/worker/process/schedule_log.py",
        "self._told.get(name) != error",
        "len(self._told) < 1 and self._told.get(name) != error",
        ("tests/schedules/test_broken_rows.py",),
    ),
    (
        "error of a command in a terminal",
        "django_pgjobs/management/commands/jobs.py",
        "CommandError(str(error).translate(IN_LINES), ",
        "CommandError(str(error), ",
        ("tests/schedules/test_command.py",),
    ),
)
