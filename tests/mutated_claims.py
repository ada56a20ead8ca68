"""What `tests.mutations` takes out of the claims of jobs with keys."""

from __future__ import annotations

SQL = "django_pgjobs/sql/"
WORKER = "django_pgjobs/worker/"
CLAIMS = ("tests/worker/test_keyed_claim.py", "tests/worker/test_keyed_claim_rules.py")
CHOICES = ("tests/test_choosing.py",)
EXPLAINED = ("tests/test_explain_limits.py", "tests/worker/test_explain_agrees.py")

# Name, what is replaced in the list of what a claim may choose from, and by what.
HEADS = (
    ("hold of the keyed claim", "turn.is_held AND segment.", "segment."),
    ("running jobs of a key", "ELSE maximum.jobs - (", "ELSE maximum.jobs - 0 * ("),
    (
        "first job of a key",
        "AND (job.lane, job.id) <= (head.lane, COALESCE(maximum.next_id, 9223372036854775807))",
        "",
    ),
    ("pause of a key", "WHEN head.concurrency_key LIKE ANY (turn.key_patterns)", "WHEN FALSE"),
    ("pause of a queue", " OPERATOR(pg_catalog.||) paused.queues AS", " AS"),
)

# The same of what the list and explain() both say of a lane.
LANE = (
    ("retry in its key", "{oldest.is_in_line}", "{oldest.is_ready}"),
    (
        "planned job in its key",
        "{oldest.is_in_line}",
        "oldest.status = 'ready' AND oldest.hold IS NULL",
    ),
    ("order of a key", " THEN LEAST({it}.id, (", " THEN NULLIF({it}.id, ("),
)

# The same of the choice.
CHOICE = (
    ("limit of a key over its lanes", "head.running + self._of_key.get(key, 0)", "head.running"),
    ("smaller limit within a key", "max(1, self.head.limits[self.place] or 1)", "1000"),
    ("tokens that are left", "self._tokens[rate.key] < job.cost", "False"),
    ("tokens of a claim", "self._tokens[rate.key] -= job.cost", "pass"),
    (
        "place in the line for tokens",
        "self._tokens |= {obstacle.name: 0 for obstacle in obstacles}",
        "pass",
    ),
    ("limit of a queue", "self._room[head.queue_name] -= 1", "pass"),
    ("share of a lane", "ceil(wanted * head.weight / weights)", "wanted"),
)

# The same of what is said of one job.
TOLD = (
    ("first job of a lane, for all of it", "*choice.obstacles(jobs[0]), ", ""),
    ("job itself in its lane", ", *choice.obstacles(jobs[-1])", ""),
)

# The same of the claim of what was chosen, with the tests.
CHOSEN = (
    (
        "lane of a chosen job",
        "ON chosen.id = job.id AND chosen.lane = job.lane",
        "ON chosen.id = job.id",
        ("tests/races/test_keyed_claims.py",),
    ),
)

# The same of the rule of rate limits.
RATE = (
    (
        "window of a rate limit",
        "taken.since + wanted.cost::bigint > rule.count THEN",
        "FALSE THEN",
    ),
    ("tokens of a window", '"rule.count - taken.since,"', '"rule.count,"'),
    (
        "tokens that are remembered",
        "WHERE taken.instant > {it}.instant - rule.period_in_force",
        "WHERE taken.instant > {it}.instant",
    ),
    ("hundredth of a period", "SELECT max(each.instant) AS", "SELECT min(each.instant) AS"),
)
RATES = ("tests/test_rate_limit_rule.py",)
