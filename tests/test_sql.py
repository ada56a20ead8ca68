"""The SQL files against the migrated schema: they parse, they are typed, their plans hold.

A statement's header names the indexes it relies on; here it is planned as the worker's
connections plan it (one generic plan) over 100,000 live jobs, and must use them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.apps import apps
from django.db import connection, transaction

from django_pgjobs.queries.cursor import raw_statement, statement
from django_pgjobs.queries.own_settings import SERVER_SETTINGS
from django_pgjobs.sql import load
from tests import helpers
from tests.helpers import ROOT, in_a_loop

FOLDER = ROOT / "django_pgjobs" / "sql"
FILES = sorted(FOLDER.glob("*.sql"))
SECTIONS = ("Parameters", "Returns", "Locks", "Index")
PLACEHOLDER = re.compile(r"%\((\w+)\)s(::[a-z_]+(?: precision)?(?:\[\])?)?")
PREPARABLE = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH", "VALUES", "MERGE")
GENERIC_PLAN_VERSION = 160000
# The statements after which a job belongs to nobody who held it before.
RAISES_CLAIM = {
    "cancel_jobs",
    "claim_chosen",
    "claim_jobs",
    "claim_lanes",
    "discard_jobs",
    "expire_jobs",
    "fill_in_jobs",
    "give_back_in_batches",
    "give_back_jobs",
    "release_unheld_jobs",
    "requeue_jobs",
    "rescue_jobs",
}

LIVE_JOBS = 100_000
FINISHED_JOBS = 50_000
WORKERS = 200
# A hundredth runs, a tenth waits for its time, the rest is ready, in five queues.
LIVE_ROWS = """
INSERT INTO pgjobs_job (task_path, queue_name, priority, status, run_after, worker_id, claim,
                        attempts, enqueued_at, last_attempted_at)
SELECT 'shop.tasks.push', 'queue-' || number %% 5, number %% 3, kind.status,
       CASE WHEN number %% 10 = 1 THEN now() + number * interval '1 second' END,
       CASE WHEN kind.status = 'running' THEN 1 + number / 100 %% %(workers)s END,
       (kind.status = 'running')::int, (kind.status = 'running')::int,
       now() - interval '1 hour', CASE WHEN kind.status = 'running' THEN now() END
FROM generate_series(1, %(live)s) AS number
CROSS JOIN LATERAL (
    SELECT CASE WHEN number %% 100 = 0 THEN 'running' ELSE 'ready' END
) AS kind (status)
"""
FINISHED_ROWS = """
INSERT INTO pgjobs_job (task_path, status, enqueued_at, finished_at, attempts)
SELECT 'shop.tasks.push',
       (ARRAY['successful', 'successful', 'failed', 'cancelled'])[1 + number %% 4],
       now() - interval '1 day', now() - number * interval '1 second', 1
FROM generate_series(1, %(finished)s) AS number
"""
WORKER_ROWS = """
INSERT INTO pgjobs_worker (name, host, pid, version, lease_expires_at, ended_at, slots, backends,
                           task_paths, excluded_queues, lost, listening)
SELECT 'host:' || number, 'host', number, '0', now() + interval '1 minute',
       CASE WHEN number > 20 THEN now() END, 8, '{default}', '{shop.tasks.push}', '{}', false,
       number <= 20
