"""A program with the Python client: `python remote_worker.py URL TOKEN OPTIONS`; see tasks.py."""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "clients/python"))

from pgjobs_worker import Cancelled, Discard, Job, Retry, Worker

logging.basicConfig(format="%(message)s", level=logging.INFO)
worker = Worker(sys.argv[1], sys.argv[2], **json.loads(sys.argv[3]))
TASKS = "tests.clients.tasks."


def write(folder: str, line: str) -> None:
    handle = os.open(f"{folder}/journal", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, f"{line}\n".encode())
    os.close(handle)


@worker.task(TASKS + "note")
def note(job: Job, folder: str, text: str) -> None:
    write(folder, text)


@worker.task(TASKS + "add")
def add(job: Job, first: int, *, second: int = 0) -> dict[str, int]:
    return {"sum": first + second}


@worker.task(TASKS + "hold")
def hold(job: Job, folder: str, text: str) -> int:
    attempt = job.fields["attempt"]
    write(folder, f"start {text} {attempt}")
    job.progress(1, 2, "at the gate")
    try:
        while not Path(folder, "gate").exists():
            job.sleep(0.01)
    except Cancelled as error:
        write(folder, f"cancelled {text} {attempt}: {error}")
        raise
    write(folder, f"end {text} {attempt}")
    return attempt


@worker.task(TASKS + "ignore")
def ignore(job: Job, folder: str, text: str) -> None:
    write(folder, f"start {text}")
    while True:
        try:
            job.sleep(600)
        except Cancelled:
            job._event.clear()


@worker.task(TASKS + "fail")
def fail(job: Job, times: int) -> int:
    if job.fields["attempt"] <= times:
        raise ValueError("not yet")
    return job.fields["attempt"]


@worker.task(TASKS + "wait_and_see")
def wait_and_see(job: Job) -> int:
    if job.fields["attempt"] == 1:
        raise Retry("later", after=0.1) from ValueError("not yet")
    return job.fields["attempt"]


@worker.task(TASKS + "discard")
def discard(job: Job) -> None:
    raise Discard("never")


@worker.task(TASKS + "make_large")
def make_large(job: Job) -> str:
    return "x" * 3_000_000


@worker.task(TASKS + "progress_last")
def progress_last(job: Job) -> None:
    job.progress(2, 2, "printed")


@worker.task(TASKS + "progress_strangely")
def progress_strangely(job: Job, folder: str) -> None:
    while not Path(folder, "gate").exists():
        job.progress("half", None, "no\0thing")  # type: ignore[arg-type]
        job.sleep(0.01)


@worker.task(TASKS + "fail_strangely")
def fail_strangely(job: Job) -> None:
    raise ValueError(f"no\0thing {'x' * 200_000}")


class Silent(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


@worker.task(TASKS + "fail_silently")
def fail_silently(job: Job) -> None:
    raise Silent


@worker.task(TASKS + "ask_strangely")
def ask_strangely(job: Job) -> None:
    raise Retry("later", after=timedelta(seconds=5))  # type: ignore[arg-type]


@worker.task(TASKS + "make_strange")
def make_strange(job: Job) -> object:
    return object()


@worker.task(TASKS + "convert")
def convert(job: Job, number: int) -> dict[str, int]:
    job.sleep(0.05)
    return {"number": number, "square": number * number}


print("ready", flush=True)
worker.run()
print("ended", flush=True)
