"""What workers over HTTP cost: jobs claimed and finished a second, and how soon a waiting one has
its job.

    python -m tests.benchmarks.over_http --server gunicorn --server uvicorn

Starts a PostgreSQL of its own (or uses the one of DATABASE_URL, whose tables it empties), two
processes of each server, which has to be installed, and clients in processes of their own with
connections that are kept alive (`http_clients`). All of them share the processors of the machine;
behind each rate is what clients, web processes and sessions of the server took of them for a job.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from tests.benchmarks.http_clients import (
    BASE,
    CONNECT_SECONDS,
    MOST_SECONDS,
    PORT,
    Client,
    Work,
    work,
    work_as_worker,
)

ROOT = Path(__file__).parents[2]
READY_SECONDS = 30.0
WAITING = 50
WAIT_SECONDS = 25
# All wait by then, and the server has counted what they did before: a session that is idle tells
# after ten seconds, ...
SETTLE_SECONDS = 14.0
# ... and none has claimed anew after so many more.
IDLE_SECONDS = 10.0
# The transactions of whoever asks for the count, of which the second one counts.
OWN_COMMITS = 2
POLL_SECONDS = 0.02
# Processes that are started take as long as so many clients that connect.
START_CLIENTS = 10
STATEMENTS = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
SESSIONS = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'pgjobs %'"
UNFINISHED = "SELECT count(*) FROM pgjobs_job_live WHERE status IN ('ready', 'running')"

WHAT = ("rates", "workers", "poll", "idle")

# Not as the tests have their server: a commit is on the disk, as in production.
DURABLE = {"fsync": "on", "full_page_writes": "on", "autovacuum": "on"}

# Of the tests' own, without middleware.
SETTINGS = {
    "ROOT_URLCONF": "tests.http.urls",
    "MIDDLEWARE": [],
    "PGJOBS": {"TASK_MODULES": ["tests.http.tasks"]},
}
UVICORN = [
    *("uvicorn", "--workers", "2", "--port", str(PORT), "--log-level", "warning"),
    *("--no-access-log", "--lifespan", "off"),
]
SERVERS = {
    "gunicorn": [
        *("gunicorn", "-w", "2", "-k", "gthread", "--threads", "8", "--keep-alive", "75"),
        *("-b", f"127.0.0.1:{PORT}", "tests.benchmarks.over_http:wsgi"),
    ],
    "uvicorn": [*UVICORN, "tests.benchmarks.over_http:asgi_with_api"],
    # Django's handler alone.
    "uvicorn-django": [*UVICORN, "tests.benchmarks.over_http:asgi"],
}


def __getattr__(name: str) -> Any:
    """Make the application that a server asks for."""
    if name not in ("wsgi", "asgi", "asgi_with_api"):
        raise AttributeError(name)
    import django
    from django.core.asgi import get_asgi_application
    from django.core.wsgi import get_wsgi_application

    django.setup()
    from django_pgjobs.http.asgi import with_api

    if name == "wsgi":
        return get_wsgi_application()
    application = get_asgi_application()
    return with_api(application) if name == "asgi_with_api" else application


# Returns how many jobs the clients had, and their processor seconds.
Finish = Callable[[], tuple[int, float]]


class Rate(NamedTuple):
    """Jobs a second, and processor seconds of a job: of clients, web processes and sessions."""

    rate: float
    client: float
    web: float
    session: float


class Asked(NamedTuple):
    """What is to be measured, and how often."""

    secret: str
    variables: dict[str, str]
    what: Sequence[str]
    sizes: Sequence[int]
    clients: Sequence[int]
    jobs: int
    repeat: int


def ask(statement: str) -> list[Any]:
    """Return the first column of what the server answers."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(statement)
        return [row[0] for row in cursor.fetchall()]


def spent(pids: Sequence[int]) -> float:
    """Return the processor seconds of these processes; those of another machine are 0."""
    seconds = 0.0
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            times = psutil.Process(pid).cpu_times()
            seconds += times.user + times.system
    return seconds


def web_pids(server: int) -> list[int]:
    """Return the processes of a web server."""
    return [server, *(child.pid for child in psutil.Process(server).children(recursive=True))]