FROM generate_series(1, %(workers)s) AS number
"""
# Ten to a tree, each behind the one before it; a hundredth of the trees is open.
BATCH_ROWS = """
WITH batch AS (
    INSERT INTO pgjobs_batch (id, root_id, parent_id, flow_id, tree_completed_at)
    SELECT number, number - number %% 10, CASE WHEN number %% 10 > 0 THEN number - number %% 10 END,
           number, CASE WHEN number %% 1000 >= 10 THEN now() - number * interval '1 minute' END
    FROM generate_series(10, 20009) AS number
    RETURNING id, root_id
),
change AS (
    INSERT INTO pgjobs_batch_change (batch_id, jobs) SELECT batch.id, 1 FROM batch
)
INSERT INTO pgjobs_batch_edge (batch_id, waits_for)
SELECT batch.id, batch.id - 1 FROM batch WHERE batch.id > batch.root_id + 1
"""
DEPENDENCY_ROWS = """
INSERT INTO pgjobs_dependency (predecessor_id, job_id, after_failure)
SELECT number, number + %(finished)s, 'cancel' FROM generate_series(1, 10000) AS number
"""
STATEMENTS = (LIVE_ROWS, FINISHED_ROWS, WORKER_ROWS, BATCH_ROWS, DEPENDENCY_ROWS)
ANALYSED = (
    "pgjobs_job",
    "pgjobs_worker",
    "pgjobs_dependency",
    "pgjobs_batch",
    "pgjobs_batch_change",
    "pgjobs_batch_edge",
)


def body(path: Path) -> str:
    """Return the statement without its comments, and without what may stand in place of parts."""
    return load(path.stem).strip()


def header(path: Path) -> str:
    """Return the comment at the top of the file, without the dashes."""
    found = []
    for line in path.read_text().splitlines():
        if not line.startswith("--"):
            break
        found.append(line.removeprefix("--").removeprefix(" "))
    return "\n".join(found)


def section(path: Path, name: str) -> str:
    """Return the text after `-- <name>:` in the header, up to the next section."""
    ends = "|".join(f"{other}:" for other in SECTIONS)
    found = re.search(rf"^{name}:(.*?)(?=^(?:{ends})|\Z)", header(path), re.MULTILINE | re.DOTALL)
    assert found, f"{path.name}: the header has no line -- {name}:"
    return " ".join(found[1].split())


def placeholders(path: Path) -> dict[str, str]:
    """Return name -> type of the parameters; fail if one is not cast or cast to two types."""
    types: dict[str, str] = {}
    for name, cast in PLACEHOLDER.findall(body(path)):
        assert cast, f"{path.name}: cast %({name})s, like %({name})s::bigint"
        assert types.setdefault(name, cast[2:]) == cast[2:], f"{path.name}: two types for {name}"
    return types


def numbered(path: Path) -> str:
    """Return the statement with $1, $2 ... for its placeholders, as the server sees it."""
    order = {name: f"${number}" for number, name in enumerate(placeholders(path), 1)}
    text = PLACEHOLDER.sub(lambda found: order[found[1]] + (found[2] or ""), body(path))
    return text.replace("%%", "%")


def is_preparable(path: Path) -> bool:
    """Return whether PostgreSQL can prepare and plan the statement (LISTEN, say, it cannot)."""
    return body(path).split(None, 1)[0].upper() in PREPARABLE


def included(path: Path) -> list[Path]:
    """Return the files whose rows the statement selects of."""
    return [FOLDER / f"{name}.sql" for name in re.findall(r"\{rows of (\w+)\}", path.read_text())]


def named_indexes(path: Path) -> list[str]:
    """Return the indexes of the `-- Index:` lines of the file and of those that it includes."""
    texts = [section(each, "Index") for each in (path, *included(path))]
    named = [text for text in texts if not re.match(r"none\b", text)]
    return re.findall(r"\bpgjobs_\w+", " ".join(named))


def test_there_are_statements() -> None:
    assert len(FILES) > 5


@in_a_loop("path", FILES)
def test_a_statement_has_its_header(path: Path) -> None:
    purpose = header(path).split("Parameters:")[0].strip()
    assert re.match(r"[A-Z].*\.", purpose, re.DOTALL), f"{path.name}: begin with a sentence"
    for name in SECTIONS:
        assert section(path, name), f"{path.name}: -- {name}: is empty"
    text = section(path, "Index")
    assert named_indexes(path) or text.startswith("none"), f"{path.name}: -- Index: {text}"


@in_a_loop("path", FILES)
def test_a_statement_names_its_parameters_in_the_header(path: Path) -> None:
    text = section(path, "Parameters")
    borrowed = re.match(r"as (\w+)", text)
    while borrowed:
        lent = section(FOLDER / f"{borrowed[1]}.sql", "Parameters")
        text += " " + lent
        borrowed = re.match(r"as (\w+)", lent)
    text += " ".join(section(each, "Parameters") for each in included(path))
    missing = [name for name in placeholders(path) if not re.search(rf"\b{name}\b", text)]
    assert not missing, f"{path.name}: -- Parameters: does not explain {missing}"


@in_a_loop("path", FILES)
def test_a_statement_is_static(path: Path) -> None:
    text = body(path)
    assert "SELECT *" not in text.upper().replace("\n", " "), f"{path.name}: list the columns"
    assert ";" not in text, f"{path.name}: one statement per file"
    assert not re.search(r"\b(select|update|insert|delete|where|from)\b", text), (
        f"{path.name}: keywords in capitals"
    )
    assert not re.search(r"(?<!%)%(?![(%])", text), f"{path.name}: double the % sign"


@in_a_loop("path", FILES)
def test_no_update_of_jobs_names_a_key_that_it_does_not_change(path: Path) -> None:
    """It would call the function that computes the lane, for every row."""
    keys = "concurrency_key|rate_limit_keys|lane"
    assert not re.search(rf"(?<![\w.])({keys}) = job\.\1\b", body(path))


@pytest.mark.slow
@in_a_loop("path", FILES)
def test_a_claim_rises_in_one_way_only(path: Path) -> None:
    """And in none that can overflow, see django_pgjobs.sql."""
    risen = re.findall(r"(.*\bclaim\b.*?)\s*\+\s*1\b", body(path))
    assert bool(risen) == (path.stem in RAISES_CLAIM)
    assert all(
        re.search(r"mod\(GREATEST\((job\.)?claim, 0\), (9000000000|8999999990)000000000\)", r)
        for r in risen
    )


@pytest.mark.django_db
@in_a_loop("path", FILES)
def test_a_statement_prepares_against_the_schema(path: Path) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        if is_preparable(path):
            types = ", ".join(placeholders(path).values())
            cursor.execute(f"PREPARE tried{f' ({types})' if types else ''} AS {numbered(path)}")
            cursor.execute("DEALLOCATE tried")
        else:
            cursor.execute(numbered(path))


@pytest.fixture(scope="module")
def full_database(django_db_setup: None, django_db_blocker: Any) -> Iterator[psycopg.Connection]:
    """A connection set up like the worker's, in a transaction with many jobs, rolled back."""
    with django_db_blocker.unblock():
        with helpers.connect(autocommit=False) as client:
            sizes = {"live": LIVE_JOBS, "finished": FINISHED_JOBS, "workers": WORKERS}
            for statement in STATEMENTS:
                client.execute(statement, sizes)
            client.execute(f"ANALYZE {', '.join(ANALYSED)}")
            for name, value in SERVER_SETTINGS.items():
                if name not in ("default_transaction_isolation", "search_path"):
                    # Older servers do not know all of them.
                    client.execute(
                        "SELECT set_config(%(name)s, %(value)s, true)"
                        " WHERE current_setting(%(name)s, true) IS NOT NULL",
                        {"name": name, "value": str(value)},
                    )
            yield client
            client.rollback()


