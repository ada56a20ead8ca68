"""What workers over HTTP cost: jobs claimed and finished a second, and how soon a waiting one has
its job.

    python -m tests.benchmarks.over_http --server gunicorn --server uvicorn

Starts a PostgreSQL of its own (or uses the one of DATABASE_URL, whose tables it empties), two
processes of each server, which has to be installed, and clients in processes of their own with
connections that are kept alive. All of them share the processors of the machine.
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PORT = 8799
BASE = "/pgjobs/api/v1/"
READY_SECONDS = 30.0
WAITING = 50
WAIT_SECONDS = 25
# All wait by then, ...
SETTLE_SECONDS = 9.0
# ... and none has claimed anew after so many more.
IDLE_SECONDS = 14.0
CONNECT_SECONDS = 0.2
MOST_SECONDS = 60.0
STATEMENTS = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"

# Of the tests' own, without middleware.
SETTINGS = {
    "ROOT_URLCONF": "tests.http.urls",
    "MIDDLEWARE": [],
    "PGJOBS": {"TASK_MODULES": ["tests.http.tasks"]},
}
SERVERS = {
    "gunicorn": [
        *("gunicorn", "-w", "2", "-k", "gthread", "--threads", "8", "--keep-alive", "75"),
        *("-b", f"127.0.0.1:{PORT}", "tests.benchmarks.over_http:wsgi"),
    ],
    "uvicorn": [
        *("uvicorn", "--workers", "2", "--port", str(PORT), "--log-level", "warning"),
        *("--no-access-log", "tests.benchmarks.over_http:asgi"),
    ],
}


def __getattr__(name: str) -> Any:
    """Make the application that a server asks for."""
    if name not in ("wsgi", "asgi"):
        raise AttributeError(name)
    import django

    django.setup()
    from django.core.asgi import get_asgi_application
    from django.core.wsgi import get_wsgi_application

    return get_wsgi_application() if name == "wsgi" else get_asgi_application()


class Client:
    """A connection that is kept alive."""

    def __init__(self, secret: str) -> None:
        self._connection = HTTPConnection("127.0.0.1", PORT, timeout=60)
        self._headers = {
            "Authorization": f"Bearer {secret}",
            "Content-Type": "application/json",
        }

    def post(self, address: str, body: Any) -> Any:
        """Return the body of the answer; raise RuntimeError for an error."""
        self._connection.request("POST", BASE + address, json.dumps(body), self._headers)
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status >= 400:
            raise RuntimeError(f"{address}: {answer.status} {content!r}")
        return json.loads(content)


def work(secret: str, size: int, number: int, begin: float) -> int:
    """Claim and finish *size* jobs at a time, from *begin* until nothing is left; return how many.

    Clients connect one after the other: a process that waits for connections takes all that come
    at once, and the other would have nothing to do.
    """
    time.sleep(CONNECT_SECONDS * number)
    client = Client(secret)
    worker = client.post("workers", {"name": "bench"})["worker"]
    done = 0
    time.sleep(max(0.0, begin - time.time()))
    while time.time() < begin + MOST_SECONDS:
        given = client.post(f"workers/{worker}/claim", {"max_jobs": size})["assignments"]
        if not given:
            break
        if size == 1:
            client.post(f"assignments/{given[0]['assignment']}/result", {"result": 1})
        else:
            results = [{"assignment": each["assignment"], "result": 1} for each in given]
            client.post("results", {"results": results})
        done += len(given)
    return done


def drain(secret: str, size: int, clients: int, jobs: int) -> float:
    """Return the jobs per second of so many clients."""
    from tests.http.tasks import resize

    resize.enqueue_many([(number,) for number in range(jobs)])
    with multiprocessing.get_context("spawn").Pool(clients) as pool:
        # The processes are there before the time counts.
        pool.map(time.sleep, [0.2] * clients)
        begin = time.time() + CONNECT_SECONDS * (clients + 1)
        arguments = [(secret, size, number, begin) for number in range(clients)]
        done = sum(pool.starmap(work, arguments, chunksize=1))
        return done / (time.time() - begin)


def long_poll(secret: str, count: int) -> list[float]:
    """Return the milliseconds from before each INSERT to the answer of a claim that waited."""
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
        thread.join()
        latencies.append(1000 * (answered[0] - began))
    return latencies


def idle(secret: str) -> float:
    """Return the transactions a second as long as WAITING workers wait, these three among them."""
    from django.db import connection

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
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_stat_force_next_flush()")
            cursor.execute(STATEMENTS)
            return int(cursor.fetchone()[0])

    before = commits()
    time.sleep(IDLE_SECONDS)
    return (commits() - before) / IDLE_SECONDS


@contextmanager
def serving(name: str, variables: dict[str, str]) -> Iterator[None]:
    """Run a server until the end of the block."""
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
        yield
    finally:
        process.terminate()
        process.wait()


def measure(name: str, jobs: int, repeat: int) -> Iterator[tuple[str, str]]:
    """Yield what was measured, in words, and the figures."""
    from tests.factories import make_token

    secret = make_token()
    variables = dict(os.environ)
    for size in (100, 20, 1):
        for clients in (1, 4):
            rates = []
            for _ in range(repeat):
                with serving(name, variables):
                    count = jobs if size > 1 else jobs // 10
                    rates.append(drain(secret, size, clients, count))
            shown = f"{statistics.median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"
            yield f"{size} per request, {clients} clients", f"{shown} jobs/s"
    with serving(name, variables):
        times = sorted(long_poll(secret, 60))
    yield "long poll", f"p50 {times[30]:.1f} ms, p90 {times[54]:.1f} ms, most {times[-1]:.1f} ms"
    if name == "uvicorn":
        with serving(name, variables):
            yield f"{WAITING} wait", f"{idle(secret):.1f} transactions/s"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print a line of each."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.over_http")
    parser.add_argument("--server", action="append", choices=list(SERVERS))
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--repeat", type=int, default=3)
    given = parser.parse_args(arguments)
    if "DATABASE_URL" not in os.environ:
        from tests.servers import temporary_cluster

        with temporary_cluster() as cluster:
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
    for name in given.server or list(SERVERS):
        for what, figures in measure(name, given.jobs, given.repeat):
            print(f"{name}: {what}: {figures}", flush=True)


if __name__ == "__main__":
    main()