def drain(server: int, jobs: int, clients: int, start: Callable[[float], Finish]) -> Rate:
    """Return what clients make of so many jobs; *start* lets them work from a time on.

    What it returns waits for their end.
    """
    from tests.http.tasks import resize

    resize.enqueue_many([(number,) for number in range(jobs)])
    begin = time.time() + CONNECT_SECONDS * (clients + 1)
    finish = start(begin)
    time.sleep(max(0.0, begin - time.time()))
    web, session = spent(web_pids(server)), spent(ask(SESSIONS))
    done, client = finish()
    seconds = time.time() - begin
    web, session = spent(web_pids(server)) - web, spent(ask(SESSIONS)) - session
    return Rate(done / seconds, client / done, web / done, session / done)


def drain_lightly(server: int, secret: str, size: int, clients: int, jobs: int) -> Rate:
    """Return the rate of so many clients that cost little."""
    with multiprocessing.get_context("spawn").Pool(clients) as pool:
        # The processes are there before the time counts.
        pool.map(time.sleep, [0.2] * clients)

        def start(begin: float) -> Finish:
            asked = [Work(secret, size, number, begin) for number in range(clients)]
            results = pool.map_async(work, asked, chunksize=1)

            def finish() -> tuple[int, float]:
                found = results.get()
                return sum(done for done, _ in found), sum(seconds for _, seconds in found)

            return finish

        return drain(server, jobs, clients, start)


def drain_as_workers(server: int, secret: str, size: int, clients: int, jobs: int) -> Rate:
    """Return the rate of so many workers of clients/python, with *size* slots each."""
    context = multiprocessing.get_context("spawn")
    is_over = context.Event()
    processes: list[Any] = []

    def start(begin: float) -> Finish:
        for number in range(clients):
            asked = Work(secret, size, number, begin)
            processes.append(context.Process(target=work_as_worker, args=(asked, is_over)))
            processes[-1].start()
        pids = [process.pid for process in processes]

        def finish() -> tuple[int, float]:
            before, until = spent(pids), time.time() + MOST_SECONDS
            while (left := ask(UNFINISHED)[0]) and time.time() < until:
                time.sleep(POLL_SECONDS)
            return jobs - left, spent(pids) - before

        return finish

    try:
        return drain(server, jobs, clients + START_CLIENTS, start)
    finally:
        is_over.set()
        for process in processes:
            process.join()


def long_poll(secret: str, count: int) -> list[tuple[float, float]]:
    """Return the milliseconds from the commit of each job, and from before its INSERT, to the
    answer of a claim that waited.
    """
    from tests.http.tasks import resize

    client = Client(secret)
    worker = client.post("workers", {"name": "bench"})["worker"]
    latencies = []
    for number in range(count):
        answered: list[float] = []

        def claim(answered: list[float] = answered) -> None:
            body = client.post(f"workers/{worker}/claim", {"wait": 20})
            answered.append(time.perf_counter())
            [given] = body["assignments"]
            client.post(f"assignments/{given['assignment']}/result", {})

        thread = threading.Thread(target=claim)
        thread.start()
        time.sleep(0.15)
        began = time.perf_counter()
        resize.enqueue(number)
        committed = time.perf_counter()
        thread.join()
        latencies.append(tuple(1000 * (answered[0] - since) for since in (committed, began)))
    return latencies


def idle(secret: str) -> float:
    """Return the transactions a second while WAITING workers wait, beside who counts them."""

    def wait() -> None:
        client = Client(secret)
        worker = client.post("workers", {"name": "bench"})["worker"]
        # At the end of the block the server ends, and with it the connection.
        with suppress(OSError):
            client.post(f"workers/{worker}/claim", {"wait": WAIT_SECONDS})

    threads = [threading.Thread(target=wait, daemon=True) for _ in range(WAITING)]
    for thread in threads:
        thread.start()
    time.sleep(SETTLE_SECONDS)

    def commits() -> int:
        ask("SELECT pg_stat_force_next_flush()")
        return int(ask(STATEMENTS)[0])

    before = commits()
    time.sleep(IDLE_SECONDS)
    return (commits() - before - OWN_COMMITS) / IDLE_SECONDS


