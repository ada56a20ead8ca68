"""`INSERT INTO pgjobs_job` from anywhere: psql, a trigger, another language.

Everything but the task's path has a default; what could not run is refused by name.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, connection, transaction
from psycopg import errors, sql

from django_pgjobs.models import Job
from django_pgjobs.testing import run_jobs
from example_project.database import embedded_binaries
from tests.factories import get_job, make_worker
from tests.helpers import connect, database_url, execute, skip
from tests.models import Effect

pytestmark = pytest.mark.django_db

INSERT = "INSERT INTO pgjobs_job (task_path, args) VALUES ('tests.tasks.add', '[1, 2]')"
INSERTED = sql.SQL("INSERT INTO pgjobs_job ({}) VALUES ({}) RETURNING id")

Open = Callable[..., psycopg.Connection]


def insert(**columns: Any) -> Any:
    """Insert a job with these columns and return its row."""
    given = {"task_path": "tests.tasks.add", "args": "[1, 2]"} | columns
    names = sql.SQL(", ").join(map(sql.Identifier, given))
    values = sql.SQL(", ").join(
        value if isinstance(value, sql.Composable) else sql.Literal(value)
        for value in given.values()
    )
    [(job_id,)] = execute(INSERTED.format(names, values))
    return get_job(job_id)


def psql() -> str:
    """Return the path of the program psql."""
    try:
        return str(embedded_binaries() / "psql")
    except ImproperlyConfigured:
        return shutil.which("psql") or skip("psql is not installed") or ""


def test_two_columns_are_a_full_enqueue() -> None:
    """S1.7, S3.4: one plain INSERT."""
    execute(INSERT)
    job = Job.objects.get()
    assert (job.status, job.queue_name, job.backend) == ("ready", "default", "default")
    assert (job.args, job.kwargs, job.metadata, job.tags, job.errors) == ([1, 2], {}, {}, [], [])
    assert (job.priority, job.claim, job.attempts, job.lost_count) == (0, 0, 0, 0)
    assert (job.max_attempts, job.timeout) == (None, None)
    assert (job.run_after, job.due_at, job.started_at, job.finished_at) == (None,) * 4
    assert (job.worker_id, job.worker_ids, job.result, job.progress) == (None, [], None, None)
    assert (job.note, job.correlation_id, job.cancel_requested_at) == ("", "", None)
    assert job.enqueued_at is not None
    assert run_jobs() == 1
    job.refresh_from_db()
    assert (job.status, job.result) == ("successful", 3)


def test_a_path_is_enough_for_a_task_without_arguments() -> None:
    execute("INSERT INTO pgjobs_job (task_path) VALUES ('tests.tasks.describe_job')")
    assert run_jobs() == 1
    assert Job.objects.get().result["max_attempts"] == 25


@pytest.mark.parametrize(
    ("path", "declared"), [("tests.tasks.fail", 3), ("tests.tasks.fail_once", 1)]
)
def test_without_max_attempts_the_declaration_of_the_task_counts(path: str, declared: int) -> None:
    execute("INSERT INTO pgjobs_job (task_path) VALUES (%s)", path)
    assert run_jobs() == declared
    assert Job.objects.get().status == "failed"


@pytest.mark.process
@pytest.mark.django_db(transaction=True)
def test_psql_enqueues() -> None:
    output = subprocess.run(
        [psql(), database_url(), "-Atq", "-v", "ON_ERROR_STOP=1", "-c", f"{INSERT} RETURNING id"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert get_job(output.strip()).args == [1, 2]
    assert run_jobs() == 1


@pytest.mark.django_db(transaction=True)
def test_another_language_enqueues_with_untyped_parameters() -> None:
    """What any driver of libpq's protocol sends: text, its types unknown."""
    with connect() as client:
        done = client.pgconn.exec_params(
            b"INSERT INTO pgjobs_job (task_path, kwargs, queue_name, priority, run_after, tags)"
            b" VALUES ($1, $2, $3, $4, $5, $6)",
            [b"tests.tasks.add", b'{"a": 1, "b": 2}', b"q", b"7", b"2001-01-01", b"{x,y}"],
        )
        assert done.error_message == b""
    job = Job.objects.get()
    assert (job.kwargs, job.queue_name, job.priority) == ({"a": 1, "b": 2}, "q", 7)
    assert (job.tags, job.due_at) == (["x", "y"], None)


