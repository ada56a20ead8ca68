"""What `tests.mutations` takes out of who may see and do what in the admin, and of keys."""

from __future__ import annotations

PERMISSIONS = "django_pgjobs/permissions.py"
NARROWED = ("tests/admin/test_narrowed.py",)
MASKED = ("tests/admin/test_masked_search.py",)

# Name, file, what is replaced, by what, and the tests that guard it.
TENANT = (
    (
        "pages of all jobs closed to the narrowed",
        "django_pgjobs/admin/pages.py",
        "return draw_closed(self, request) or view(request, *args, **kwargs)",
        "return view(request, *args, **kwargs)",
        NARROWED,
    ),
    (
        "control of all jobs",
        PERMISSIONS,
        "return is_allowed and not (verb in OF_ALL and is_narrowed(user, verb))",
        "return is_allowed",
        NARROWED,
    ),
    (
        "acting only on what is seen",
        PERMISSIONS,
        "for asked in (Verb.VIEW, verb) if verb is not Verb.VIEW else (verb,):",
        "for asked in (verb,):",
        NARROWED,
    ),
    (
        "bulk changes of others",
        PERMISSIONS,
        "return changes.filter(user_id=str(user.pk)) if is_narrowed(user) else changes",
        "return changes",
        NARROWED,
    ),
    (
        "reasons that name other jobs",
        "django_pgjobs/admin/job_page/around.py",
        "if reason.code in OWN or (reason.code in OF_REFS and seen.issuperset(reason.refs)):",
        "if reason.code in OWN or reason.code in OF_REFS:",
        NARROWED,
    ),
    (
        "moves out of one's reach",
        "django_pgjobs/bulk/changes.py",
        "transaction.set_rollback(True, using=database)",
        "pass",
        NARROWED,
    ),
    (
        "bulk changes by masked values",
        "django_pgjobs/bulk/walk.py",
        "verbs = (verb, Verb.REVEAL) if names_masked(selection.lookups) else (verb,)",
        "verbs = (verb,)",
        MASKED,
    ),
    (
        "secret arguments in keys",
        "django_pgjobs/declaring/keys.py",
        "return digest_of(str(value)) if is_masked else str(value)",
        "return str(value)",
        ("tests/test_keys.py",),
    ),
)
