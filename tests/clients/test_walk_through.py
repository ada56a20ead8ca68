"""The pages about HTTP that are walked through, word by word, in a folder that was empty."""

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

WORKERS, WORKFLOWS = (ROOT / "docs" / f"http-{name}.md" for name in ("workers", "workflows"))
PORT = "8000"  # on the page
NAMED = re.compile(r"(?:#|//) ([\w/]+\.m?(?:py|js))\n")
# A file of JSON, which cannot say its name itself.
NAMED_BEFORE = re.compile(r"This is `(\w+\.json)`:\n\n\Z")
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


def last_object(said: str) -> Any:
    """Return the last object of JSON among what commands have said."""
    found, place = None, said.find("{")
    while place >= 0:
        found, end = json.JSONDecoder().raw_decode(said, place)
        place = said.find("{", end)
    return found


class Walk:
    """Somebody who does what pages say, one after the other."""

    def __init__(self, project: Project, terminals: list[Terminal]) -> None:
        for program in PROGRAMS:
            if not any(Path(folder, program).exists() for folder in os.environ["PATH"].split(":")):
                skip(f"there is no {program} here")
        self._project = project
        self._here, self._there = terminals
        self._port = free_port()
        self._said = ""
        self._written: set[str] = set()

    def write_modules(self, page: Path) -> None:
        """Write those of a page that comes when the server runs, and would start it anew."""
        for _, code in CODE_BLOCK.findall(page.read_text()):
            if named := NAMED.match(code):
                self._project.write(named[1], code)
                self._written.add(named[1])

    def follow(self, page: Path, *, until: str = END) -> None:
        """Do what a page says, up to a block that begins with *until*."""
        text = page.read_text().replace(PORT, self._port)
        for found in CODE_BLOCK.finditer(text):
            if found[2].startswith(until):
                break
            self._do(found[1], found[2], text[: found.start()])

    def _do(self, language: str, code: str, before: str) -> None:
        if named := NAMED.match(code) or NAMED_BEFORE.search(before):
            if named[1] not in self._written:
                self._project.write(named[1], code)
        elif language == "json":
            assert same_shape(json.loads(code), last_object(self._said)), self._said
        elif before.endswith(IN_ANOTHER_TERMINAL):
            self._there.begin(code)
            wait_until(lambda: is_open(self._port), timeout=TEST_SECONDS / 2)
        else:
            assert language == "sh", code
            self._said = self._here.run(code)
            if code.startswith(("python till", "node till")):
                wait_until(lambda: " ready " not in str(self._project.run(STATES)), interval=0.2)
                self._here.run("kill $!; wait $!")


@pytest.mark.time_limit(480)
def test_the_page_works_word_by_word(project: Project, terminals: list[Terminal]) -> None:
    """S2.31: every call on it, and what it answers; then both clients."""
    Walk(project, terminals).follow(WORKERS)
    states = [line.removeprefix("shop.tasks.print_label ") for line in project.run(STATES)]
    told = {"label 7, 1 copy", "label 11, printed by Python"}
    told |= {f"label {order}, printed by Node.js" for order in (12, 13)}  # by name, by position
    # Of these one was told to have failed, and two were run again: those that came first.
    told |= {f"label {order}, printed by Python" for order in (8, 9, 10)}
    assert states.count("failed None") == 1 and len(set(states)) == 7
    assert set(states) - {"failed None"} <= {f"successful {label}" for label in told}


@pytest.mark.time_limit(480)
def test_a_workflow_is_opened_as_its_page_says(project: Project, terminals: list[Terminal]) -> None:
    """With the server of the other page."""
    walk = Walk(project, terminals)
    walk.write_modules(WORKFLOWS)
    walk.follow(WORKERS, until="ask $API/token")
    walk.follow(WORKFLOWS)
    assert "shop.tasks.push_product successful product 2 is in shop 1" in project.run(STATES)
