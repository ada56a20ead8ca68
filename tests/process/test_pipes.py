"""What commands say, read from a pipe while they run: all of it, or the first lines only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator

import pytest

from django_pgjobs.management.printing import EXIT_READER_GONE
from tests.factories import ago, make_jobs
from tests.helpers import (
    MARK,
    ROOT,
    WAIT_SECONDS,
    database_url,
    end_other_backends,
    kill_processes,
    wait_until,
)
from tests.servers import free_port

pytestmark = [pytest.mark.process, pytest.mark.django_db(transaction=True)]

Piped = subprocess.Popen[bytes]


@pytest.fixture
def start_piped() -> Iterator[Callable[..., Piped]]:
    """Start a command of Django's with its standard output in a pipe, buffered as by default.

    Its children are killed with it: those of a supervisor would go on to the database.
    """
    started: list[Piped] = []
    mark = uuid.uuid4().hex

    def start(*words: str, redirect: str = "", **variables: str) -> Piped:
        inherited = {name: v for name, v in os.environ.items() if name != "PYTHONUNBUFFERED"}
        changed = {"OUTSIDE_API_URL": f"http://127.0.0.1:{free_port()}"}
        process = subprocess.Popen(
            ["sh", "-c", f'exec "$0" "$@" {redirect}', sys.executable, "-m", "django", *words],
            cwd=ROOT,
            env=inherited
            | {
                "DATABASE_URL": database_url(),
                "DJANGO_SETTINGS_MODULE": "tests.settings",
                "PGJOBS_TEST_SETTINGS": json.dumps(changed),
                "PYTHONPATH": str(ROOT),
                MARK: mark,
                **variables,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        started.append(process)
        return process

    yield start
    kill_processes(mark)
    for process in started:
        process.communicate()
    if started:
        end_other_backends()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("runjobs", "--no-reload"), "Ctrl-C to stop, twice to stop at once.\n"),
        (("runjobs", "--no-reload", "--processes", "2"), "Ctrl-C to stop, twice"),
        (("outside_api",), "The outside API is at http://127.0.0.1:"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_what_is_said_first_is_there_at_once(
    start_piped: Callable[..., Piped], words: tuple[str, ...], said: str
) -> None:
    process = start_piped(*words)
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    read = bytearray()

    def is_said() -> bool:
        assert process.stdout is not None
        assert process.poll() is None, read.decode()
        read.extend(process.stdout.read() or b"")
        return said in read.decode()

    wait_until(is_said, message=read.decode)
    assert process.poll() is None


def test_a_reader_that_ends_early_ends_the_command_without_a_word(
    start_piped: Callable[..., Piped],
) -> None:
    """As in `manage.py jobs list | head`."""
    make_jobs(20)
    process = start_piped("jobs", "list")
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    assert process.wait() == EXIT_READER_GONE


@pytest.mark.parametrize(
    ("redirect", "variables", "why"),
    [
        (">/dev/full", {}, "No space left on device."),
        (">/dev/full", {"PYTHONUNBUFFERED": "1"}, "No space left on device."),
        (">&-", {}, "it is closed."),
    ],
    ids=["full", "full, unbuffered", "closed"],
)
def test_an_output_that_cannot_be_written_is_told_in_a_line(
    start_piped: Callable[..., Piped], redirect: str, variables: dict[str, str], why: str
) -> None:
    """As in `manage.py jobs list > file` on a disk without space, also when Python writes late."""
    process = start_piped("jobs", "list", redirect=f"2>&1 {redirect}", **variables)
    assert process.stdout is not None
    said = process.stdout.read().decode()
    assert said == f"the output cannot be written: {why}\n"
    assert process.wait() == 1


def test_tail_ends_with_its_reader_though_no_job_does(start_piped: Callable[..., Piped]) -> None:
    """As in `manage.py jobs tail | head -1`."""
    make_jobs(1, status="successful", finished_at=ago(0))
    process = start_piped("jobs", "tail")
    assert process.stdout is not None
    assert process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    assert process.wait(WAIT_SECONDS) == EXIT_READER_GONE


def test_what_an_encoding_lacks_is_written_as_an_escape(start_piped: Callable[..., Piped]) -> None:
    """A job with such a name keeps nobody from seeing the others; JSON is still JSON."""
    make_jobs(2, queue_name="日本 é 😀")
    said = []
    for flags in ((), ("--json",)):
        process = start_piped("jobs", "stats", *flags, PYTHONIOENCODING="ascii")
        assert process.stdout is not None
        said.append(process.stdout.read())
        assert process.wait() == 0
    assert rb"\u65e5\u672c \xe9 \U0001f600  active" in said[0]
    assert [each["queue_name"] for each in json.loads(said[1])] == ["日本 é 😀"]
