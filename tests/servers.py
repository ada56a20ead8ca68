"""Servers that a test may break: a PostgreSQL cluster of its own, and PgBouncer.

As a program it runs a command against a fresh cluster, through DATABASE_URL:

    python -m tests.servers --bindir /usr/lib/postgresql/15/bin -- pytest
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg import sql

from example_project.database import THROWAWAY_SETTINGS, Cluster, embedded_binaries, parse_url
from tests.helpers import database_url, settings_of, skip, wait_until

# Kills of processes, not of machines, are what the tests do to this server. Tests send on Django's
# connection what a worker sends on its own, which compiles no statement.
FAST_SETTINGS = THROWAWAY_SETTINGS | {"autovacuum": "off", "jit": "off"}


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class PrivateCluster(Cluster):
    """A PostgreSQL server that belongs to the tests: stop it, kill it, start it again.

    It listens on 127.0.0.1 and a Unix socket. PGJOBS_TEST_PG_BINDIR names the directory of
    the server's programs; default: the embedded PostgreSQL.
    """

    def __init__(self, directory: Path, *, settings: Mapping[str, str] | None = None) -> None:
        bindir = os.environ.get("PGJOBS_TEST_PG_BINDIR")
        super().__init__(
            directory,
            bindir=Path(bindir) if bindir else embedded_binaries(),
            port=free_port(),
            settings={"listen_addresses": "127.0.0.1"} | FAST_SETTINGS | dict(settings or {}),
        )

        # The fixture `private_database` has migrated the database.
        self.is_migrated = False

    @property
    def is_running(self) -> bool:
        """Whether the server answers."""
        return self.socket_directory() is not None

    def url(self, database: str = "postgres", user: str = "postgres") -> str:
        """Return the URL (TCP) of *database*."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def create_database(self, name: str) -> dict[str, Any]:
        """Create the database *name* unless it is there; return Django's settings for it."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            with contextlib.suppress(psycopg.errors.DuplicateDatabase):
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return parse_url(self.url(name))

    def ensure_started(self) -> None:
        """Start the server if it is down."""
        self.initialise()
        if not self.is_running:
            self.start()

    def restart(self, mode: str = "fast") -> None:
        """Stop, ending every session, and start again on the same port."""
        self.stop(mode)
        self.start()

    def kill(self) -> None:
        """Kill the server's first process with SIGKILL and wait until all are gone."""
        postmaster = int((self.directory / "postmaster.pid").read_text().splitlines()[0])
        children = [child.pid for child in psutil.Process(postmaster).children()]
        for pid in (postmaster, *children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(
            lambda: not any(is_alive(pid) for pid in (postmaster, *children)),
            message="killed processes of PostgreSQL are still there",
        )
        # In a container without an init process the dead stay as zombies, which these files
        # would let pass for a living server.
        for name in ("postmaster.pid", f".s.PGSQL.{self.port}.lock"):
            (self.directory / name).unlink(missing_ok=True)

    def make_standby(self, directory: Path) -> PrivateCluster:
        """Copy this server to *directory* and start the copy as its streaming standby.

        *directory* must not exist; its parents must be open to the server's user.
        """
        standby = PrivateCluster(directory, settings=self.settings)
        directory.mkdir(mode=0o700)
        if user := self._user():
            shutil.chown(directory, user)
        self.run(
            "pg_basebackup", "--pgdata", directory, "--write-recovery-conf", "--checkpoint=fast",
            "--no-sync", "--host=127.0.0.1", f"--port={self.port}", "--username=postgres",
        )  # fmt: skip
        standby.start()
        return standby

    def promote(self) -> None:
        """Let a standby become a server that takes writes, and wait until it does."""
        self.pg_ctl("promote")

    def position(self) -> str:
        """Return how far this server has written its log, for `wait_for_position` of a standby."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            row = connection.execute("SELECT pg_current_wal_lsn()::text").fetchone()
        assert row is not None
        return str(row[0])

    def wait_for_position(self, position: str) -> None:
        """Wait until this standby has replayed the log of its primary up to *position*."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            wait_until(
                lambda: (
                    connection.execute(
                        "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", [position]
                    ).fetchone()
                    == (True,)
                ),
                message="the standby does not follow",
            )

    def remove(self) -> None:
        """Stop the server for good and delete its data."""
        if self.is_running:
            self.stop("immediate")
        shutil.rmtree(self.directory, ignore_errors=True)


