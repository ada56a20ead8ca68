"""Where a running job is: the worker tells, of threads and of the event loop, when it is asked."""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from django_pgjobs.control.stacks import ask_where, where_it_is
from django_pgjobs.models import Stack, Token
from django_pgjobs.queries.stacks import StackRow
from django_pgjobs.worker.running import stacks
from django_pgjobs.worker.running.stacks import INNER, OUTER, stack_of
from tests.factories import make_job, make_running_job, make_token, make_worker
from tests.helpers import wait_until
from tests.worker import tasks
from tests.worker.support import NEVER, Gate, ThreadedWorker, make_attempt_of

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., ThreadedWorker]
LINE = re.compile(r'  File "[^"]+", line \d+, in \S+')


def answer(job_id: int | str) -> StackRow:
    """Ask where a job is, and wait for what its worker says."""
    assert ask_where(int(job_id))

    def answered() -> bool:
        found = where_it_is(int(job_id))
        return found is not None and found.written_at is not None

    wait_until(answered)
    found = where_it_is(int(job_id))
    assert found is not None
    return found


@pytest.mark.parametrize("name", ["wait_at_gate", "wait_at_gate_async"])
def test_the_worker_tells_where_a_job_is(start_thread: Start, gate: Gate, name: str) -> None:
    """S1.2: of a thread and of an event loop, without any value."""
    worker = start_thread(lease=NEVER)
    wait_until(lambda: worker.listens)
    job = getattr(tasks, name).enqueue("s3cret value")
    gate.wait_entered()
    found = answer(job.id)
    lines = found.stack.splitlines()
    assert all(LINE.fullmatch(line) for line in lines)
    assert lines[0].endswith(f", in {name}")
    assert "tests/worker/tasks.py" in lines[0]
    assert "s3cret" not in found.stack
    assert not found.is_late
    gate.open()


@pytest.mark.slow
def test_a_loop_that_a_task_blocks_is_told_of(start_thread: Start, gate: Gate) -> None:
    worker = start_thread(lease=NEVER)
    wait_until(lambda: worker.listens)
    job = tasks.block_the_loop.enqueue()
    gate.wait_entered()
    lines = answer(job.id).stack.splitlines()
    assert lines[0].endswith(", in block_the_loop")
    assert "in wait_at_gate" in lines[1]
    gate.open()


@pytest.mark.slow
def test_without_a_notification_it_is_told_at_the_next_heartbeat(
    start_thread: Start, gate: Gate
) -> None:
    worker = start_thread(lease=NEVER)
    wait_until(lambda: worker.listens)
    job = tasks.wait_at_gate.enqueue()
    gate.wait_entered()
    worker.runner.leases._tell_where()
    assert not Stack.objects.exists()
    Stack.objects.create(job_id=int(job.id), claim=1, worker_id=worker.id)
    worker.runner.leases.wake()
    wait_until(lambda: Stack.objects.get().written_at is not None)
    gate.open()


