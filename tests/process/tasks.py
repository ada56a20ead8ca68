"""Tasks for the tests of processes; what they do is read from a journal and the tables.

A worker knows them only if its PGJOBS["TASK_MODULES"] names this module, as that of the
fixture `start` does: one without stands for a worker of an older release.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import logging
import multiprocessing
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connection, transaction

from django_pgjobs import Snooze, current_job, task
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.claiming.pump import Pump
from tests.models import Effect
from tests.process.history import line_of
from tests.tasks import Mishap, append_line, sleep_for

FOREVER = 600.0
# What tasks keep for as long as the process lives.
HOARD: list[object] = []


def write(folder: str, line: str) -> None:
    """Append a line to the journal."""
    append_line(f"{folder}/journal", line)


def is_open(folder: str) -> bool:
    """Return whether the gate is open for all attempts or for this one."""
    names = ("gate", f"gate-{current_job().attempt}")
    return any((Path(folder) / name).exists() for name in names)


@task
def note(folder: str, text: str, seconds: float = 0.0) -> None:
    """Write "<text>" to the journal and take *seconds*."""
    write(folder, text)
    if seconds:
        sleep_for.func(seconds)


@task
async def note_async(folder: str, text: str, seconds: float = 0.0) -> None:
    """Do as `note`, on the event loop."""
    write(folder, text)
    await asyncio.sleep(seconds)


@task
def pass_gate(folder: str, text: str) -> int:
    """Write "start <text> <attempt>", wait for the gate, write "end ...", return the attempt."""
    attempt = current_job().attempt
    write(folder, f"start {text} {attempt}")
    while not is_open(folder):
        time.sleep(0.01)
    write(folder, f"end {text} {attempt}")
    return attempt


@task(max_losses=1)
def pass_gate_once(folder: str, text: str) -> int:
    """Do as `pass_gate`, at most once."""
    return pass_gate.func(folder, text)


@task
async def pass_gate_async(folder: str, text: str) -> int:
    """Do as `pass_gate`, on the event loop."""
    attempt = current_job().attempt
    write(folder, f"start {text} {attempt}")
    while not is_open(folder):
        await asyncio.sleep(0.01)
    write(folder, f"end {text} {attempt}")
    return attempt


@task(atomic=True, backoff=[0])
def record_at_gate(folder: str, text: str) -> None:
    """Insert an Effect and pass the gate, in the transaction that finishes the job."""
    job = current_job()
    Effect.objects.create(key=text, job_id=int(job.id), attempt=job.attempt)
    pass_gate.func(folder, text)


@task(atomic=True, backoff=[0])
def record_slowly(text: str, seconds: float) -> None:
    """Insert an Effect, in the transaction that finishes the job *seconds* later."""
    job = current_job()
    Effect.objects.create(key=text, job_id=int(job.id), attempt=job.attempt)
    sleep_for.func(seconds)


@task
def die(folder: str, text: str) -> None:
    """Write "start <text>", wait for the gate and end the process without a word."""
    write(folder, f"start {text}")
    while not is_open(folder):
        time.sleep(0.01)
    os._exit(9)


@task
def spin(folder: str, text: str) -> None:
    """Keep the processor busy for ever; an exception can end it."""
    write(folder, f"start {text}")
    while True:
        pass


@task(timeout=0.3, max_attempts=2, backoff=[0])
def time_out_once(folder: str) -> None:
    """Take too long at the first attempt."""
    if current_job().attempt == 1:
        spin.func(folder, "slow")


@task
def block(folder: str, text: str) -> None:
    """Sleep in one call of C code, which no exception can end."""
    write(folder, f"start {text}")
    time.sleep(FOREVER)


@task
def refuse_to_end(folder: str, text: str) -> None:
    """Go on for ever, whatever is raised."""
    write(folder, f"start {text}")
    while True:
        try:
            time.sleep(0.01)
        except BaseException:
            write(folder, f"refused {text}")


@task
async def wait_async(folder: str, text: str) -> None:
    """Wait on the event loop for ever."""
    write(folder, f"start {text}")
    await asyncio.sleep(FOREVER)


@task
async def block_async(folder: str, text: str) -> None:
    """Block the event loop in one call of C code."""
    write(folder, f"start {text}")
    time.sleep(FOREVER)


@task
async def fail_behind() -> None:
    """Leave behind on the event loop what fails, for which nobody asks."""

    async def fail() -> None:
        raise ValueError("left\nbehind")

    asyncio.get_running_loop().create_task(fail())


@task
def enqueue_notes(folder: str, count: int) -> None:
    """Enqueue *count* notes in one transaction, by the ORM's connection of the job."""
    with transaction.atomic():
        for number in range(count):
            note.enqueue(folder, f"child {number}")


@task
def query(times: int) -> int:
    """Return how many queries Django has kept from before, then make some more."""
    kept = len(connection.queries_log)
    with connection.cursor() as cursor:
        for _ in range(times):
            cursor.execute("SELECT 1")
    return kept


@task
async def query_async(times: int) -> int:
    """Do as `query`, from the event loop."""
    return await sync_to_async(query.func)(times)


@task(backoff=[0])
def fail_secretly(secret: str) -> None:
    """Fail without a word about the argument."""
    raise Mishap("on purpose")


@task
def snooze_once(secret: str) -> None:
    """Put itself off for an hour."""
    raise Snooze(3600)


@task(queue_name="mail")
def mail(*args: Any) -> None:
    """Do nothing, in the queue "mail"."""


