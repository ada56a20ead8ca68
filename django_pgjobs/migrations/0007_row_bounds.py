"""The bounds of a job's columns as domains, which a value passes where it enters the table.

CHECK constraints of a table are read from the catalogue again for every statement that writes
it, and hold for every row that an UPDATE touches: a row from before such a constraint would make
the claim that takes it fail, together with all others. The constraints of a domain are read once
per session, and looked at for the values that a statement sets. They are NOT VALID: rows that
are there already stay as they are, and the statements cope with them.
"""

from __future__ import annotations

from typing import NamedTuple

from django.db import migrations

from django_pgjobs.operations import PostgresSQL


class Domain(NamedTuple):
    """A bound: of which type, the constraint's name and condition ({}: the value), the columns.

    *former* are those that a constraint of the table with the same name was for.
    """

    name: str
    base: str
    constraint: str
    condition: str
    columns: tuple[str, ...]
    former: tuple[str, ...]


TEXT = 'text COLLATE "C"'
DOMAINS = (
    Domain(
        "pgjobs_timeout",
        "double precision",
        "pgjobs_timeout_is_positive_and_finite",
        "{} > 0 AND {} < 'infinity'",
        ("timeout",),
        former=("timeout",),
    ),
    Domain(
        "pgjobs_max_attempts",
        "integer",
        "pgjobs_max_attempts_is_positive",
        "{} > 0",
        ("max_attempts",),
        former=("max_attempts",),
    ),
    Domain(
        "pgjobs_priority",
        "smallint",
        "pgjobs_priority_is_from_minus_100_to_100",
        "{} BETWEEN -100 AND 100",
        ("priority",),
        former=("priority",),
    ),
    Domain(
        "pgjobs_queue_name",
        TEXT,
        "pgjobs_queue_name_has_1_to_128_bytes",
        "octet_length({}) BETWEEN 1 AND 128",
        ("queue_name",),
        former=("queue_name",),
    ),
    Domain(
        "pgjobs_task_path",
        TEXT,
        "pgjobs_task_path_has_1_to_512_bytes",
        "octet_length({}) BETWEEN 1 AND 512",
        ("task_path",),
        former=("task_path",),
    ),
    Domain(
        "pgjobs_backend",
        TEXT,
        "pgjobs_backend_has_1_to_128_bytes",
        "octet_length({}) BETWEEN 1 AND 128",
        ("backend",),
        former=("backend",),
    ),
    Domain(
        "pgjobs_hold",
        "text",
        "pgjobs_hold_is_known",
        "{} IN ('dependencies', 'predecessor failed')",
        ("hold",),
        former=("hold",),
    ),
    Domain(
        "pgjobs_concurrency_key",
        TEXT,
        "pgjobs_concurrency_key_has_1_to_512_bytes",
        "octet_length({}) BETWEEN 1 AND 512 AND position(E'\\n' IN {}) = 0",
        ("concurrency_key",),
        former=("concurrency_key",),
    ),
    Domain(
        "pgjobs_concurrency_limit_of_job",
        "integer",
        "pgjobs_concurrency_limit_is_positive",
        "{} > 0",
        ("concurrency_limit",),
        former=("concurrency_limit",),
    ),
    Domain(
        "pgjobs_rate_limit_keys",
        TEXT,
        "pgjobs_rate_limit_keys_have_1_to_1024_bytes",
        "octet_length({}) BETWEEN 1 AND 1024",
        ("rate_limit_keys",),
        former=("rate_limit_keys",),
    ),
    Domain(
        "pgjobs_rate_cost",
        "integer",
        "pgjobs_rate_cost_is_positive",
        "{} > 0",
        ("rate_cost",),
        former=("rate_cost",),
    ),
    Domain(
        "pgjobs_unique_key",
        TEXT,
        "pgjobs_unique_key_has_1_to_512_bytes",
        "octet_length({}) BETWEEN 1 AND 512",
        ("unique_key",),
        former=("unique_key",),
    ),
    Domain(
        "pgjobs_subject",
        TEXT,
        "pgjobs_subject_has_1_to_512_bytes",
        "octet_length({}) BETWEEN 1 AND 512",
        ("subject",),
        former=("subject",),
    ),
    # What a reader in Python can hold, in any time zone; and no 'infinity' to wait for.
    Domain(
        "pgjobs_time",
        "timestamptz",
        "pgjobs_times_are_in_the_years_1_to_9999",
        "{} BETWEEN '0001-01-02 00:00:00+00' AND '9999-12-30 00:00:00+00'",
        (
            "enqueued_at",
            "run_after",
            "due_at",
            "started_at",
            "last_attempted_at",
            "finished_at",
            "cancel_requested_at",
        ),
        former=("enqueued_at", "run_after", "due_at"),
    ),
    # The next claim is one more, and 1 after the last (see the claims in sql/).
    Domain(
        "pgjobs_claim",
        "bigint",
        "pgjobs_claim_is_from_0_to_9e18",
        "{} BETWEEN 0 AND 9000000000000000000",
        ("claim",),
        former=(),
    ),
    Domain(
        "pgjobs_count",
        "integer",
        "pgjobs_counts_are_not_negative",
        "{} >= 0",
        ("attempts", "lost_count", "waits_for", "merged_count"),
        former=(),
    ),
    # Of an empty array the functions say NULL, and that lets it pass.
    Domain(
        "pgjobs_texts",
        "text[]",
        "pgjobs_texts_are_a_plain_list_without_null",
        "CASE WHEN array_ndims({}) = 1 AND array_lower({}, 1) = 1"
        " THEN array_position({}, NULL) IS NULL ELSE array_ndims({}) IS NULL END",
        ("tags", "worker_ids"),
        former=(),
    ),
    Domain(
        "pgjobs_errors",
        "jsonb",
        "pgjobs_errors_are_a_list",
        "jsonb_typeof({}) = 'array'",
        ("errors",),
        former=(),
    ),
)

