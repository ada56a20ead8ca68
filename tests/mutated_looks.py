"""What `tests.mutations` takes out of the look for jobs."""

from __future__ import annotations

from tests.mutated_claims import WORKER

LOOK_TIMES = ("tests/worker/test_look_times.py",)

# Name, file, what is replaced and by what, tests.
LOOKS = (
    (
        "return before a drain ends",
        f"{WORKER}upkeep/look.py",
        " and self._is_settled()\n",
        "\n",
        LOOK_TIMES,
    ),
    (
        "jobs that are locked when their worker is told of them",
        f"{WORKER}upkeep/look.py",
        "            self._gap = min(self._gap, APART_SECONDS)",
        "            pass",
        ("tests/worker/test_locked_lanes.py",),
    ),
    (
        "look after what was found beside the one on watch",
        f"{WORKER}upkeep/look.py",
        "!= self._claimed_at and self._goes_on:",
        "!= self._claimed_at:",
        LOOK_TIMES,
    ),
    (
        "look after jobs with keys beside the one on watch",
        f"{WORKER}upkeep/look.py",
        "return not self._rests() or self._knows_of_keys",
        "return not self._rests()",
        LOOK_TIMES,
    ),
    (
        "looks of workers that were started together",
        f"{WORKER}upkeep/look.py",
        "now + self._gap * random.uniform(LEAST_PART, 1.0)",
        "now + self._gap",
        LOOK_TIMES,
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
        LOOK_TIMES,
    ),
)
