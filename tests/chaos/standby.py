"""Two servers, one of which follows the other and may take its place.

Every commit waits until the follower has applied it (`synchronous_commit = remote_apply`), so
what was acknowledged before a failover is there after it.
"""

from __future__ import annotations

import pwd
import shutil
from pathlib import Path
from typing import Any

import psycopg

from tests.chaos.ledger import SETTINGS
from tests.helpers import wait_until
from tests.servers import PrivateCluster

DATABASE = "pgjobs"
START_SECONDS = 120.0


class Pair:
    """The server that takes writes, and one that follows it (if it is asked for)."""

    def __init__(self, folder: Path, *, follows: bool) -> None:
        settings = {**SETTINGS, "synchronous_commit": "remote_apply", "max_connections": "300"}
        self.servers = [PrivateCluster(folder / name, settings=settings) for name in ("a", "b")]
        self.follows = follows
        self.number = 0

    @property
    def primary(self) -> PrivateCluster:
        """The server that takes writes."""
        return self.servers[self.number]

    @property
    def follower(self) -> PrivateCluster:
        """The other one."""
        return self.servers[1 - self.number]

    @property
    def url(self) -> str:
        """An URL that leads to whichever of the two takes writes."""
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in self.servers)
        return f"postgresql://postgres@{hosts}/{DATABASE}?target_session_attrs=read-write"

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        """Connect to the server that takes writes, past all proxies."""
        url = self.primary.url(DATABASE)
        return psycopg.connect(url, autocommit=True, connect_timeout=10, **options)

    def start(self) -> None:
        """Start the first server with an empty database, and let the second follow."""
        self.primary.ensure_started()
        self.primary.create_database(DATABASE)
        self.attach()

    def attach(self) -> None:
        """Copy the server that takes writes, and let commits wait for the copy from now on."""
        if not self.follows:
            return
        self.follower.remove()
        copy(self.primary, self.follower.directory)
        self.follower.start()
        self._wait_for("SELECT EXISTS (SELECT FROM pg_stat_replication WHERE state = 'streaming')")
        with self.connect() as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            connection.execute("SELECT pg_reload_conf()")

    def promote(self) -> None:
        """Let the follower take the place of the other one, which must be down."""
        self.number = 1 - self.number
        with self.connect() as connection:
            connection.execute("SELECT pg_promote(wait => true, wait_seconds => 60)")
        self._wait_for("SELECT NOT pg_is_in_recovery()")

    def remove(self) -> None:
        """Stop both and delete their data."""
        for server in self.servers:
            server.remove()

    def _wait_for(self, question: str) -> None:
        with self.connect() as connection:
            wait_until(
                lambda: connection.execute(question).fetchone() == (True,),
                timeout=START_SECONDS,
                message=question,
            )


def copy(server: PrivateCluster, directory: Path) -> None:
    """Make a follower of *server* in *directory*, waiting for nobody when it is promoted."""
    directory.mkdir(mode=0o700)
    owner = pwd.getpwuid(server.directory.stat().st_uid)
    shutil.chown(directory, owner.pw_uid, owner.pw_gid)
    place = ("-h", "127.0.0.1", "-p", str(server.port), "-U", "postgres", "-D", directory)
    server.run("pg_basebackup", *place, "-R", "-X", "stream", "-c", "fast", "--no-sync")
    # It copies these too. One that names a process which is not reaped yet stops the next start.
    for lock in directory.glob(".s.PGSQL.*.lock"):
        lock.unlink()
    with (directory / "postgresql.auto.conf").open("a") as configuration:
        configuration.write("synchronous_standby_names = ''\n")