@pytest.mark.slow
def test_copy_enqueues() -> None:
    with connection.cursor() as cursor:
        with cursor.copy("COPY pgjobs_job (task_path, args) FROM STDIN") as copy:
            for number in range(100):
                copy.write_row(["tests.tasks.add", f"[{number}, 1]"])
    assert run_jobs() == 100


def test_a_job_and_its_data_are_written_in_one_statement() -> None:
    """S5.2."""
    execute(
        "WITH effect AS (INSERT INTO tests_effect (key, made_at) VALUES ('x', now()) RETURNING id)"
        " INSERT INTO pgjobs_job (task_path, kwargs)"
        " SELECT 'tests.tasks.add', json_build_object('a', id, 'b', 0) FROM effect"
    )
    assert run_jobs() == 1
    assert Job.objects.get().result == Effect.objects.get().pk


def test_a_trigger_of_the_project_enqueues() -> None:
    execute(
        "CREATE FUNCTION enqueue_effect() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " INSERT INTO pgjobs_job (task_path, args)"
        " VALUES ('tests.tasks.echo', json_build_array(NEW.key)); RETURN NEW; END $$;"
        "CREATE TRIGGER enqueue_effect AFTER INSERT ON tests_effect"
        " FOR EACH ROW EXECUTE FUNCTION enqueue_effect()"
    )
    Effect.objects.create(key="ä")
    assert run_jobs() == 1
    assert Job.objects.get().result == [["ä"], {}]


@pytest.mark.parametrize(
    ("run_after", "is_due"),
    [
        ("now() + interval '1 hour'", False),
        ("now() - interval '1 hour'", True),
        ("'0001-01-02 00:00+00'", True),
        ("'9999-12-30 00:00+00'", False),
        ("NULL", True),
    ],
)
def test_run_after_is_honoured(run_after: str, is_due: bool) -> None:
    """S1.22."""
    job = insert(run_after=sql.SQL(run_after))
    assert (job.due_at is None) == is_due
    assert run_jobs(at_once=False) == int(is_due)


TOO_LONG = sql.SQL("('\"' || repeat('x', 1048576) || '\"')::json")
BAD_JSON = errors.InvalidTextRepresentation
# column, value, exception, and the constraint or words it names
BAD = [
    ("args", "[1,", BAD_JSON, "invalid input syntax for type json"),
    ("kwargs", "{'a': 1}", BAD_JSON, "invalid input syntax for type json"),
    ("args", '["\\u0000"]', errors.UntranslatableCharacter, "unsupported Unicode escape"),
    ("kwargs", '{"\\u0000": 1}', errors.UntranslatableCharacter, "unsupported Unicode escape"),
    ("args", '["\\ud800"]', BAD_JSON, "surrogate"),
    ("metadata", '{"a": NaN}', BAD_JSON, "invalid input syntax for type json"),
    ("args", TOO_LONG, errors.CheckViolation, "pgjobs_payload_is_at_most_1_mib"),
    ("kwargs", TOO_LONG, errors.CheckViolation, "pgjobs_payload_is_at_most_1_mib"),
    ("metadata", TOO_LONG, errors.CheckViolation, "pgjobs_payload_is_at_most_1_mib"),
    ("args", None, errors.NotNullViolation, '"args"'),
    ("task_path", None, errors.NotNullViolation, '"task_path"'),
    ("task_path", "", errors.CheckViolation, "pgjobs_task_path_has_1_to_512_bytes"),
    ("task_path", "ä" * 257, errors.CheckViolation, "pgjobs_task_path_has_1_to_512_bytes"),
    ("queue_name", "", errors.CheckViolation, "pgjobs_queue_name_has_1_to_128_bytes"),
    ("queue_name", "ä" * 65, errors.CheckViolation, "pgjobs_queue_name_has_1_to_128_bytes"),
    ("backend", "", errors.CheckViolation, "pgjobs_backend_has_1_to_128_bytes"),
    ("priority", 101, errors.CheckViolation, "pgjobs_priority_is_from_minus_100_to_100"),
    ("priority", -101, errors.CheckViolation, "pgjobs_priority_is_from_minus_100_to_100"),
    ("priority", 40_000, errors.NumericValueOutOfRange, "smallint out of range"),
    ("max_attempts", 0, errors.CheckViolation, "pgjobs_max_attempts_is_positive"),
    ("timeout", 0, errors.CheckViolation, "pgjobs_timeout_is_positive_and_finite"),
    ("timeout", -1, errors.CheckViolation, "pgjobs_timeout_is_positive_and_finite"),
    ("timeout", "NaN", errors.CheckViolation, "pgjobs_timeout_is_positive_and_finite"),
    ("timeout", "Infinity", errors.CheckViolation, "pgjobs_timeout_is_positive_and_finite"),
    ("run_after", "infinity", errors.CheckViolation, "pgjobs_times_are_in_the_years_1_to_9999"),
    ("run_after", "-infinity", errors.CheckViolation, "pgjobs_times_are_in_the_years_1_to_9999"),
    ("run_after", "20000-01-01", errors.CheckViolation, "pgjobs_times_are_in_the_years_1_to_9999"),
    ("enqueued_at", "infinity", errors.CheckViolation, "pgjobs_times_are_in_the_years_1_to_9999"),
    ("due_at", "infinity", errors.CheckViolation, "pgjobs_times_are_in_the_years_1_to_9999"),
    ("run_after", "tomorrow-ish", errors.InvalidDatetimeFormat, "invalid input syntax"),
    ("status", "bogus", errors.CheckViolation, 'no partition of relation "pgjobs_job" found'),
]


