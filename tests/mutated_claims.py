"""What `tests.mutations` takes out of the claims of jobs with keys."""

from __future__ import annotations

SQL = "django_pgjobs/sql/"
WORKER = "django_pgjobs/worker/"

# Name, what is replaced in the claim of jobs with keys, and by what.
KEYED_CLAIM = (
    ("hold of the keyed claim", "WHERE\n            turn.is_held\n", "WHERE\n            TRUE\n"),
    ("running jobs of a key", "ELSE maximum.jobs - (", "ELSE maximum.jobs - 0 * ("),
    ("first job of a key", "WHEN maximum.last_id = head.id AND", "WHEN FALSE AND"),
    ("retry in its key", "OR oldest.due_at IS DISTINCT FROM oldest.run_after", ""),
    ("planned job in its key", "OR oldest.due_at IS DISTINCT FROM oldest.run_after", "OR TRUE"),
    ("limit of a key over its lanes", "OR ranked.place_in_key <= ranked.room", "OR TRUE"),
    ("smaller limit within a key", "ELSE GREATEST(locked.concurrency_limit, 1)", "ELSE 1000"),
    ("tokens of a claim", "SET next_free = GREATEST(", "SET next_free = LEAST("),
    ("tokens that are left", "demand.cost_so_far::double precision > budget.tokens", "FALSE"),
    ("pause of a key", "WHEN head.concurrency_key LIKE ANY (turn.key_patterns)", "WHEN FALSE"),
    ("pause of a queue", "COALESCE(paused.queues, '{}')", "'{}'::text[]"),
    ("limit of a queue", "AND cap.jobs < capped.place_in_queue", "AND FALSE"),
    ("places that are left", "share.found < %(max_jobs)s::integer", "FALSE"),
    ("places of better lanes", "AND min(opened.rank) = max(opened.rank)", ""),
    (
        "order of the segments",
        "AND segment.queue_name <> ALL (",
        (
            "AND NOT EXISTS (SELECT FROM cap WHERE cap.queue_name = segment.queue_name"
            " AND cap.jobs <= 0) AND segment.queue_name <> ALL ("
        ),
    ),
)
