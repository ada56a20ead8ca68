"""docs/http-workers.md, word by word, in a folder that was empty."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import ROOT, TEST_SECONDS, skip, wait_until
from tests.process.projects import STATES, TASKS, Project, new_database
from tests.test_docs import CODE_BLOCK

pytestmark = pytest.mark.process

PAGE = ROOT / "docs" / "http-workers.md"
PORT = "8000"  # on the page
NAMED = re.compile(r"(?:#|//) ([\w/]+\.m?(?:py|js))\n")
IN_ANOTHER_TERMINAL = "<!-- in another terminal -->\n"
END = "end of the block"
PROGRAMS = ("curl", "jq", "node")


class Terminal:
    """A shell in the folder of a project."""

    def __init__(self, folder: Path) -> None:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        ours = {"PATH": path, "PYTHONPATH": str(ROOT), "DJANGO_SETTINGS_MODULE": "mysite.settings"}
        environment = {key: text for key, text in os.environ.items() if key != "DATABASE_URL"}
        self._shell = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env=environment | ours,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def begin(self, commands: str) -> None:
        """Run commands and do not wait."""
        assert self._shell.stdin
        self._shell.stdin.write(commands)
        self._shell.stdin.flush()

    def run(self, commands: str) -> str:
        """Run commands that have to end well, and return what they say."""
        assert self._shell.stdout
        self.begin(f"{commands}\necho; echo {END} $?\n")
        said = ""
        while END not in said:
            line = self._shell.stdout.readline()
            assert line, f"the shell has ended:\n{said}"
            said += line
        assert said.endswith(f"{END} 0\n"), f"{commands}\n{said}"
        return said.partition(END)[0]

    def close(self) -> None:
        """End everything that it has started."""
        os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.wait()
        for pipe in (self._shell.stdin, self._shell.stdout):
            assert pipe
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


@pytest.fixture
def project(tmp_path: Path, transactional_db: None) -> Iterator[Project]:
    """The project of the quick start."""
    with new_database() as database:
        project = Project(tmp_path)
        project.add_apps("shop", "django_pgjobs")
        project.set(DATABASES={"default": database}, TASKS=TASKS)
        (tmp_path / "django-pgjobs").symlink_to(ROOT)
        yield project


@pytest.fixture
def terminals(project: Project) -> Iterator[list[Terminal]]:
    """Two shells in its folder: of the calls, and of the server."""
    terminals = [Terminal(project.folder), Terminal(project.folder)]
    yield terminals
    for terminal in terminals:
        terminal.close()


def free_port() -> str:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return str(listener.getsockname()[1])


def is_open(port: str) -> bool:
    """Does somebody listen there?"""
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", int(port))) == 0


def same_shape(told: Any, found: Any) -> bool:
    """Has an answer the fields of that on the page, with values of the same kinds?"""
    if isinstance(told, dict) and told and isinstance(found, dict):
        return told.keys() == found.keys() and all(
            same_shape(told[key], found[key]) for key in told
        )
    if isinstance(told, list) and isinstance(found, list):
        return len(told) == len(found) and all(map(same_shape, told, found))
    return told == found or (isinstance(told, str | int | float) and type(told) is type(found))


@pytest.mark.time_limit(480)
def test_the_page_works_word_by_word(project: Project, terminals: list[Terminal]) -> None:
    """S2.31: every call on it, and what it answers; then both clients."""
    for program in PROGRAMS:
        if not any(Path(folder, program).exists() for folder in os.environ["PATH"].split(":")):
            skip(f"there is no {program} here")
    port, said = free_port(), ""
    text = PAGE.read_text().replace(PORT, port)
    here, there = terminals
    for found in CODE_BLOCK.finditer(text):
        language, code = found.groups()
        if named := NAMED.match(code):
            project.write(named[1], code)
        elif language == "json":
            answer = said[said.index("{") :].strip()
            assert same_shape(json.loads(code), json.loads(answer)), answer
        elif text[: found.start()].endswith(IN_ANOTHER_TERMINAL):
            there.begin(code)
            wait_until(lambda: is_open(port), timeout=TEST_SECONDS / 2)
        else:
            assert language == "sh", code
            said = here.run(code)
            if code.startswith(("python till", "node till")):
                wait_until(lambda: " ready " not in str(project.run(STATES)), interval=0.2)
                here.run("kill $!; wait $!")
    assert project.run(STATES) == [
        "shop.tasks.print_label successful label 7, 1 copy",
        "shop.tasks.print_label successful label 8, printed by Python",
        "shop.tasks.print_label successful label 9, printed by Node.js",
    ]
