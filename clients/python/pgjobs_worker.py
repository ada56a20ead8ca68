"""A worker for django-pgjobs in a program without Django: it claims jobs over HTTP and reports.

    worker = Worker("https://shop.example/pgjobs/api/", token, slots=4)

    @worker.task("shop.tasks.print_label")
    def print_label(job, order_id):
        ...  # what it returns is the result, what it raises the failure

    worker.run()  # until SIGTERM, SIGINT or worker.stop()

Copy this file: it needs Python 3.11 and its standard library. docs/http-workers.md explains it.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import platform
import queue
import random
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

log = logging.getLogger("pgjobs_worker")

WAIT_SECONDS = 20  # how long a claim waits on the server for jobs
CALL_SECONDS = 30  # what a call may take
LONGEST_REST = 30  # before a call is repeated
MOST_JOBS = 100  # in one claim
MOST_OUTCOMES = 500  # in one report


class Retry(Exception):
    """Raise it in a task: this attempt has failed, begin another one after so many seconds."""

    def __init__(self, message: str = "", *, after: float | None = None) -> None:
        super().__init__(message)
        self.after = after


class Discard(Exception):
    """Raise it in a task: it has failed, and another attempt would not help."""


class Cancelled(Exception):
    """What job.check() and job.sleep() raise; let it through."""


class Refused(Exception):
    """The server answered with a problem (RFC 9457)."""

    def __init__(self, status: int, body: bytes, retry_after: str | None) -> None:
        try:
            problem = json.loads(body)
            slug = problem["type"].removeprefix("urn:pgjobs:problem:")
        except (ValueError, TypeError, LookupError, AttributeError):
            problem, slug = {"title": body[:100]}, None  # of a proxy
        super().__init__(f"{status} {problem.get('title')} {problem.get('errors') or ''}".strip())
        self.is_gone = slug == "worker-gone"
        self.is_for_good = status in (401, 403)
        self.may_pass = status == 429 or status >= 500 or (slug is None and status != 413)
        self.retry_after = float(retry_after) if retry_after and retry_after.isdigit() else 0.0


FAULTS = (OSError, ValueError, http.client.HTTPException, Refused)


class Api:
    """One connection, kept from call to call, for one thread."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        self._connection = kind(parts.netloc)
        self._path = parts.path.rstrip("/") + "/v1/"
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def call(self, method: str, path: str, body: Any, seconds: float = CALL_SECONDS) -> Any:
        """Return the answer; raise one of FAULTS."""
        was_kept = self._connection.sock is not None
        try:
            return self._call(method, path, body, seconds)
        except ConnectionError:
            if not was_kept:
                raise
        return self._call(method, path, body, seconds)  # it was closed since the last call

    def hang_up(self) -> None:
        """Let the call of another thread end, and be sent again."""
        if (sock := self._connection.sock) is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _call(self, method: str, path: str, body: Any, seconds: float) -> Any:
        connection = self._connection
        connection.timeout = seconds
        try:
            if connection.sock is not None:
                connection.sock.settimeout(seconds)
            text = None if body is None else json.dumps(body)
            connection.request(method, self._path + path, text, self._headers)
            answer = connection.getresponse()
            data = answer.read()
        except BaseException:
            connection.close()
            raise
        if answer.status >= 300:
            raise Refused(answer.status, data, answer.getheader("Retry-After"))
        return json.loads(data) if data else None


class Job:
    """What a task is called with first: what the server tells of it, and what it may ask for."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.assignment: str = fields["assignment"]
        self.fields = fields  # job, task, attempt, metadata, ...
        self.said: dict[str, Any] | None = None
        self.cancelled: str | None = None  # why
        self._event = threading.Event()
        left = fields["seconds_left"]
        self._deadline = float("inf") if left is None else time.monotonic() + left

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Say how far it is; the next heartbeat tells the server."""
        self.said = {"done": float(done), "message": clean(message, 500)}
        self.said |= {} if total is None else {"total": float(total)}

    def check(self) -> None:
        """Raise Cancelled if the job is to end: cancelled, lost, or past its timeout."""
        self.sleep(0)

    def sleep(self, seconds: float) -> None:
        """Sleep; raise Cancelled as soon as check() would."""
        left = self._deadline - time.monotonic()
        if not self._event.wait(max(0, min(seconds, left))) and left <= seconds:
            self.cancel("timed_out")
        if self.cancelled:
            raise Cancelled(self.cancelled)

    def cancel(self, reason: str) -> None:
        """Let check() raise; a job that is lost stays so."""
        self.cancelled = reason if reason == "lost" else self.cancelled or reason
        self._event.set()