def hold_key(folder: str, key: str, seconds: float) -> None:
    """Write "begin" and "end" of the current job for `history`, *seconds* apart."""
    job_id, process = int(current_job().id), os.getpid()
    write(folder, line_of("begin", key, job_id, process))
    time.sleep(seconds)
    write(folder, line_of("end", key, job_id, process))


@task(concurrency_key="{key}")
def hold(folder: str, key: str, seconds: float) -> None:
    """Hold a key; write what `history` reads."""
    hold_key(folder, key, seconds)


@task(concurrency_key="{key}", queue_name="mail")
def hold_by_mail(folder: str, key: str, seconds: float) -> None:
    """Hold a key, in the queue "mail"."""
    hold_key(folder, key, seconds)


@task(concurrency_key="{key}", backoff=[0.05])
def hold_at_second_try(folder: str, key: str, seconds: float) -> None:
    """Hold a key at the second attempt; the first one fails and comes again a moment later."""
    if current_job().attempt == 1:
        job_id, process = int(current_job().id), os.getpid()
        write(folder, line_of("begin", key, job_id, process))
        write(folder, line_of("fail", key, job_id, process))
        raise Mishap("on purpose")
    hold_key(folder, key, seconds)


@task(rate_limit="api:{key}")
def hold_rate(folder: str, key: str, seconds: float) -> None:
    """Start only as fast as the limit "api" lets the key."""
    hold_key(folder, key, seconds)


@task(queue_name="narrow")
def hold_narrow(folder: str, key: str, seconds: float) -> None:
    """Be one of the jobs that are in the queue "narrow", without a key."""
    hold_key(folder, key, seconds)


@task
def close_stderr() -> None:
    """Close standard error, where the log goes."""
    sys.stderr.close()


@task
def break_upkeep(folder: str) -> None:
    """Leave no file for the upkeep's next connection, write "broken", and go on for ever."""
    open_connection = OwnConnection.open

    def find_no_file(self: OwnConnection) -> Any:
        if self.role == "upkeep" and not self.is_open:
            raise OSError(errno.EMFILE, "Too many open files")
        return open_connection(self)

    OwnConnection.open = find_no_file  # type: ignore[method-assign]
    write(folder, "broken")
    time.sleep(FOREVER)


@task(max_losses=1)
def keep_interpreter(folder: str) -> None:
    """Keep the interpreter's lock for ever, in C code that does not give it back."""
    write(folder, "kept")
    ctypes.PyDLL(None).sleep(int(FOREVER))


@task
def keep_log(folder: str) -> None:
    """Leave the lock of the log's handler to a thread that has ended; write "kept"."""
    [handler] = logging.getLogger("django_pgjobs").handlers
    thread = threading.Thread(target=handler.acquire)
    thread.start()
    thread.join()
    write(folder, "kept")


@task
def stop_pump(folder: str) -> None:
    """Let the pump's next turn take for ever, write "stopped", and go on for as long."""

    def stand_still(self: Pump) -> bool:
        time.sleep(FOREVER)
        return False

    Pump._take_turn = stand_still  # type: ignore[method-assign]
    write(folder, "stopped")
    time.sleep(FOREVER)


@task
def outgrow(folder: str, mebibytes: int) -> None:
    """Take so much memory, and keep it."""
    write(folder, "start outgrow")
    HOARD.append(bytearray(mebibytes * 1024 * 1024))
    time.sleep(FOREVER)


@task
def use_pool() -> int:
    """Let forked processes add, and end them."""
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return sum(pool.map(abs, [-1, 2]))


@task
def end_child() -> int | None:
    """Fork a process that would go on for ever, terminate it, and return how it ended."""
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(FOREVER,))
    child.start()
    child.terminate()
    child.join()
    return child.exitcode


@task
def leave_child(daemon: bool) -> int | None:
    """Fork a process that goes on for ever, and return its process id."""
    child = multiprocessing.get_context("fork").Process(
        target=time.sleep, args=(FOREVER,), daemon=daemon
    )
    child.start()
    return child.pid


@task
def leave_thread() -> None:
    """Start a thread that goes on for ever and that the interpreter waits for."""
    threading.Thread(target=time.sleep, args=(FOREVER,), daemon=False).start()


@task
def exit_quietly() -> None:
    """End the process as if all were well."""
    os._exit(0)


def fork_and_leave(folder: str, ending: str) -> int:
    """Fork; let the child leave the task as *ending* says, and return with what it ended."""
    write(folder, "forks")
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if ending == "raise":
        raise Mishap("in the child")
    if ending == "exit":
        sys.exit(3)
    return -1


@task(max_attempts=1, max_losses=1)
def fork(folder: str, ending: str) -> int:
    """Leave the task in a forked child as well."""
    return fork_and_leave(folder, ending)


@task(max_attempts=1, max_losses=1, atomic=True)
def fork_atomic(folder: str, ending: str) -> int:
    """Do as `fork`, in the transaction that finishes the job."""
    Effect.objects.create(key="forks")
    return fork_and_leave(folder, ending)


@task(max_attempts=1, max_losses=1)
async def fork_async(folder: str, ending: str) -> int:
    """Do as `fork`, on the event loop, which the child may come back to in between."""
    status = fork_and_leave(folder, ending)
    await asyncio.sleep(0)
    if status < 0:
        write(folder, "went on in the child")
    return status


def hang_for_key(number: int) -> str:
    """Never return, as a question to a service without a timeout."""
    while True:
        time.sleep(1)


@task(concurrency_key=hang_for_key)
def keyed_by_what_hangs(number: int) -> None:
    """Have a key that comes to nothing."""