@contextmanager
def serving(name: str, variables: dict[str, str]) -> Iterator[int]:
    """Run a server until the end of the block; give the id of its first process."""
    command = [sys.executable, "-m", *SERVERS[name]]
    process = subprocess.Popen(command, cwd=ROOT, env=variables)
    try:
        deadline = time.monotonic() + READY_SECONDS
        while True:
            try:
                connection = HTTPConnection("127.0.0.1", PORT, timeout=5)
                connection.request("GET", BASE + "openapi.json")
                connection.getresponse().read()
                break
            except OSError:
                if time.monotonic() > deadline or process.poll() is not None:
                    raise
                time.sleep(0.1)
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def rates(name: str, asked: Asked, drained: Callable[..., Rate]) -> Iterator[tuple[str, str]]:
    """Yield the rates of the clients that *drained* lets work, at each size of a request."""
    for size in asked.sizes:
        for clients in asked.clients:
            count = asked.jobs if size > 1 else asked.jobs // 10
            found = []
            for _ in range(asked.repeat):
                with serving(name, asked.variables) as server:
                    found.append(drained(server, asked.secret, size, clients, count))
            yield f"{size} per request, {clients} clients", _shown(found)


def _shown(found: Sequence[Rate]) -> str:
    rates = [each.rate for each in found]
    parts = [f"{1e6 * statistics.median(part):,.0f}" for part in list(zip(*found, strict=True))[1:]]
    return (
        f"{statistics.median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f}) jobs/s; "
        f"us of a job: client {parts[0]}, web {parts[1]}, sessions {parts[2]}"
    )


def measure(name: str, asked: Asked) -> Iterator[tuple[str, str]]:
    """Yield what was measured, in words, and the figures."""
    if "rates" in asked.what:
        yield from rates(name, asked, drain_lightly)
    if "workers" in asked.what:
        for words, figures in rates(name, asked, drain_as_workers):
            yield f"clients/python, {words}", figures
    if "poll" in asked.what:
        with serving(name, asked.variables):
            found = zip(*long_poll(asked.secret, 60), strict=True)
        for words, unsorted in zip(("the commit", "before the INSERT"), found, strict=True):
            times = sorted(unsorted)
            yield (
                f"long poll, from {words}",
                f"p50 {times[30]:.1f} ms, p90 {times[54]:.1f} ms, most {times[-1]:.1f} ms",
            )
    if "idle" in asked.what and name != "gunicorn":
        with serving(name, asked.variables):
            yield f"{WAITING} wait", f"{idle(asked.secret):.1f} transactions/s"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print a line of each."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.over_http")
    parser.add_argument("--server", action="append", choices=list(SERVERS))
    parser.add_argument("--what", action="append", choices=WHAT)
    parser.add_argument("--size", action="append", type=int)
    parser.add_argument("--clients", action="append", type=int)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--repeat", type=int, default=3)
    given = parser.parse_args(arguments)
    if "DATABASE_URL" not in os.environ:
        from tests.servers import temporary_cluster

        with temporary_cluster(**DURABLE) as cluster:
            variables = os.environ | {
                "DATABASE_URL": cluster.url(),
                "DJANGO_SETTINGS_MODULE": "tests.settings",
                "PGJOBS_TEST_SETTINGS": json.dumps(SETTINGS),
            }
            command = [sys.executable, "-m", "tests.benchmarks.over_http", *sys.argv[1:]]
            sys.exit(subprocess.run(command, cwd=ROOT, env=variables).returncode)
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
    from tests.factories import make_token

    asked = Asked(
        secret=make_token(),
        variables=dict(os.environ),
        what=given.what or WHAT,
        sizes=given.size or (100, 20, 1),
        clients=given.clients or (1, 4),
        jobs=given.jobs,
        repeat=given.repeat,
    )
    for name in given.server or list(SERVERS):
        for what, figures in measure(name, asked):
            print(f"{name}: {what}: {figures}", flush=True)


if __name__ == "__main__":
    main()