class Worker:
    """Claims jobs of its tasks and runs *slots* of them at a time, each in a thread.

    Once it is stopped, running jobs have *grace* seconds to end.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        name: str = "",
        queues: list[str] | None = None,
        slots: int = 1,
        grace: float = 30,
    ) -> None:
        self._claims, self._heartbeats, self._reports = (Api(url, token) for _ in range(3))
        self._about = {"name": name or platform.node() or "python", "slots": slots}
        self._about |= {} if queues is None else {"queues": queues}
        self._slots, self._grace = slots, grace
        self._functions: dict[str, Callable[..., Any]] = {}
        self._worker: str | None = None
        self._interval = 60.0
        self._news = threading.Condition()  # guards what follows
        self._jobs: dict[str, Job] = {}  # from their claim to the answer to their report
        self._unended = 0  # jobs that wait for a slot or run
        self._outcomes: list[dict[str, Any]] = []
        self._is_quiet = False
        self._begun: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._stopping, self._finished = threading.Event(), threading.Event()
        self._trouble: Exception | None = None

    def task(self, path: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Declare what runs the jobs of a task: function(job, *args, **kwargs)."""

        def declare(function: Callable[..., Any]) -> Callable[..., Any]:
            self._functions[path] = function
            return function

        return declare

    def stop(self, *_: Any) -> None:
        """Claim no more; run() returns when the jobs have ended."""
        self._stopping.set()

    def run(self) -> None:
        """Work until stopped; raise Refused if the token does not allow it."""
        handlers = {}
        if threading.current_thread() is threading.main_thread():
            handlers = {n: signal.signal(n, self.stop) for n in (signal.SIGTERM, signal.SIGINT)}
        loops: list[tuple[Callable[..., None], tuple[Any, ...]]] = [
            (self._repeat, (self._claim, self._stopping)),
            (self._repeat, (self._report, self._finished)),
            (self._beat_always, ()),
            *[(self._work, ())] * self._slots,
        ]
        for loop, arguments in loops:
            threading.Thread(target=loop, args=arguments, daemon=True).start()
        self._stopping.wait()
        self._leave()
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if self._trouble is not None:
            raise self._trouble

    def _repeat(self, step: Callable[[], float], until: threading.Event) -> None:
        """Take a step after the other, those that fail after a longer and longer rest."""
        failures = 0
        while not until.is_set():
            try:
                rest = step()
                failures = 0
            except Exception as error:
                if not getattr(error, "may_pass", isinstance(error, FAULTS)):
                    self._trouble = error
                    self.stop()
                    return
                log.warning("A call failed: %s", error)
                rest = min(LONGEST_REST, 0.1 * 2 ** min(failures, 10)) * random.uniform(0.5, 1)
                rest = max(rest, getattr(error, "retry_after", 0))
                failures += 1
            until.wait(rest)

    def _claim(self) -> float:
        """Take jobs when there is room, and return for how long to rest."""
        with self._news:
            self._news.wait_for(self._has_room, 1)
            if not self._has_room():
                return 0
            # Running jobs that it does not name are given again: that answer was lost.
            room, held = min(MOST_JOBS, self._slots - self._unended), list(self._jobs)
        if self._worker is None:
            about = {**self._about, "tasks": sorted(self._functions)}
            answer = self._claims.call("POST", "workers", about)
            self._worker, self._interval = answer["worker"], answer["heartbeat_seconds"]
        worker = self._worker
        body = {"max_jobs": room, "wait": WAIT_SECONDS, "held": held}
        try:
            path, seconds = f"workers/{worker}/claim", WAIT_SECONDS + CALL_SECONDS
            answer = self._claims.call("POST", path, body, seconds)
        except Refused as error:
            self._begin_anew(error, worker)
            return 0
        for job in map(Job, answer["assignments"]):
            with self._news:
                if job.assignment not in self._jobs:
                    self._jobs[job.assignment] = job
                    self._unended += 1
                    self._begun.put(job)
        return float(answer.get("retry_after") or 0)

    def _has_room(self) -> bool:
        is_reporting = len(self._outcomes) < MOST_OUTCOMES
        return self._unended < self._slots and is_reporting and not self._is_quiet

    def _work(self) -> None:
        """Run jobs, one after the other."""
        while (job := self._begun.get()) is not None:
            outcome = {"release": True} if self._stopping.is_set() else self._run(job)
            with self._news:
                self._unended -= 1
                if job.cancelled == "lost":
                    self._jobs.pop(job.assignment, None)
                else:
                    self._outcomes.append({"assignment": job.assignment, **outcome})
                self._news.notify_all()

    def _run(self, job: Job) -> dict[str, Any]:
        try:
            job.check()
            fields = job.fields
            result = self._functions[fields["task"]](job, *fields["args"], **fields["kwargs"])
            json.dumps(result, allow_nan=False)
            return {"result": result}
        except BaseException as error:
            if isinstance(error, Cancelled) and job.cancelled in ("silence", "shutdown"):
                return {"release": True}
            failure: dict[str, Any] = {"error": error_of(error)}
            if isinstance(error, (Retry, Discard)):
                failure["retry"] = isinstance(error, Retry)
            if isinstance(error, Retry) and error.after is not None:
                failure["retry_after"] = error.after
            return failure

    def _report(self) -> float:
        with self._news:
            self._news.wait_for(lambda: self._outcomes, 1)
            batch = self._outcomes[:MOST_OUTCOMES]
        later = set()
        while batch:
            try:
                answer = self._reports.call("POST", "results", {"results": batch})
                # Somebody has locked these rows.
                later = {a["assignment"] for a in answer["results"] if a["status"] == "later"}
            except Refused as error:
                if error.may_pass or error.is_for_good:
                    raise
                if len(batch) > 1:  # it does not want one of them
                    batch = batch[: len(batch) // 2]
                    continue
                if "result" in batch[0]:
                    about = {"type": "Refused", "message": str(error)}
                    name = batch[0]["assignment"]
                    batch = [{"assignment": name, "error": about, "retry": False}]
                    continue
                log.error("The outcome of a job is refused: %s", error)
            break
        done = {outcome["assignment"] for outcome in batch} - later
        with self._news:
            self._outcomes = [item for item in self._outcomes if item["assignment"] not in done]
            for assignment in done:
                self._jobs.pop(assignment, None)
            self._news.notify_all()
        return 1 if later else 0

    def _beat_always(self) -> None:
        """Tell the server what runs; after two heartbeats that failed, cancel it all.

        After a third the server gives the jobs to others.
        """
        missed = 0
        while not self._finished.wait(self._interval if self._worker else 0.05):
            try:
                if (worker := self._worker) is not None:
                    self._beat(worker)
                missed = 0
            except FAULTS as error:
                log.warning("A heartbeat failed: %s", error)
                missed += 1
            if missed >= 2:
                self._cancel_all("silence")

    def _beat(self, worker: str) -> None:
        with self._news:
            jobs = dict(self._jobs)
        progress = {name: job.said for name, job in jobs.items() if job.said is not None}
        body = {"assignments": list(jobs), "progress": progress}
        seconds = min(CALL_SECONDS, self._interval / 4)
        try:
            path = f"workers/{worker}/heartbeat"
            answer = self._heartbeats.call("POST", path, body, seconds)
        except Refused as error:
            for job in jobs.values() if not error.may_pass else ():
                job.said = None  # it may be what is wrong
            self._begin_anew(error, worker)
            return
        for item in answer["cancel"]:
            if item["assignment"] in jobs:
                jobs[item["assignment"]].cancel(item["reason"])
        with self._news:
            self._is_quiet = answer["quiet"]
            self._news.notify_all()
        if answer["stop"]:
            self.stop()

    def _begin_anew(self, error: Refused, worker: str | None) -> None:
        """Forget everything if the server has given the worker up, and its jobs to others."""
        if not error.is_gone:
            raise error
        with self._news:
            if self._worker != worker:
                return  # the other thread has done it
            self._cancel_all("lost")
            self._worker = None
            self._jobs.clear()
            self._outcomes.clear()
        self._claims.hang_up()  # it waits for jobs of the old worker

    def _cancel_all(self, reason: str) -> None:
        with self._news:
            for job in self._jobs.values():
                job.cancel(reason)

    def _leave(self) -> None:
        """Let jobs end, report, and say goodbye: what is left goes to others at once."""
        with self._news:
            ended = self._news.wait_for(self._has_ended, self._grace)
        if not ended:
            self._cancel_all("shutdown")
            with self._news:
                self._news.wait_for(self._has_ended, 5)
        self._finished.set()
        for _ in range(self._slots):
            self._begun.put(None)
        try:
            if self._worker is not None:
                self._heartbeats.call("DELETE", f"workers/{self._worker}", None, 5)
        except FAULTS as error:
            log.warning("No goodbye: %s", error)

    def _has_ended(self) -> bool:
        # With a token that is of no use nothing can be reported.
        return not self._unended and (not self._outcomes or self._trouble is not None)


def error_of(error: BaseException) -> dict[str, str]:
    """Return what is kept of an exception."""
    text = "".join(traceback.format_exception(error))
    return {
        "type": clean(type(error).__name__, 200),
        "message": clean(str(error), 10_000),
        "traceback": clean(text[-100_000:], 100_000),
    }


def clean(text: str, most: int) -> str:
    """Return the beginning of a text, without what no text of PostgreSQL may hold."""
    return text[:most].encode(errors="replace").decode().replace("\0", "?")
