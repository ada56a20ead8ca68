"""What `tests.mutations` takes out of the pump and the upkeep."""

from __future__ import annotations

from tests.mutated_claims import WORKER

HELD = ("tests/worker/test_held_rows.py",)
UPKEEP = ("tests/worker/test_upkeep.py",)
PLACES = ("tests/worker/test_places.py",)
REFUSED = ("tests/worker/test_refused_rows.py",)
HINTS = ("tests/worker/test_lost_hints.py",)

# Name, file, what is replaced and by what, tests.
PUMP = (
    (
        "outcome of a locked row",
        f"{WORKER}claiming/writing.py",
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
        f"{WORKER}claiming/turn_to_claim.py",
        "self._locked_until = now + LOCKED_SECONDS",
        "pass",
        HELD,
    ),
    (
        "limit of jobs after a turn without statements",
        f"{WORKER}claiming/pump.py",
        "            self._check_limit()\n            if not worked",
        "            if not worked",
        ("tests/worker/test_atomic.py", "tests/worker/test_executor.py"),
    ),
    (
        "parts of a refused turn",
        f"{WORKER}turns/sending.py",
        "part.on_refused(error)",
        "raise",
        REFUSED,
    ),
    (
        "job that is passed over",
        f"{WORKER}turns/refusals.py",
        "self._state.passed_over = jobs_now | {job_id: now + wait}",
        "pass",
        REFUSED,
    ),
    (
        "rescue that passes over a job",
        f"{WORKER}process/leases.py",
        "passed_over=passed_over,\n                )\n\n        def find",
        "passed_over=(),\n            )\n\n        def find",
        REFUSED,
    ),
    (
        "request to cancel that is kept",
        f"{WORKER}upkeep/cancels.py",
        "        turn.add(partial(",
        "        self._due = math.inf\n        turn.add(partial(",
        HINTS,
    ),
    (
        "look for cancelled jobs that nobody asked for",
        f"{WORKER}upkeep/cancels.py",
        "pause = CANCEL_SECONDS if",
        "pause = math.inf if",
        HINTS,
    ),
    (
        "progress that was written",
        f"{WORKER}upkeep/progress.py",
        "attempt.reported = text\n",
        "attempt.reported = attempt.progress\n",
        HINTS,
    ),
    (
        "cancel of a job whose claim is under way",
        f"{WORKER}upkeep/cancels.py",
        "pause = UNDER_WAY_SECONDS",
        "pass",
        UPKEEP,
    ),
    (
        "lock between a claim and the return of lost ones",
        f"{WORKER}upkeep/unheld.py",
        "return _hold(self._state.claiming)",
        "return super().lock",
        UPKEEP,
    ),
    (
        "patience of the return of lost claims",
        f"{WORKER}upkeep/unheld.py",
        "lock.acquire(timeout=PATIENCE_SECONDS)",
        "lock.acquire()",
        UPKEEP,
    ),
    (
        "return before a drain ends",
        f"{WORKER}upkeep/look.py",
        " and self._is_settled()\n",
        "\n",
        UPKEEP,
    ),
    (
        "connection that died while the pump rested",
        f"{WORKER}claiming/pump.py",
        "        self._connection.close_if_dead()\n",
        "",
        UPKEEP,
    ),
    (
        "head of a lane before it is forgotten",
        f"{WORKER}claiming/places.py",
        "                self._before.add(lane)\n                self._behind.discard(lane)\n",
        "                self._behind.discard(lane)\n",
        PLACES,
    ),
    (
        "lane that is known all the time",
        f"{WORKER}claiming/places.py",
        "                self._before.add(lane)\n                self._behind.discard(lane)\n",
        "                self._behind.discard(lane)\n                self._before.add(lane)\n",
        PLACES,
    ),
    (
        "claims from heads that are slow",
        f"{WORKER}claiming/places.py",
        "self._heads_at = now + HEADS_PAUSE_FACTOR * seconds",
        "pass",
        PLACES,
    ),
    (
        "floors of lanes that are gone",
        f"{WORKER}claiming/places.py",
        "if time.monotonic() >= self._heads_at:",
        "if False:",
        PLACES,
    ),
    (
        "floors while heads are slow",
        f"{WORKER}claiming/places.py",
        "if time.monotonic() >= self._heads_at:",
        "if True:",
        PLACES,
    ),
    (
        "tokens that others wait for",
        f"{WORKER}upkeep/look.py",
        "for group, seconds in waits if group in listing.groups)",
        "for group, seconds in waits)",
        ("tests/worker/test_look.py",),
    ),
    (
        "tokens that a busy worker waits for",
        f"{WORKER}upkeep/look.py",
        "due = min(due, self._tokens_at + TOKEN_LOOK_SECONDS)",
        "pass",
        ("tests/worker/test_upkeep.py",),
    ),
    (
        "tokens that the pump waits for",
        f"{WORKER}claiming/places.py",
        "if now >= self._listing.tokens_at:",
        "if False:",
        ("tests/worker/test_places.py",),
    ),
    (
        "tokens that never come",
        "django_pgjobs/sql/get_token_wait.sql",
        "WHERE wait.has_an_end AND",
        "WHERE",
        ("tests/worker/test_look.py",),
    ),
    (
        "tokens that are there although the oldest entry is in the window",
        "django_pgjobs/sql/terms.py",
        " THEN rule.count - GREATEST({it}.taken_since[1]::bigint, 0) END",
        " THEN 0 END",
        ("tests/worker/test_rate_reading.py",),
    ),
    (
        "key that becomes free elsewhere without LISTEN",
        f"{WORKER}claiming/pump.py",
        "if not self._state.options.listen and any(row.lane for row in rows):",
        "if False:",
        ("tests/worker/test_look.py",),
    ),
    (
        "key that becomes free with the turn",
        f"{WORKER}claiming/pump.py",
        "ending=[attempt.row for attempt, _ in writing.travelling],",
        "",
        ("tests/worker/test_look.py",),
    ),
)
