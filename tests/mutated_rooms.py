"""What `tests.mutations` takes out of the rooms of threads and event loop, and of many lanes."""

from __future__ import annotations

from tests.mutated_claims import SQL, WORKER

ROOMS_TESTS = ("tests/worker/test_rooms.py",)
DEMAND = ("tests/worker/test_demand.py",)
MANY_LANES = ("tests/worker/test_many_lanes.py",)

# Name, file, what is replaced and by what, tests.
ROOMS = (
    (
        "worker whose lease ran out",
        "django_pgjobs/sql/claim_terms.py",
        "worker.id = %(worker_id)s::bigint AND {worker.is_live}",
        "worker.id = %(worker_id)s::bigint AND worker.ended_at IS NULL",
        ("tests/worker/test_claim.py",),
    ),
    (
        "room of a kind",
        f"{SQL}claim_lanes.sql",
        "            LIMIT room.jobs\n",
        "            LIMIT 1000\n",
        ROOMS_TESTS,
    ),
    (
        "lanes that compete for a room",
        "django_pgjobs/queries/claims.py",
        "return len(kinds) == len(set(kinds)) and sum(rooms[kind] for kind in kinds) <= max_jobs",
        "return True",
        ("tests/worker/test_claim.py", *ROOMS_TESTS),
    ),
    (
        "order of both kinds",
        f"{SQL}claim_lanes.sql",
        "        ORDER BY found.urgency, found.id\n",
        "",
        ROOMS_TESTS,
    ),
    (
        "kind of a lane",
        "django_pgjobs/sql/claim_terms.py",
        '" AND job.is_async = {it}.is_async"',
        '""',
        ROOMS_TESTS,
    ),
    (
        "room of a kind in the list",
        f"{SQL}list_heads.sql",
        "        LIMIT kind.jobs\n    ) AS found",
        "    ) AS found",
        ROOMS_TESTS,
    ),
    (
        "room of a kind in the choice",
        "django_pgjobs/choosing.py",
        "self._left[head.is_async] -= 1",
        "pass",
        ("tests/test_choosing.py",),
    ),
    (
        "turns of each kind in the choice",
        "django_pgjobs/choosing.py",
        "for heads in (_by_kind(plain) if keyed else [plain])",
        "for heads in [plain]",
        ("tests/test_choosing.py",),
    ),
    (
        "bound of a claim for many free slots",
        f"{WORKER}running/capacity.py",
        "return min(wanted, most)",
        "return wanted if self._claim_limit is None else min(wanted, most)",
        ("tests/worker/test_demand.py",),
    ),
    (
        "lanes of a kind that has no room",
        f"{WORKER}claiming/places.py",
        "rooms[lane.is_async] > 0 and lane.queue_name not in limited",
        "lane.queue_name not in limited",
        ROOMS_TESTS,
    ),
    (
        "kind whose room was not filled",
        f"{WORKER}claiming/plan.py",
        "return max(of_kind, claimed.total() / self.wanted)",
        "return claimed.total() / self.wanted",
        ROOMS_TESTS,
    ),
    (
        "key that became free of a kind without room",
        f"{WORKER}claiming/groups.py",
        "for group in groups & self._known.keys():",
        "for group in self._known:",
        ROOMS_TESTS,
    ),
    (
        "jobs of the wrong kind that wait",
        f"{WORKER}claiming/demand.py",
        "elsewhere=loop.strangers, ",
        "",
        DEMAND,
    ),
    (
        "kind of a job that goes back",
        f"{SQL}give_back_jobs.sql",
        "    is_async = outcome.is_async,\n",
        "",
        ROOMS_TESTS,
    ),
    (
        "kind of a job that tells of a failure",
        "django_pgjobs/sql/terms.py",
        "COALESCE({it}.on_failure ->> 'is_async'::text, '') = 'true'",
        "FALSE",
        ROOMS_TESTS,
    ),
    (
        "jobs count by the time they take",
        f"{WORKER}running/capacity.py",
        "kept = max(0.0, 1 - seconds / MEAN_SECONDS)",
        "kept = 0.98",
        DEMAND,
    ),
    (
        "look of a worker with room for one kind",
        f"{WORKER}upkeep/look.py",
        "if not self._outlook.waits_for_news:",
        "if not self._outlook.is_idle:",
        ("tests/worker/test_look_times.py",),
    ),
    (
        "worker that is busy with all threads",
        f"{WORKER}claiming/outlook.py",
        "return self.is_idle and self.has_room",
        "return self.is_idle and self.wants_jobs",
        ROOMS_TESTS,
    ),
    (
        "watch of a worker with room of one kind",
        f"{WORKER}upkeep/watch.py",
        "if not outlook.has_room:",
        "if not outlook.wants_jobs:",
        ("tests/worker/test_watch_model.py",),
    ),
    *(
        (name, f"{SQL}claim_lanes.sql", old, new, MANY_LANES)
        for name, old, new in (
            (
                "jobs behind what was looked at",
                "candidate.place = candidate.looked_at\n        )",
                "FALSE\n        )",
            ),
            (
                "lanes that are not read",
                "ARRAY[room.end_urgency::bigint, room.end_id]",
                "ARRAY[32768, 0]",
            ),
            ("best of both kinds", "THEN min(room.last) OVER ()", "THEN room.last"),
            ("where a lane goes on", "COALESCE(share.jobs, 0) + 1", "1"),
        )
    ),
    (
        "locked jobs that hide others",
        "django_pgjobs/queries/claims.py",
        "yield min(room, max(room // places[lane.is_async], FEW_JOBS)) + 1",
        "yield min(room, max(room // places[lane.is_async], FEW_JOBS))",
        MANY_LANES,
    ),
    (
        "deep lanes",
        "django_pgjobs/queries/claims.py",
        "max(room // places[lane.is_async], FEW_JOBS)",
        "room",
        MANY_LANES,
    ),
    (
        "lanes that may begin anywhere",
        f"{WORKER}claiming/plan.py",
        "floors |= anywhere",
        "",
        MANY_LANES,
    ),
    (
        "lanes that are told to be empty",
        f"{WORKER}claiming/lanes.py",
        "if claim.floors is not None:",
        "if False:",
        MANY_LANES,
    ),
    (
        "distance of the server",
        "django_pgjobs/queries/connection.py",
        "self.distance = min(self.distance, time.monotonic() - began)",
        "self.distance = time.monotonic() - began",
        ("tests/worker/test_connections.py",),
    ),
)