def plan(client: psycopg.Connection, path: Path) -> str:
    """Return the generic plan of a statement as text."""
    types = placeholders(path)
    if client.info.server_version >= GENERIC_PLAN_VERSION:
        rows = client.execute(f"EXPLAIN (GENERIC_PLAN, COSTS OFF) {numbered(path)}".encode())
    else:
        signature = f" ({', '.join(types.values())})" if types else ""
        client.execute(f"PREPARE planned{signature} AS {numbered(path)}".encode())
        nothing = f" ({', '.join(['NULL'] * len(types))})" if types else ""
        rows = client.execute(f"EXPLAIN (COSTS OFF) EXECUTE planned{nothing}".encode())
        client.execute("DEALLOCATE planned")
    return "\n".join(row[0] for row in rows.fetchall())


def full_scans(text: str) -> list[str]:
    """Return what reads jobs from end to end: tables, and indexes without a use for them.

    A condition on the status alone, the second column of the primary keys, is no use.
    """
    found = re.findall(r"Seq Scan on (pgjobs_job\w*)", text)
    for node in re.split(r"->", text):
        scan = re.search(r"Index (?:Only )?Scan (?:Backward )?using (\w+) on pgjobs_job", node)
        condition = re.search(r"Index Cond: (.*)", node)
        wanted = r"\bid\b" if scan and scan[1].endswith("_pkey") else ""
        if scan and not (condition and re.search(wanted, condition[1])):
            found.append(scan[1])
    return found


