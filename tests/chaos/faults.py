"""What goes wrong: one function a fault; the name of its family is in FAULTS.

Each does its harm and ends it before it returns, so that nothing is left of it when the time is
over. A fault may end early: *is_over* says so.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import psycopg
from django.db import DatabaseError, InterfaceError, connection, transaction

from django_pgjobs import JobError, cancel
from tests.chaos import tasks
from tests.chaos.journal import FAULT
from tests.chaos.world import LEASE_SECONDS, PATIENCE_SECONDS, World

TRIPPING = """
CREATE FUNCTION chaos_trip() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.id % {modulus} = 0 THEN RAISE EXCEPTION 'a trigger of the project objects'; END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER chaos_trip BEFORE UPDATE ON pgjobs_job_live
    FOR EACH ROW EXECUTE FUNCTION chaos_trip();
"""
UNTRIPPING = """
DROP TRIGGER IF EXISTS chaos_trip ON pgjobs_job_live;
DROP FUNCTION IF EXISTS chaos_trip;
"""
TYPE_OF_COLUMN = """
SELECT
    format_type(attribute.atttypid, attribute.atttypmod)
    || COALESCE(' COLLATE ' || quote_ident(place.collname), '')
FROM pg_attribute AS attribute
LEFT JOIN pg_collation AS place ON place.oid = attribute.attcollation
WHERE attribute.attrelid = 'pgjobs_job'::regclass AND attribute.attname = %s
"""
UNFINISHED = "SELECT id FROM pgjobs_job WHERE status IN ('ready', 'running')"
RUNNING = f"{UNFINISHED} AND status = 'running' ORDER BY random() LIMIT 2"
ROWS_TO_LOCK = (
    RUNNING,
    f"{UNFINISHED} AND status = 'ready' ORDER BY id LIMIT 5",
    f"{UNFINISHED} ORDER BY random() LIMIT 10",
)


def collation(kind: str) -> str:
    """Return the clause COLLATE of a column's type."""
    return kind[kind.index("COLLATE") :] if "COLLATE" in kind else ""