@pytest.mark.parametrize(("column", "value", "error", "said"), BAD)
def test_a_row_that_could_not_run_is_refused_by_name(
    column: str, value: Any, error: type[psycopg.Error], said: str
) -> None:
    with pytest.raises(DatabaseError) as caught, transaction.atomic():
        insert(**{column: value})
    assert isinstance(caught.value.__cause__, error)
    assert said in str(caught.value)
    assert Job.objects.count() == 0


def test_what_is_just_within_the_bounds_is_taken() -> None:
    job = insert(
        args=sql.SQL("('[\"' || repeat('x', 1048572) || '\"]')::json"),
        task_path="t" * 512,
        queue_name="ä" * 64,
        priority=-100,
        max_attempts=2_147_483_647,
        timeout=0.001,
    )
    assert len(job.args[0]) == 1_048_572
    with pytest.raises(Exception, match="pgjobs_payload_is_at_most_1_mib"), transaction.atomic():
        execute("UPDATE pgjobs_job SET kwargs = %s", '{"a": "' + "x" * 1_048_576 + '"}')


@pytest.fixture
def listener(open_connection: Open) -> psycopg.Connection:
    """Listens as a worker does."""
    opened = open_connection()
    opened.execute("LISTEN pgjobs")
    return opened


def heard(listener: psycopg.Connection) -> list[str]:
    """Return the payloads that have come since the last call."""
    execute("NOTIFY pgjobs, 'the end'")
    payloads: Iterator[str] = (n.payload for n in listener.notifies(timeout=10))
    return sorted(iter(payloads.__next__, "the end"))


@pytest.mark.django_db(transaction=True)
def test_only_a_worker_that_listens_is_notified(listener: psycopg.Connection) -> None:
    """A notification costs everybody a lock at commit."""
    execute(INSERT)
    assert heard(listener) == []
    make_worker(listening=False)
    execute(INSERT)
    assert heard(listener) == []
    make_worker(listening=True)
    execute(INSERT)
    assert heard(listener) == ["default"]


@pytest.mark.django_db(transaction=True)
def test_a_statement_notifies_once_per_queue_and_says_only_its_name(
    listener: psycopg.Connection,
) -> None:
    make_worker(listening=True)
    execute(
        "INSERT INTO pgjobs_job (task_path, queue_name)"
        " SELECT 't', 'q' || number % 3 FROM generate_series(1, 100) AS number"
    )
    assert heard(listener) == ["q0", "q1", "q2"]
    execute("INSERT INTO pgjobs_job (task_path) SELECT 't' WHERE false")
    execute("INSERT INTO pgjobs_job (task_path, queue_name) VALUES ('t', %s)", "ä" * 64)
    assert heard(listener) == ["ä" * 64]


@pytest.mark.django_db(transaction=True)
def test_nobody_is_notified_before_the_commit_or_of_a_rollback(
    listener: psycopg.Connection,
) -> None:
    """Transactional enqueue."""
    make_worker(listening=True)
    with transaction.atomic():
        for _ in range(3):
            execute(INSERT)
        with connect() as other:
            other.execute("NOTIFY pgjobs, 'from another session'")
        assert [n.payload for n in listener.notifies(timeout=10, stop_after=1)] == [
            "from another session"
        ]
    assert heard(listener) == ["default"]
    with transaction.atomic():
        execute(INSERT)
        transaction.set_rollback(True)
    assert heard(listener) == []