@pytest.mark.slow
@pytest.mark.django_db
@in_a_loop("path", FILES)
def test_a_statement_uses_the_index_it_names(path: Path, full_database: psycopg.Connection) -> None:
    """S4.9."""
    if not is_preparable(path):
        assert not named_indexes(path)
        return
    text = plan(full_database, path)
    for index in named_indexes(path):
        assert re.search(rf"\b{index}\b", text), f"{path.name}: {index} is not in its plan:\n{text}"
    lost = [scan for scan in full_scans(text) if scan not in named_indexes(path)]
    assert not lost, f"{path.name}: reads all rows through {lost}:\n{text}"


@pytest.mark.django_db
@in_a_loop("path", FILES)
def test_a_statement_without_an_index_reads_no_big_table(
    path: Path, full_database: psycopg.Connection
) -> None:
    if is_preparable(path) and not named_indexes(path):
        text = plan(full_database, path)
        assert not re.search(r"Scan .*pgjobs_job", text), f"{path.name} reads jobs:\n{text}"


@pytest.mark.django_db
@in_a_loop("path", FILES)
def test_a_raw_statement_is_what_psycopg_would_make_of_it(path: Path) -> None:
    raw, names = raw_statement(path.stem)
    named = {name: f"value of {name}" for name in names}
    with connection.cursor() as cursor:
        client = psycopg.ClientCursor(cursor.connection)
        text = client.mogrify(statement(path.stem), named)
    filled = re.sub(r"\$(\d+)", lambda found: f"'{named[names[int(found[1]) - 1]]}'", raw.decode())
    assert filled == text


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["list_heads", "explain_lane"])
def test_running_jobs_of_a_key_are_not_sought_among_all_that_run(
    name: str, full_database: psycopg.Connection
) -> None:
    """A worker plans once, perhaps while nothing runs: then all indexes look alike."""
    with full_database.transaction(force_rollback=True):
        full_database.execute("DROP INDEX pgjobs_job_key_running")
        text = plan(full_database, FOLDER / f"{name}.sql")
    [node] = re.findall(r"Scan.* on pgjobs_job_live running\b.*", text)
    assert "pgjobs_job_running" not in node


@pytest.mark.django_db
@pytest.mark.parametrize("model", ["job", "worker"])
def test_the_model_has_the_columns_of_the_table(model: str) -> None:
    """S1.8, S4.7, S5.6."""
    meta = apps.get_model("pgjobs", model)._meta
    assert meta.db_table == f"pgjobs_{model}"
    with connection.cursor() as cursor:
        table = connection.introspection.get_table_description(cursor, meta.db_table)
    engines_own = {"lane"} if model == "job" else set()
    columns = {column.name for column in table} - engines_own
    assert {field.column for field in meta.local_fields} == columns


def test_every_statement_is_used() -> None:
    code = "\n".join(path.read_text() for path in (FOLDER.parent / "queries").glob("*.py"))
    loaded = {path for path in FILES if re.search(rf"[\"']{path.stem}[\"']", code)}
    used = loaded.union(*map(included, loaded))
    unused = [path.stem for path in FILES if path not in used]
    assert not unused, f"no function in queries/ loads {unused}"