class Fault:
    """What a fault has at hand: the world, its own dice, and the end of the run."""

    def __init__(self, world: World, seed: str, is_over: threading.Event) -> None:
        self.world = world
        self.random = random.Random(seed)
        self.is_over = is_over

    def wait(self, least: float, most: float) -> None:
        """Let some seconds pass, fewer if the run is over."""
        self.is_over.wait(self.random.uniform(least, most))

    @contextmanager
    def session(self) -> Iterator[psycopg.Connection[Any]]:
        """Connect to the server as a person with psql does; who is cut off gives up."""
        with self.world.pair.connect(application_name="chaos") as session:
            # Others queue behind one that waits for a lock of the whole table.
            session.execute("SET lock_timeout = '3s'")
            yield session

    def insist(self, statement: str) -> None:
        """Execute a statement, whatever it takes."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                with self.session() as session:
                    session.execute(statement)
                    return
            except psycopg.Error:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.5)

    # Locks of users.

    def lock_rows(self) -> None:
        """Hold jobs by SELECT ... FOR UPDATE."""
        query = self.random.choice(ROWS_TO_LOCK)
        with self.session() as session, session.transaction():
            ids = [row[0] for row in session.execute(query).fetchall()]
            session.execute(
                "SELECT FROM pgjobs_job WHERE id = ANY (%s) FOR UPDATE SKIP LOCKED", [ids]
            )
            self.wait(1, 25)

    def lock_worker(self) -> None:
        """Hold the row of a worker, sometimes for longer than its lease."""
        with self.session() as session, session.transaction():
            session.execute(
                "SELECT FROM pgjobs_worker WHERE ended_at IS NULL"
                " ORDER BY random() LIMIT 1 FOR UPDATE"
            )
            self.wait(1, 2 * LEASE_SECONDS)

    def lock_keys(self) -> None:
        """Hold the row that the claims of jobs with keys take in turn."""
        with self.session() as session, session.transaction():
            session.execute("SELECT FROM pgjobs_keyed_claim FOR UPDATE")
            self.wait(0.5, 12)

    def lock_table(self) -> None:
        """Let nobody write for a moment, as CREATE INDEX does."""
        with self.session() as session, session.transaction():
            session.execute("LOCK TABLE pgjobs_job IN SHARE MODE")
            self.wait(0.1, 3)

    def cancel_slowly(self) -> None:
        """Ask running jobs to end, keep the transaction open, and perhaps roll back."""
        with self.session() as session:
            ids = session.execute(RUNNING).fetchall()
        try:
            with transaction.atomic():
                for (job,) in ids:
                    cancel(job)
                self.wait(1, 25)
                transaction.set_rollback(self.random.random() < 0.3)
        finally:
            connection.close()

    # What people do to the schema.

    def trip(self) -> None:
        """Let a trigger object to some of the rows for a while."""
        try:
            with self.session() as session:
                session.execute(TRIPPING.format(modulus=self.random.choice((5, 17, 50))))
            self.wait(3, 15)
        finally:
            self.insist(UNTRIPPING)

    def alter_column(self) -> None:
        """Change the type of a column, and back."""
        column = self.random.choice(("task_path", "queue_name", "backend", "note"))
        alter = f"ALTER TABLE pgjobs_job ALTER COLUMN {column} TYPE "
        with self.session() as session:
            row = session.execute(TYPE_OF_COLUMN, [column]).fetchone()
            usual = str(row and row[0])
            session.execute(f"{alter} varchar {collation(usual)}")
        self.wait(1, 5)
        self.insist(f"{alter} {usual}")

    # Processes.

    def kill_worker(self) -> None:
        """Kill a worker with all its processes, or a child of a supervisor."""
        crew = self.world.pick()
        with crew.lock:
            child = self.world.child_of(crew) if crew.is_supervised else None
            if child is not None and self.random.random() < 0.7:
                child.kill()
            else:
                crew.kill()

    def enqueue_killer(self) -> None:
        """Enqueue a job that kills its worker."""
        token = f"killer{self.random.random()}"
        with self.session() as session:
            session.execute(
                "INSERT INTO pgjobs_job (task_path, args, max_attempts)"
                " VALUES (%s, json_build_array(%s::text), 2)",
                [tasks.die.module_path, token],
            )

    def freeze_worker(self) -> None:
        """Stop a worker until others have taken its jobs, and let it go on."""
        crew = self.world.pick()
        with crew.lock:
            if crew.worker.is_running:
                crew.worker.pause()
                self.wait(0.5, 3 * LEASE_SECONDS)
                crew.worker.resume()

    def stop_worker(self) -> None:
        """Deploy: stop a worker in good order and start another."""
        crew = self.world.pick()
        with crew.lock:
            crew.stop(signal.SIGTERM, (0,))
            crew.replace()

    def reload_worker(self) -> None:
        """Let a supervisor replace its children, or a worker end to be started again."""
        crew = self.world.pick()
        with crew.lock:
            if not crew.worker.is_running:
                return
            if crew.is_supervised:
                crew.worker.send(signal.SIGHUP)
            else:
                crew.stop(signal.SIGHUP, (76,))
                crew.replace()

    # Workers over HTTP, and who serves them.

    def kill_remote(self) -> None:
        """Kill a worker over HTTP, and start another one."""
        self.world.site.kill_worker(self.random)

    def kill_web(self) -> None:
        """Kill a web server as a whole, and start it again, or one of its processes."""
        self.world.site.kill_web(self.random)

    def lose_answers(self) -> None:
        """Carry out what workers over HTTP ask for, and lose the answers."""
        self.world.site.lose_answers(self.random)

    # Connections and servers.

    def end_sessions(self) -> None:
        """End sessions on the server: of the workers, of the jobs, or of everybody."""
        names = self.random.choice(("pgjobs pump", "pgjobs lease", "pgjobs %", "%"))
        with self.world.outage(), self.session() as session:
            session.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE backend_type = 'client backend' AND application_name LIKE %s"
                " AND application_name <> 'chaos' AND pid <> pg_backend_pid()",
                [names],
            )

    def cut_network(self) -> None:
        """Reset, freeze or lose what goes through the proxy."""
        proxy = self.world.proxy
        how = self.random.choice(("cut", "freeze", "drop", "refuse"))
        with self.world.outage():
            if how == "cut":
                proxy.cut()
            elif how == "freeze":
                proxy.freeze()
                self.wait(0.5, 2 * LEASE_SECONDS)
                proxy.thaw()
            elif how == "drop":
                proxy.drop()
                self.wait(0.5, 2 * LEASE_SECONDS)
                proxy.undrop()
            else:
                proxy.refuse()
                proxy.cut()
                self.wait(0.5, 2 * LEASE_SECONDS)
                proxy.accept()

    def restart_server(self) -> None:
        """Stop or kill the server, and start it again after a while."""
        server = self.world.pair.primary
        with self.world.outage():
            self._end(server)
            self.wait(0, LEASE_SECONDS)
            server.start()

    def fail_over(self) -> None:
        """Lose the server, and let the one that follows it take its place."""
        pair, proxy = self.world.pair, self.world.proxy
        with self.world.outage():
            if self.random.random() < 0.5:
                # For a moment everybody is at a server that takes no writes.
                self.world.lead_to(pair.follower.port)
                proxy.cut()
                self.wait(0.5, 5)
            self._end(pair.primary)
            self.world.lead_to(pair.follower.port)
            self.wait(0, 3)
            pair.promote()
            if self.random.random() < 0.5:
                proxy.cut()
        pair.attach()

    def _end(self, server: Any) -> None:
        how = self.random.choice(("fast", "immediate", "kill"))
        if how == "kill":
            server.kill()
        else:
            server.stop(how)


Do = Callable[[Fault], None]

# Family -> its faults.
FAULTS: dict[str, list[Do]] = {
    "locks": [
        *(Fault.lock_rows, Fault.lock_rows, Fault.cancel_slowly),
        *(Fault.lock_worker, Fault.lock_keys, Fault.lock_table),
    ],
    "triggers": [Fault.trip],
    "schema": [Fault.alter_column],
    "sessions": [Fault.end_sessions],
    "kills": [Fault.kill_worker, Fault.kill_worker, Fault.enqueue_killer],
    "pauses": [Fault.freeze_worker],
    "stops": [Fault.stop_worker, Fault.reload_worker],
    "network": [Fault.cut_network],
    "restarts": [Fault.restart_server],
    "failover": [Fault.fail_over],
    "remote": [Fault.kill_remote, Fault.kill_web, Fault.lose_answers],
}
# What goes wrong one after the other: each of these moves something that the next one needs.
THREADS = (
    ("servers", ("network", "restarts", "failover", "triggers", "schema"), (5.0, 15.0)),
    ("processes", ("kills", "pauses", "stops", "sessions"), (1.0, 5.0)),
    ("elsewhere", ("remote",), (1.0, 5.0)),
    ("locks", ("locks",), (0.5, 3.0)),
    ("more locks", ("locks",), (0.5, 3.0)),
)


class Faults:
    """One thread that lets things go wrong, one after the other."""

    def __init__(self, fault: Fault, families: list[str], pauses: tuple[float, float]) -> None:
        self.fault = fault
        # Each family has the same share, however many faults it has.
        self.families = families
        self.pauses = pauses

    def run(self) -> None:
        """Let something go wrong again and again until the run is over."""
        fault, world = self.fault, self.fault.world
        fault.wait(*self.pauses)
        while self.families and not fault.is_over.is_set():
            do = fault.random.choice(FAULTS[fault.random.choice(self.families)])
            begun = time.monotonic()
            try:
                do(fault)
            except (psutil.NoSuchProcess, psycopg.Error, DatabaseError, InterfaceError, JobError):
                pass  # it has just ended, nobody answers, or somebody else held the lock
            world.journal.write(FAULT, what=f"{do.__name__}, {time.monotonic() - begun:.1f} s")
            fault.wait(*self.pauses)