# A generated column keeps those that it is made of from being altered, a trigger's condition too.
DROP_DEPENDENTS = """
DROP TRIGGER pgjobs_job_postpone ON pgjobs_job_live;
ALTER TABLE pgjobs_job DROP COLUMN lane;
"""

CREATE_DEPENDENTS = """
ALTER TABLE pgjobs_job ADD COLUMN lane text COLLATE "C" GENERATED ALWAYS AS (
    CASE WHEN concurrency_key IS NOT NULL OR rate_limit_keys IS NOT NULL
        THEN COALESCE(concurrency_key, '') || E'\\n' || COALESCE(rate_limit_keys, '')
    END
) STORED;
CREATE INDEX pgjobs_job_ready ON pgjobs_job_live (backend, queue_name, (-priority), id)
    WHERE status = 'ready' AND due_at IS NULL AND hold IS NULL AND lane IS NULL;
CREATE INDEX pgjobs_job_ready_lanes
    ON pgjobs_job_live (backend, queue_name, (-priority), lane, id)
    WHERE status = 'ready' AND due_at IS NULL AND hold IS NULL AND lane IS NOT NULL;
CREATE TRIGGER pgjobs_job_postpone BEFORE INSERT ON pgjobs_job_live
    FOR EACH ROW WHEN (NEW.status = 'ready' AND NEW.due_at IS NULL AND NEW.run_after IS NOT NULL)
    EXECUTE FUNCTION pgjobs_postpone_v1();
"""

# Changed in place, because every release wants it: a claim that cannot overflow.
REPLACE_IN_RESOLVE = """
DO $do$
DECLARE
    former text := pg_get_functiondef('pgjobs_resolve_v1(bigint[])'::regprocedure);
    latter text := replace(former, $text${former}$text$, $text${latter}$text$);
BEGIN
    IF former = latter THEN
        RAISE EXCEPTION 'pgjobs_resolve_v1 is not the function that was expected';
    END IF;
    EXECUTE latter;
END
$do$;
"""
RAISING = "claim = job.claim + (effect.culprit_id IS NOT NULL)::integer"
WRAPPING = """claim = GREATEST(job.claim, 0) % 9000000000000000000
                                + (effect.culprit_id IS NOT NULL)::integer"""


def alter_columns(*changes: str) -> str:
    """Return the statement that makes changes of the table of jobs."""
    return "ALTER TABLE pgjobs_job\n    " + ",\n    ".join(changes) + ";"


def use_domains() -> str:
    """Return the statements that put domains in the place of constraints of the table."""
    names = [domain.constraint for domain in DOMAINS if domain.former]
    return "\n".join(
        [
            DROP_DEPENDENTS,
            alter_columns(*(f"DROP CONSTRAINT {name}" for name in names)),
            *(f"CREATE DOMAIN {domain.name} AS {domain.base};" for domain in DOMAINS),
            # Without constraints yet, a domain is its type: no row is written.
            alter_columns(
                *(
                    f"ALTER COLUMN {column} TYPE {domain.name}"
                    for domain in DOMAINS
                    for column in domain.columns
                )
            ),
            *(
                f"ALTER DOMAIN {domain.name} ADD CONSTRAINT {domain.constraint}"
                f" CHECK ({domain.condition.replace('{}', 'VALUE')}) NOT VALID;"
                for domain in DOMAINS
            ),
            CREATE_DEPENDENTS,
        ]
    )


def use_constraints() -> str:
    """Return the statements that put the constraints of the table back."""
    conditions = {
        domain.constraint: " AND ".join(
            f"({domain.condition.replace('{}', column)})" for column in domain.former
        )
        for domain in DOMAINS
        if domain.former
    }
    return "\n".join(
        [
            DROP_DEPENDENTS,
            alter_columns(
                *(
                    f"ALTER COLUMN {column} TYPE {domain.base}"
                    for domain in DOMAINS
                    for column in domain.columns
                )
            ),
            *(f"DROP DOMAIN {domain.name};" for domain in DOMAINS),
            alter_columns(*(f"ADD CONSTRAINT {n} CHECK ({c})" for n, c in conditions.items())),
            CREATE_DEPENDENTS,
        ]
    )


class Migration(migrations.Migration):
    dependencies = [("pgjobs", "0006_key_running")]
    operations = [
        PostgresSQL(use_domains(), use_constraints()),
        PostgresSQL(
            REPLACE_IN_RESOLVE.format(former=RAISING, latter=WRAPPING),
            REPLACE_IN_RESOLVE.format(former=WRAPPING, latter=RAISING),
        ),
    ]
