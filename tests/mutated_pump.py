"""What `tests.mutations` takes out of the ways around rows that are locked or refused."""

from __future__ import annotations

from tests.mutated_claims import WORKER

HELD = ("tests/worker/test_held_rows.py",)
REFUSED = ("tests/worker/test_refused_rows.py",)
HINTS = ("tests/worker/test_lost_hints.py",)

# Name, file, what is replaced and by what, tests.
PUMP = (
    (
        "outcome of a locked row",
        f"{WORKER}writing.py",
        "owned = {row[0] for row in rows} - written",
        "owned = set()",
        HELD,
    ),
    (
        "lock that is no lost connection",
        "django_pgjobs/queries/errors.py",
        'LOCKED = ("55P03", "57014")',
        "LOCKED = ()",
        HELD,
    ),
    (
        "tokens that are locked",
        f"{WORKER}look.py",
        "self._tokens_at = self._waits_at = time.monotonic() + LOCKED_SECONDS",
        "pass",
        HELD,
    ),
    (
        "parts of a refused turn",
        f"{WORKER}sending.py",
        "part.on_refused(error)",
        "raise",
        REFUSED,
    ),
    (
        "job that is passed over",
        f"{WORKER}refusals.py",
        "self._state.passed_over = jobs_now | {job_id: now + wait}",
        "pass",
        REFUSED,
    ),
    (
        "rescue that passes over a job",
        f"{WORKER}leases.py",
        "passed_over=passed_over,\n                )\n\n        def find",
        "passed_over=(),\n            )\n\n        def find",
        REFUSED,
    ),
    (
        "request to cancel that is kept",
        f"{WORKER}tick.py",
        "            asked = self._cancels_asked\n",
        "            asked = self._cancels_answered = self._cancels_asked\n",
        HINTS,
    ),
    (
        "look for cancelled jobs that nobody asked for",
        f"{WORKER}tick.py",
        "or now >= self._cancels_due ",
        "",
        HINTS,
    ),
    (
        "progress that was written",
        f"{WORKER}tick.py",
        "attempt.reported = text\n",
        "attempt.reported = attempt.progress\n",
        HINTS,
    ),
)
