"""What the statistics cost: a part of the processor time of a drain, and of a processor when idle.

python -m tests.benchmarks.counting drain [--jobs 20000] [--queues 1] [--repeat 5]
python -m tests.benchmarks.counting idle [--minutes 5] [--database pgjobs_admin_bench]

Two drains differ by more than a hundredth from each other, whatever is counted. So the thread's own
clock is read around what settles outcomes, which counts them, and around what writes the counts;
in turns with such drains are some that count nothing. What settling takes less then is what
counting costs: it is the first to read what was written by another thread, and what it saves the
rest to wait for is no cost. *idle* is the recorder of the leader of an installation, in
which the database that tests.benchmarks.admin has made has a million jobs waiting; its processor
time is that of its thread and of its sessions in the server. On Linux, beside a server on this
machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import django
import psycopg
from psycopg import sql

DATABASE = "pgjobs_counting"
SLOTS = 4
JOBS = """
INSERT INTO pgjobs_job (task_path, queue_name, args)
SELECT 'tests.tasks.add', 'queue-' || number % {queues}, '[1, 2]'
FROM generate_series(1, {jobs}) AS number
"""


class Drained(NamedTuple):
    """Processor seconds of the process and of the server, and of those of the process that
    settle outcomes, and that the recorder takes.
    """

    process: float
    server: float
    settling: float
    writing: float


def set_up(name: str) -> None:
    """Connect with a database, which is made if it is not there."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    from django.core.management import call_command
    from django.db import connection

    params = connection.get_connection_params()
    known = ("host", "port", "user", "password")
    plain = {key: params[key] for key in known if params.get(key)}
    with psycopg.connect(**plain, dbname="postgres", autocommit=True) as server:
        found = server.execute("SELECT FROM pg_database WHERE datname = %s", [name])
        if found.fetchone() is None:
            server.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    connection.settings_dict["NAME"] = name
    call_command("migrate", verbosity=0)


@contextmanager
def clocked(owner: Any, name: str, spent: dict[str, float]) -> Iterator[None]:
    """Add up in *spent* the processor time of whatever thread is in a method."""
    method: Callable[..., Any] = getattr(owner, name)

    def timed(*args: Any, **options: Any) -> Any:
        began = time.thread_time()
        try:
            return method(*args, **options)
        finally:
            spent[name] = spent.get(name, 0.0) + time.thread_time() - began

    with mock.patch.object(owner, name, timed):
        yield