def is_alive(pid: int) -> bool:
    """Return whether *pid* is a process that still does something (a zombie does not)."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@contextlib.contextmanager
def temporary_cluster(**settings: str) -> Iterator[PrivateCluster]:
    """Run a new PostgreSQL cluster in a temporary directory, and remove it at the end."""
    # Not pytest's tmp_path: its parents are closed to the server's user.
    with tempfile.TemporaryDirectory(prefix="pgjobs-", ignore_cleanup_errors=True) as home:
        os.chmod(home, 0o755)
        cluster = PrivateCluster(Path(home) / "data", settings=settings)
        try:
            cluster.ensure_started()
            yield cluster
        finally:
            cluster.remove()


@contextlib.contextmanager
def temporary_standby(primary: PrivateCluster) -> Iterator[PrivateCluster]:
    """Run a streaming standby of *primary* in a temporary directory, and remove it at the end."""
    with tempfile.TemporaryDirectory(prefix="pgjobs-", ignore_cleanup_errors=True) as home:
        os.chmod(home, 0o755)
        standby = primary.make_standby(Path(home) / "data")
        try:
            yield standby
        finally:
            standby.remove()


class PgBouncer:
    """PgBouncer in transaction mode in front of the database of Django's *settings*.

    Its own settings are its defaults: what an ordinary installation has.
    """

    def __init__(self, directory: Path, settings: Mapping[str, Any] | None = None) -> None:
        self.settings = dict(settings or settings_of())
        self.directory = directory
        self.port = free_port()
        self.log = directory / "pgbouncer.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The database's URL through PgBouncer."""
        return database_url(
            self.settings, HOST="127.0.0.1", PORT=self.port, PASSWORD="", OPTIONS={}
        )

    def start(self) -> None:
        """Start PgBouncer and wait until it listens; skip the test if it is not installed."""
        program = shutil.which("pgbouncer", path=os.environ.get("PATH", "") + ":/usr/sbin")
        if program is None:
            skip("pgbouncer is not installed (apt-get install pgbouncer)")
            return
        self._write_configuration()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [program, str(self.directory / "pgbouncer.ini")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                **self._user(),
            )
        wait_until(self._listens, message=lambda: self.log.read_text(errors="replace"))

    def stop(self) -> None:
        """End PgBouncer, and every connection through it."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def restart(self) -> None:
        """End every connection through PgBouncer and take new ones on the same port."""
        self.stop()
        self.start()

    def _listens(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, "PgBouncer ended at once"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def _write_configuration(self) -> None:
        target = {
            "host": self.settings.get("HOST") or "127.0.0.1",
            "port": self.settings.get("PORT") or 5432,
            "user": self.settings.get("USER") or pwd.getpwuid(os.geteuid()).pw_name,
        }
        if self.settings.get("PASSWORD"):
            target["password"] = self.settings["PASSWORD"]
        place = " ".join(
            f"{key}='{str(value).replace(chr(39), chr(39) * 2)}'" for key, value in target.items()
        )
        configuration = self.directory / "pgbouncer.ini"
        configuration.write_text(
            f"[databases]\n* = {place}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
            f"listen_port = {self.port}\nunix_socket_dir =\nauth_type = any\n"
            "pool_mode = transaction\ndefault_pool_size = 20\n"
        )
        configuration.chmod(0o644)

    def _user(self) -> dict[str, Any]:
        """Who runs it: not root; the owner of the server's socket, who may enter there."""
        if os.geteuid() != 0:
            return {}
        host = str(self.settings.get("HOST") or "")
        owner = Path(host).stat().st_uid if host.startswith("/") else 0
        who = pwd.getpwuid(owner) if owner else pwd.getpwnam("nobody")
        return {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": []}


def drop_stale_test_databases() -> None:
    """Drop what killed test runs have left on the embedded server (test_pgjobs_<pid>)."""
    maintenance = database_url(NAME="postgres")
    with psycopg.connect(maintenance, autocommit=True) as connection:
        found = connection.execute(
            r"SELECT datname FROM pg_database WHERE datname ~ '^test_pgjobs_\d+$'"
        ).fetchall()
        for (name,) in found:
            if not is_alive(int(name.rsplit("_", 1)[1])):
                connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def main() -> int:
    """Run a command against a cluster of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bindir", required=True, help="where initdb and postgres are")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    os.environ["PGJOBS_TEST_PG_BINDIR"] = options.bindir
    with temporary_cluster() as cluster:
        url = cluster.url()
        print(f"PostgreSQL in {options.bindir} answers at {url}", flush=True)
        command = options.command[1:] if options.command[:1] == ["--"] else options.command
        return subprocess.run(
            command, env=os.environ | {"DATABASE_URL": url}, check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
