"""What `tests.mutations` takes out of what is counted, asked and refused in the admin."""

from __future__ import annotations

# Name, file, what is replaced, by what, and the tests that notice.
INPUTS = (
    (
        "check of dotted paths",
        "django_pgjobs/checks.py",
        "signature.bind(*HOOK_ARGUMENTS)",
        "signature",
        ("tests/test_checks.py",),
    ),
    (
        "check of asynchronous functions",
        "django_pgjobs/checks.py",
        "inspect.iscoroutinefunction(hook) or",
        "False and",
        ("tests/test_checks.py",),
    ),
    (
        "count of the whole selection",
        "django_pgjobs/bulk/preview.py",
        "return self.exact if self.is_partial else self.suitable",
        "return self.suitable",
        ("tests/admin/test_bulk_counts.py::test_a_deletion_of_old_jobs_says_how_many_they_are",),
    ),
    (
        "text to type",
        "django_pgjobs/admin/bulk/forms.py",
        "if plain != self.wanted:",
        "if False:",
        ("tests/admin/test_bulk_counts.py::test_many_jobs_are_not_ended_by_a_click",),
    ),
    (
        "dependants at any distance",
        "django_pgjobs/sql/list_dependants.sql",
        "SELECT dependency.job_id\n    FROM reached",
        "SELECT dependency.job_id\n    FROM unnest(%(ids)s::bigint[]) AS reached (id)",
        ("tests/admin/test_bulk_counts.py::test_a_change_says_which_others_go_with_it",),
    ),
    (
        "question before a resume",
        "django_pgjobs/admin/queues/page.py",
        'if request.method != "POST":\n            return self._draw_resume',
        "if False:\n            return self._draw_resume",
        ("tests/admin/test_queues.py::test_resuming_asks_first_and_keeps_why_it_was_paused",),
    ),
    (
        "queue that every worker serves",
        "django_pgjobs/management/commands/runjobs.py",
        "return names if names is None or OWN_QUEUE in names else (*names, OWN_QUEUE)",
        "return names",
        ("tests/process/test_bulk.py",),
    ),
    (
        "expressions one by one",
        "django_pgjobs/declaring/redaction.py",
        "[re.compile(expression, re.IGNORECASE) for expression in expressions]",
        '[re.compile("|".join(f"(?:{each})" for each in expressions), re.IGNORECASE)]',
        ("tests/test_hostile_flags.py::test_expressions_of_secrets_are_read_one_by_one",),
    ),
    (
        "nearest time of a model",
        "django_pgjobs/models/fields.py",
        "return nearest, [*params] * 3",
        "return sql, params",
        ("tests/admin/test_odd_times.py",),
    ),
    (
        "nearest time of a statement",
        "django_pgjobs/queries/cursor.py",
        "        read_any_instant(cursor)\n",
        "",
        ("tests/admin/test_odd_times.py",),
    ),
)