class Awkward:
    """Can be awaited, and answers nothing else."""

    __slots__ = ("cr_frame", "gi_frame")

    def __init__(self) -> None:
        self.gi_frame = "a frame"

    def __await__(self) -> Iterator[Any]:
        return self  # type: ignore[return-value]

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return None

    def close(self) -> None:
        """What is awaited is closed with who awaits it."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __bool__(self) -> bool:
        raise RuntimeError("bool")

    cr_running = ag_frame = property(lambda self: self.nothing)


def test_what_is_awaited_runs_no_code_to_say_where_it_is() -> None:
    """A lazy object, say, that would raise: the lease waits for the answer."""

    async def wait() -> None:
        await Awkward()

    body = wait()
    body.send(None)
    lines = stacks._of_coroutine(body, threading.get_ident())
    assert [name.rpartition(".")[2] for _, _, name in lines] == ["wait"]
    assert stacks._of_coroutine(Awkward(), 0) == []
    body.close()


def test_a_job_that_has_not_begun_has_no_stack() -> None:
    assert stack_of(make_attempt_of(1)) == ""


def test_only_what_runs_at_a_live_worker_is_asked_about() -> None:
    assert not ask_where(make_job())
    assert not ask_where(make_running_job(make_worker(lease_seconds=-1)).id)
    assert not ask_where(2**60)
    job = make_running_job()
    assert ask_where(job.id)
    found = where_it_is(job.id)
    assert found is not None
    assert (found.written_at, found.stack, found.is_late) == (None, "", False)


def test_a_worker_that_does_not_answer_within_its_lease_is_late() -> None:
    job = make_running_job(make_worker(lease_seconds=3_600))
    ask_where(job.id)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgjobs_worker SET lease_seconds = 30")
        cursor.execute("UPDATE pgjobs_stack SET requested_at = now() - interval '29 seconds'")
        found = where_it_is(job.id)
        assert found is not None
        assert not found.is_late
        cursor.execute("UPDATE pgjobs_stack SET requested_at = now() - interval '31 seconds'")
    found = where_it_is(job.id)
    assert found is not None
    assert found.is_late


@pytest.mark.slow
def test_the_command_says_why_nobody_answers() -> None:
    make_token()
    remote = make_worker("node-1", token_id=Token.objects.get().pk)
    said = {
        99_999_999: "there is no job 99999999.",
        make_job(): "does not run: it is ready.",
        make_job(status="failed"): "does not run: it is failed.",
        make_running_job(make_worker(lease_seconds=-1)).id: "is gone; another one will take",
        make_running_job(remote).id: "runs in node-1, a worker over HTTP, whose stack nobody",
    }
    for job_id, why in said.items():
        with pytest.raises(CommandError, match=re.escape(why)) as caught:
            call_command("jobs", "stack", job_id)
        assert str(job_id) in str(caught.value)


def test_an_answer_about_an_earlier_attempt_is_not_shown() -> None:
    job = make_running_job()
    ask_where(job.id)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgjobs_job SET claim = claim + 1 WHERE id = %s", [job.id])
    assert where_it_is(job.id) is None


def test_old_answers_are_deleted() -> None:
    Stack.objects.create(job_id=1, claim=1, worker_id=1)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgjobs_stack SET requested_at = now() - interval '25 hours'")
    job = make_running_job()
    ask_where(job.id)
    assert list(Stack.objects.values_list("job_id", flat=True)) == [job.id]


def test_the_command_prints_where_a_job_is(start_thread: Start, gate: Gate) -> None:
    worker = start_thread(lease=NEVER)
    wait_until(lambda: worker.listens)
    job = tasks.wait_at_gate.enqueue()
    gate.wait_entered()
    text = io.StringIO()
    call_command("jobs", "stack", job.id, stdout=text)
    assert text.getvalue().splitlines()[0].endswith(", in wait_at_gate")
    gate.open()


@contextlib.contextmanager
def deep(depth: int) -> Iterator[Any]:
    """An attempt whose thread is so deep in a recursion."""
    attempt = make_attempt_of(1)
    there, over = threading.Event(), threading.Event()

    def recurse(left: int) -> None:
        if left:
            recurse(left - 1)
        else:
            there.set()
            over.wait()

    def run() -> None:
        attempt.arm()
        recurse(depth)

    thread = threading.Thread(target=run)
    thread.start()
    there.wait()
    try:
        yield attempt
    finally:
        over.set()
        thread.join()


def test_a_deep_stack_is_cut_in_the_middle() -> None:
    with deep(300) as attempt:
        lines = stack_of(attempt).splitlines()
    assert len(lines) == OUTER + INNER + 1
    assert re.fullmatch(r"  \.\.\. \d+ more", lines[OUTER])
    assert len("\n".join(lines)) < 100_000


def test_a_stack_that_is_short_enough_is_whole() -> None:
    with deep(20) as attempt:
        lines = stack_of(attempt).splitlines()
    assert not [line for line in lines if " more" in line]
    assert sum(line.endswith(".recurse") for line in lines) == 21


def test_what_awaits_itself_round_and_round_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "MAX_AWAITED", 3)

    async def inner(depth: int) -> None:
        if depth:
            await inner(depth - 1)
        await asyncio.sleep(3600)

    async def main() -> list[Any]:
        task = asyncio.get_running_loop().create_task(inner(9))
        await asyncio.sleep(0)
        found = stacks._of_coroutine(task.get_coro(), threading.get_ident())
        task.cancel()
        return found

    assert [name.rpartition(".")[2] for _, _, name in asyncio.run(main())] == ["inner"] * 3