@pytest.mark.django_db(transaction=True)
def test_tables_of_a_session_do_not_stand_in_for_ours(listener: psycopg.Connection) -> None:
    """Temporary tables come first in the search path, but not in our triggers."""
    make_worker(listening=True)
    execute("CREATE TEMP TABLE pgjobs_worker (listening bool)")
    execute(
        "CREATE FUNCTION pg_temp.pg_notify(text, text) RETURNS void LANGUAGE sql AS"
        " $$ SELECT 1/0 $$; SET search_path = pg_temp, public"
    )
    execute(INSERT)
    execute("RESET search_path; DROP TABLE pg_temp.pgjobs_worker")
    assert heard(listener) == ["default"]


def test_functions_run_with_the_rights_of_the_caller_and_a_fixed_path() -> None:
    rows = execute(
        "SELECT proname, prosecdef, proconfig FROM pg_proc"
        " WHERE proname LIKE 'pgjobs%%' AND prokind = 'f'"
    )
    assert {"pgjobs_wake_v1", "pgjobs_merge_v1"} <= {name for name, _, _ in rows}
    assert {(definer, config[0]) for _, definer, config in rows} == {
        (False, "search_path=pg_catalog, pg_temp")
    }


def test_functions_that_read_tables_compile_nothing() -> None:
    """They read a few rows, at a cost that PostgreSQL may take for a reason to compile them."""
    rows = execute(
        "SELECT proname, proconfig FROM pg_proc WHERE proname LIKE 'pgjobs%%'"
        " AND prosrc ~ '(FROM|JOIN|UPDATE|INTO)[[:space:]]+[^[:space:]]*pgjobs_'"
    )
    assert {name for name, _ in rows} >= {
        "pgjobs_wake_v1",
        "pgjobs_resolve_v1",
        "pgjobs_recheck_v1",
    }
    assert [name for name, config in rows if "jit=off" not in config] == []


def test_a_role_that_may_only_insert_can_enqueue_and_nothing_else() -> None:
    execute(
        "CREATE ROLE pgjobs_test_enqueuer;"
        "GRANT USAGE ON SCHEMA public TO pgjobs_test_enqueuer;"
        "GRANT INSERT (task_path, args, kwargs, queue_name, run_after) ON pgjobs_job"
        " TO pgjobs_test_enqueuer;"
        "GRANT USAGE ON SEQUENCE pgjobs_job_id_seq TO pgjobs_test_enqueuer;"
        "GRANT SELECT (listening) ON pgjobs_worker TO pgjobs_test_enqueuer;"
        "SET LOCAL ROLE pgjobs_test_enqueuer"
    )
    execute(INSERT)
    for forbidden in (
        "SELECT args FROM pgjobs_job",
        "UPDATE pgjobs_job SET args = '[]'",
        "DELETE FROM pgjobs_job",
        "INSERT INTO pgjobs_job (task_path, status) VALUES ('t', 'running')",
        "SELECT task_paths FROM pgjobs_worker",
    ):
        with pytest.raises(Exception, match="permission denied"), transaction.atomic():
            execute(forbidden)
    execute("RESET ROLE")
    assert run_jobs() == 1


def test_ids_go_beyond_what_32_bits_hold() -> None:
    execute("SELECT setval('pgjobs_job_id_seq', 2147483647)")
    assert insert().id == 2_147_483_648


def test_status_and_length_of_a_queue_are_a_query() -> None:
    """S1.7: observed with the skills and tools one has."""
    execute(INSERT)
    execute(INSERT)
    run_jobs(limit=2)
    execute(INSERT)
    rows = execute("SELECT status, count(*) FROM pgjobs_job GROUP BY status ORDER BY status")
    assert rows == [("ready", 1), ("successful", 2)]


def test_the_schema_is_readable_without_python() -> None:
    """The tables say what belongs where: a partition per group of statuses."""
    rows = execute(
        "SELECT relname, pg_get_expr(relpartbound, oid) FROM pg_class"
        " WHERE relispartition AND relkind = 'r' ORDER BY relname"
    )
    assert rows == [
        ("pgjobs_job_finished", "FOR VALUES IN ('successful', 'failed', 'cancelled')"),
        ("pgjobs_job_live", "FOR VALUES IN ('ready', 'running')"),
    ]