def server_seconds(pid: int) -> float:
    """Return the processor time of a server and of its sessions that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def server_pid(backend: int) -> int:
    """Return the process that has made a session."""
    return int(Path(f"/proc/{backend}/stat").read_text().rpartition(")")[2].split()[1])


def drain(jobs: int, queues: int, *, counts: bool) -> Drained:
    """Run so many jobs that do nothing in this process; they come from the queues in turns."""
    from django.core.management import call_command
    from django.db import connection

    from django_pgjobs.worker.claiming.completer import Completer
    from django_pgjobs.worker.process.recorder import Recorder
    from django_pgjobs.worker.running.tally import Tally

    with connection.cursor() as cursor:
        cursor.execute(
            "TRUNCATE pgjobs_job, pgjobs_statistic, pgjobs_statistic_sum, pgjobs_queue_sample"
            " CASCADE"
        )
        cursor.execute(JOBS.format(jobs=int(jobs), queues=int(queues)))
        cursor.execute("VACUUM ANALYZE pgjobs_job")
        server = server_pid(connection.connection.info.backend_pid)
    spent: dict[str, float] = {}
    nothing = mock.patch.object(Tally, "note")
    with (
        nullcontext() if counts else nothing,
        clocked(Completer, "settle", spent),
        clocked(Recorder, "run", spent),
    ):
        began, began_there = time.process_time(), server_seconds(server)
        with suppress(SystemExit):
            call_command("runjobs", drain=True, concurrency=SLOTS, verbosity=0)
        process = time.process_time() - began
    time.sleep(1.0)  # until the sessions have ended: nobody tells
    there = server_seconds(server) - began_there
    with connection.cursor() as cursor:
        cursor.execute("SELECT COALESCE(sum(successful), 0) FROM pgjobs_statistic")
        [(counted,)] = cursor.fetchall()
    assert counted == (jobs if counts else 0), f"{counted} of {jobs} jobs are counted"
    return Drained(process, there, spent["settle"], spent["run"])


def measure_drains(jobs: int, queues: int, repeat: int) -> None:
    """Drain in turns with and without statistics; print the medians."""
    drain(jobs, queues, counts=True)
    runs: dict[bool, list[Drained]] = {True: [], False: []}
    for number in range(2 * repeat):
        runs[number % 2 == 0].append(drain(jobs, queues, counts=number % 2 == 0))
    print(
        f"{jobs:,} jobs of {queues} queues, medians of {repeat} drains,"
        " microseconds of a processor per job"
    )
    middle: dict[bool, Drained] = {}
    for counts, name in ((True, "counting"), (False, "not counting")):
        columns = zip(*runs[counts], strict=True)
        found = Drained(*(statistics.median(each) / jobs * 1e6 for each in columns))
        middle[counts] = found
        print(
            f"{name}: process {found.process:.1f}, server {found.server:.1f},"
            f" settling {found.settling:.3f}, recorder {found.writing:.3f}"
        )
    counting = middle[True].settling - middle[False].settling
    process, server = middle[True].process, middle[True].server
    print(
        f"counting: {counting:.3f}, or {100 * counting / process:.2f} % of the process,"
        f" {100 * counting / (process + server):.2f} % of both"
    )
    writing = middle[True].writing * jobs / 1e6
    print(f"the recorder: {writing * 1000:.1f} ms for a process that writes once")


def measure_idle(minutes: float) -> None:
    """Let the recorder of a leader do what it does when no job runs; print what it took."""
    from django_pgjobs.queries.connection import OwnConnection
    from django_pgjobs.queries.database import job_database
    from django_pgjobs.worker.process.recorder import Recorder
    from django_pgjobs.worker.running.tally import Tally

    spent: dict[str, float] = {}
    server: list[float] = []
    connection = OwnConnection(job_database(), "recorder")
    close = connection.close

    def closed() -> None:
        if connection.is_open:
            pid = connection.open().info.backend_pid
            server.append(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9)
        close()

    connection.close = closed  # type: ignore[method-assign]
    recorder = Recorder(Tally(), connection, retention=None, is_leader=lambda: True, on_crash=print)
    with clocked(Recorder, "run", spent):
        began = time.monotonic()
        recorder.start()
        threading.Event().wait(minutes * 60)
        recorder.stop()
        recorder.join(60)
        seconds = time.monotonic() - began
    took = spent["run"] + sum(server)
    print(f"{seconds:.0f} s, {len(server)} turns: {spent['run']:.3f} s of a processor here,")
    print(f"{sum(server):.3f} s in the server, together {100 * took / seconds:.2f} % of one")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.counting", description=str(__doc__).splitlines()[0]
    )
    parser.add_argument("what", choices=["drain", "idle"])
    parser.add_argument("--jobs", type=int, default=20_000, help="of a drain (default 20,000)")
    parser.add_argument("--queues", type=int, default=1, help="of a drain (default 1)")
    parser.add_argument("--repeat", type=int, default=5, help="drains of each kind (default 5)")
    parser.add_argument("--minutes", type=float, default=5.0, help="of idleness (default 5)")
    parser.add_argument("--database", default=DATABASE, help=f"its name (default {DATABASE})")
    options = parser.parse_args()
    set_up(options.database)
    if options.what == "drain":
        measure_drains(options.jobs, options.queues, options.repeat)
    else:
        measure_idle(options.minutes)
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
